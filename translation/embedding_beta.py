"""β^px: the KTIW of a bag-of-words translator that knows no order and no attention (method A.2).

    python embedding_beta.py --dataset multi30k

The mean of the embeddings of the source pieces -> linear -> log-softmax over all pieces, trained
with Adam on the summed negative log-probabilities of the target pieces of each batch (those after
<s>: departure 5). β is taken from the epoch with the lowest validation loss (the untrained state
counts as the first). Reads the data, writes outputs/{dataset}embedding{embed_dim}translation.pkl,
an array (vocab, vocab): softmax(E W^T), row = source piece, column = target piece; and a .json
record beside it. When it is stopped, the same command goes on where it was (from a .state file
beside the output).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from data import Pairs, load_dataset
from torch.nn import functional as F
from tqdm import tqdm

from attention_dynamics.cli import count, run_script, script_parser, seed
from attention_dynamics.device import add_device_options, set_seed, setup_device
from attention_dynamics.runs.outputs import begin_output, record_output
from attention_dynamics.runs.paths import translation_beta_path
from attention_dynamics.runs.records import locked
from attention_dynamics.runs.training import Training
from attention_dynamics.storage.files import write_pickle

# Options that decide how, not what, is computed.
HOW = ("overwrite", "device", "threads")


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as multi30k or toy")
    parser.add_argument(
        "--bsize", type=count, default=64, help="sentence pairs in a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=count, default=30, help="passes over the pairs (default: %(default)s)"
    )
    parser.add_argument(
        "--embed_dim",
        type=count,
        default=256,
        help="width of the embeddings (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=seed, default=0, help="of weights and data order (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="train it again, from the start")
    add_device_options(parser)
    return parser.parse_args(argv)


class BagOfPieces(torch.nn.Module):
    """log p(y | x) = log softmax(W mean_s E[x_s] + b)[y], the same for every target position."""

    def __init__(self, vocab: int, embed_dim: int):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocab, embed_dim)
        self.linear = torch.nn.Linear(embed_dim, vocab)

    @torch.no_grad()
    def beta(self) -> torch.Tensor:
        """softmax(E W^T), (vocab, vocab) float32: how much each piece votes for each target."""
        return torch.mm(self.embedding.weight, self.linear.weight.t()).softmax(dim=1)

    def log_probs(self, src: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Mean embeddings (batch, embed_dim), and log-probabilities (batch, vocab).

        Args:
            src: (src_tokens,) the batch's sentences one after another.
            lengths: (batch,) of them.
        """
        offsets = lengths.cumsum(0) - lengths
        mean = F.embedding_bag(src, self.embedding.weight, offsets.to(src.device), mode="mean")
        return mean, self.linear(mean).log_softmax(dim=1)

    @torch.no_grad()
    def write_gradients(self, batch) -> torch.Tensor:
        """Put the gradients of the summed loss of a batch into ``.grad`` (zero before).

        Every target of a sentence has the same distribution, so that the gradient of its logits is
        (number of targets) * p - (count of each target): the vocabulary is gone through once per
        sentence rather than once per target, and only the embeddings of the batch's pieces are
        touched.

        Returns:
            (pieces,) the rows of E that now have a gradient.
        """
        device = batch.src.device
        mean, log_probs = self.log_probs(batch.src, batch.src_lengths)
        sentence = torch.repeat_interleave(batch.trg_lengths).to(device)
        of_logits = log_probs.exp_().mul_(batch.trg_lengths.to(device).unsqueeze(1))
        minus = torch.full((len(sentence),), -1.0, device=device)
        of_logits.index_put_((sentence, batch.targets), minus, accumulate=True)
        torch.mm(of_logits.t(), mean, out=self.linear.weight.grad)
        torch.sum(of_logits, dim=0, out=self.linear.bias.grad)
        of_mean = of_logits @ self.linear.weight
        of_mean /= batch.src_lengths.to(device).unsqueeze(1)
        pieces, place = batch.src.unique(return_inverse=True)
        reader = torch.repeat_interleave(batch.src_lengths).to(device)
        of_pieces = of_mean.new_zeros(len(pieces), of_mean.shape[1])
        self.embedding.weight.grad[pieces] = of_pieces.index_add_(0, place, of_mean[reader])
        return pieces


@torch.no_grad()
def validation_loss(model: BagOfPieces, pairs: Pairs, device: torch.device) -> float:
    """The mean negative log-probability of a target piece."""
    loss, targets = 0.0, 0
    for examples in np.array_split(np.arange(len(pairs)), -(-len(pairs) // 256)):
        batch = pairs.batch(examples).to(device)
        _, log_probs = model.log_probs(batch.src, batch.src_lengths)
        sentence = torch.repeat_interleave(batch.trg_lengths).to(device)
        loss -= float(log_probs[sentence, batch.targets].cpu().double().sum())
        targets += len(sentence)
    return loss / targets


def train(
    train_pairs: Pairs, val: Pairs, vocab: int, args, device,
    state: Path | None = None, settings: dict | None = None,
) -> tuple[np.ndarray, list[float]]:  # fmt: skip
    """β (vocab, vocab) of the best epoch; the validation loss after 0, 1, ... epochs.

    With a path ``state``, of a training state of ``settings``, from where it was stopped.
    """
    model = BagOfPieces(vocab, args.embed_dim).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.Adam(model.parameters(), fused=device.type != "mps")
    rng = np.random.default_rng(args.seed)
    starts = range(0, len(train_pairs), args.bsize)
    start = {"losses": [validation_loss(model, val, device)], "best": copy_of(model)}
    with Training(state, settings or {}, model, optimizer, len(starts), start) as training:
        for epoch in range(args.epochs):
            order = rng.permutation(len(train_pairs))
            losses, best = training.notes["losses"], training.notes["best"]
            if epoch < len(losses) - 1:
                continue
            progress = tqdm(
                starts[training.step - epoch * len(starts) :], unit="batch",
                desc=f"epoch {epoch + 1} of {args.epochs}", leave=epoch == args.epochs - 1,
                disable=not sys.stderr.isatty(),
            )  # fmt: skip
            for place in progress:
                examples = order[place : place + args.bsize]
                with training.update():
                    batch = train_pairs.batch(examples).to(device)
                    pieces = model.write_gradients(batch)
                    training.check_finite(model.linear.bias.grad.sum(), examples)
                    optimizer.step()
                    model.embedding.weight.grad[pieces] = 0
            loss = validation_loss(model, val, device)
            training.check_finite(torch.tensor(loss))
            if loss < min(losses):
                best = copy_of(model)
            training.notes = {"losses": [*losses, loss], "best": best}
    model.load_state_dict(training.notes["best"])
    return model.beta().cpu().numpy(), training.notes["losses"]


def copy_of(model: BagOfPieces) -> dict[str, torch.Tensor]:
    """The weights of the model, which later updates do not change."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def main(argv=None) -> None:
    args = parse_args(argv)
    set_seed(args.seed)
    device = setup_device(args.device, args.threads)

    dataset = load_dataset(args.dataset)
    settings = {
        "data": dataset.checksum,
        **{key: value for key, value in vars(args).items() if key not in HOW},
    }
    out = translation_beta_path(args.dataset, args.embed_dim)
    with locked(out):
        state = begin_output(out, settings, args.overwrite)
        if state is None:
            print(f"{out} is up to date; --overwrite trains it again")
            return
        beta, losses = train(
            dataset.train, dataset.val, dataset.vocab, args, device, state, settings
        )
        best_epoch = int(np.argmin(losses))
        write_pickle(out, beta)
        record_output(out, settings, {"best_epoch": best_epoch, "validation_losses": losses})
        state.unlink(missing_ok=True)
    print(
        f"{out}: {len(beta)} pieces, lowest validation loss {losses[best_epoch]:.4f} per target "
        f"after epoch {best_epoch} of {args.epochs}"
    )


if __name__ == "__main__":
    run_script(main)

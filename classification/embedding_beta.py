"""β^px: the KTIW of a bag-of-words classifier that knows no order and no attention (method A.1).

    python embedding_beta.py --dataset Furd --epochs 60 --lr 1.5e-4

The mean of the word embeddings of a sentence -> linear -> sigmoid, trained with Adam on the summed
binary cross-entropy of each batch. β[w] = E[w] . W at the end of the epoch with the lowest loss on
the test examples (the untrained state counts as the first). Reads the data, writes
outputs/{dataset}embedding{embed_dim}beta.pkl, an array (vocab,), and a .json record beside it. When
it is stopped, the same command goes on where it was (from a .state file beside the output).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from data import Split, canonical_name, load_dataset, require_both_classes
from torch.nn import functional as F
from tqdm import tqdm

from attention_dynamics.cli import RunError, count, run_script, script_parser, seed
from attention_dynamics.device import add_device_options, set_seed, setup_device
from attention_dynamics.runs.outputs import begin_output, record_output
from attention_dynamics.runs.paths import embedding_beta_path
from attention_dynamics.runs.records import locked
from attention_dynamics.runs.training import Training
from attention_dynamics.storage.files import write_pickle

# Options that decide how, not what, is computed.
HOW = ("overwrite", "device", "threads")


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as Furd, SMS or toy")
    parser.add_argument(
        "--bsize", type=count, default=64, help="sentences in a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=count, default=30, help="the paper's grid: 60 (default: %(default)s)"
    )
    parser.add_argument(
        "--embed_dim",
        type=count,
        default=256,
        help="width of the embeddings (default: %(default)s)",
    )
    parser.add_argument(
        "--test_set_size",
        type=count,
        default=4000,
        help="the epoch is chosen on this many first test examples (default: %(default)s)",
    )
    parser.add_argument(
        "--lr", type=float, default=0.0002, help="learning rate of Adam (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=seed, default=0, help="of weights and data order (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="train it again, from the start")
    add_device_options(parser)
    args = parser.parse_args(argv)
    if not 0 < args.lr < float("inf"):
        parser.error(f"--lr must be above 0, not {args.lr}")
    return args


class BagOfWords(torch.nn.Module):
    """score = W . mean_l E[x_l] + c."""

    def __init__(self, vocab: int, embed_dim: int):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocab, embed_dim)
        self.linear = torch.nn.Linear(embed_dim, 1)

    @torch.no_grad()
    def beta(self) -> torch.Tensor:
        """β[w] = E[w] . W, (vocab,) float32."""
        return self.embedding.weight @ self.linear.weight[0]

    @torch.no_grad()
    def write_gradients(
        self, ids: torch.Tensor, lengths: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Put the gradients of the summed cross-entropy of a batch into ``.grad`` (zero before).

        With r_i = sigmoid(score_i) - y_i and s_w = Σ_i r_i count_i(w) / length_i, they are s_w W
        for E[w], Σ_w s_w E[w] for W and Σ_i r_i for c: no sentence is ever averaged, and only the
        rows of the batch's words are touched.

        Args:
            ids: (tokens,) the batch's sentences one after another.
            lengths, labels: (batch,).

        Returns:
            (words,) the rows of E that now have a gradient.
        """
        words, place = ids.unique(return_inverse=True)
        sentence = torch.repeat_interleave(lengths)
        share = 1 / lengths[sentence]  # (tokens,)
        rows, weight = self.embedding.weight.index_select(0, words), self.linear.weight[0]
        votes = (rows @ weight)[place] * share
        score = self.linear.bias + torch.zeros_like(labels).index_add_(0, sentence, votes)
        residual = score.sigmoid() - labels
        strength = rows.new_zeros(len(words)).index_add_(0, place, share * residual[sentence])
        self.embedding.weight.grad.index_copy_(0, words, torch.outer(strength, weight))
        self.linear.weight.grad[0] = strength @ rows
        self.linear.bias.grad[0] = residual.sum()
        return words


@torch.no_grad()
def validation_loss(model: BagOfWords, split: Split, device: torch.device) -> float:
    """The summed binary cross-entropy over all examples of ``split``."""
    ids, lengths, labels = (part.to(device) for part in split.batch(np.arange(len(split))))
    sentence = torch.repeat_interleave(lengths)
    votes = model.beta()[ids] / lengths[sentence]
    score = model.linear.bias + torch.zeros_like(labels).index_add_(0, sentence, votes)
    return float(F.binary_cross_entropy_with_logits(score, labels, reduction="sum"))


def train(
    train_split: Split, val: Split, vocab: int, args, device,
    state: Path | None = None, settings: dict | None = None,
) -> tuple[np.ndarray, list[float]]:  # fmt: skip
    """β (vocab,) of the best epoch; the validation loss after 0, 1, ... epochs.

    With a path ``state``, of a training state of ``settings``, from where it was stopped.
    """
    model = BagOfWords(vocab, args.embed_dim).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=device.type != "mps")
    rng = np.random.default_rng(args.seed)
    per_epoch = -(-len(train_split) // args.bsize)
    start = {"losses": [validation_loss(model, val, device)], "best": model.beta()}
    with Training(state, settings or {}, model, optimizer, per_epoch, start) as training:
        for epoch in tqdm(range(args.epochs), unit="epoch", disable=not sys.stderr.isatty()):
            order = rng.permutation(len(train_split))
            losses, best = training.notes["losses"], training.notes["best"]
            if epoch < len(losses) - 1:
                continue
            done = training.step - epoch * per_epoch  # batches, before it was stopped
            train_epoch(training, train_split, order, args.bsize, done)
            loss = validation_loss(model, val, device)
            training.check_finite(torch.tensor(loss))
            if loss < min(losses):
                best = model.beta()
            training.notes = {"losses": [*losses, loss], "best": best}
    return training.notes["best"].cpu().numpy(), training.notes["losses"]


def train_epoch(training: Training, split: Split, order: np.ndarray, bsize: int, done: int) -> None:
    """An update on each batch of ``bsize`` sentences, in this order, but those ``done`` before."""
    model = training.model
    device = model.linear.bias.device
    ids, lengths, labels = (part.to(device) for part in split.batch(order))
    starts = range(0, len(order), bsize)
    tokens = [0, *lengths.cumsum(0).cpu()[bsize - 1 :: bsize].tolist(), len(ids)]
    for start in starts[done:]:
        some = slice(start, start + bsize)
        words_of = slice(tokens[start // bsize], tokens[start // bsize + 1])
        with training.update():
            words = model.write_gradients(ids[words_of], lengths[some], labels[some])
            training.check_finite(model.linear.bias.grad.sum(), order[some])
            training.optimizer.step()
            model.embedding.weight.grad[words] = 0


def main(argv=None) -> None:
    args = parse_args(argv)
    args.dataset = canonical_name(args.dataset)
    set_seed(args.seed)
    device = setup_device(args.device, args.threads)

    dataset = load_dataset(args.dataset)
    require_both_classes(dataset)
    val = dataset.test.take(range(min(args.test_set_size, len(dataset.test))))
    settings = {
        "data": dataset.checksum,
        **{key: value for key, value in vars(args).items() if key not in HOW},
    }
    out = embedding_beta_path(args.dataset, args.embed_dim)
    with locked(out):
        state = begin_output(out, settings, args.overwrite)
        if state is None:
            print(f"{out} is up to date; --overwrite trains it again")
            return
        vocab = len(dataset.vocabulary)
        try:
            beta, losses = train(dataset.train, val, vocab, args, device, state, settings)
        except RunError as error:
            raise RunError(f"{error}; --lr {args.lr:g} may be too large") from None
        best_epoch = int(np.argmin(losses))
        write_pickle(out, beta)
        record_output(out, settings, {"best_epoch": best_epoch, "validation_losses": losses})
        state.unlink(missing_ok=True)
    print(
        f"{out}: {len(beta)} words, lowest validation loss {losses[best_epoch] / len(val):.4f} "
        f"per example after epoch {best_epoch} of {args.epochs}"
    )


if __name__ == "__main__":
    run_script(main)

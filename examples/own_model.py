"""A model of your own, analyzed as the papers' LSTM: a small Transformer with attention pooling.

    cd classification
    python prepare_data.py --dataset toy
    python ../examples/own_model.py --dataset toy --name own_model
    python collect_classification_stats.py --datasets own_model --out_file results/own_model.pkl
    python plot_dynamics.py --dataset own_model

Trains the paper's seven runs (six normal seeds, one with uniform attention) on
data/{dataset}_*.json, computes α, β and Δ of every checkpoint and writes outputs/{name}_logs.pkl.
The data files are copied to data/{name}_*.json, where plot_dynamics.py finds the words.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "classification"))
from data import load_dataset

from attention_dynamics.analysis.dumping import sample_train
from attention_dynamics.analysis.own_model import add_checkpoint, create_logs, save
from attention_dynamics.cli import add_options, count, run_script, script_parser
from attention_dynamics.device import set_seed
from attention_dynamics.names import PAPER_SEEDS, PAPER_UNIFORM_SEED, UNIFORM

RUNS = {f"normal_{letter}": seed for letter, seed in zip("ABCDEF", PAPER_SEEDS, strict=True)}
RUNS[UNIFORM] = PAPER_UNIFORM_SEED
SAVES = (0, 10, 25, 50, 75, 100, 150, 200, 250)
BATCH, EVAL_BATCH = 32, 256


class TransformerClassifier(nn.Module):
    """score = Σ_l α_l β_l over the states of a one-layer Transformer encoder."""

    def __init__(self, vocab: int, longest: int, uniform: bool, hidden: int = 64):
        super().__init__()
        self.uniform = uniform
        self.embedding = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(longest, hidden)
        nn.init.normal_(self.position.weight, std=0.1)
        self.encoder = nn.TransformerEncoderLayer(
            hidden, nhead=4, dim_feedforward=2 * hidden, dropout=0.0, batch_first=True
        )
        self.attention = nn.Linear(hidden, 1)
        self.vote = nn.Linear(hidden, 1)

    def forward(self, ids: torch.Tensor, real: torch.Tensor, gates: torch.Tensor):
        """Score (batch,), α and β (batch, src_len) of padded ids; ``real`` is False at padding.

        ``gates`` (batch, src_len), all 1, multiply the token embeddings: Δ is the gradient there.
        """
        words = self.embedding(ids) * gates.unsqueeze(2)
        positions = self.position(torch.arange(ids.shape[1]))
        states = self.encoder(words + positions, src_key_padding_mask=~real)
        logits = torch.zeros_like(gates) if self.uniform else self.attention(states).squeeze(2)
        alpha = logits.masked_fill(~real, -torch.inf).softmax(dim=1)  # padding gets no attention
        beta = self.vote(states).squeeze(2)  # the score if all attention were on this token
        return (alpha * beta).sum(dim=1), alpha, beta


def padded(split, examples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids (batch, src_len), which of them are real tokens, and labels (batch,)."""
    rows = [torch.from_numpy(split.ids[i]) for i in examples]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    real = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows]).unsqueeze(1)
    return ids, real, torch.from_numpy(split.labels[examples].astype(np.float32))


def scores(model: TransformerClassifier, split) -> tuple[dict[str, list], np.ndarray]:
    """α, β and Δ of each example, (src_len,) each, and whether it is classified correctly."""
    found, correct = {"alpha": [], "beta": [], "grad": []}, []
    for start in range(0, len(split), EVAL_BATCH):
        ids, real, labels = padded(split, np.arange(start, min(start + EVAL_BATCH, len(split))))
        gates = torch.ones(ids.shape, requires_grad=True)
        score, alpha, beta = model(ids, real, gates)
        loss = F.binary_cross_entropy_with_logits(score, labels, reduction="sum")
        grad = -torch.autograd.grad(loss, gates)[0]  # positive: the token helps
        for kind, values in (("alpha", alpha), ("beta", beta), ("grad", grad)):
            found[kind] += [v[r].detach().numpy() for v, r in zip(values, real, strict=True)]
        correct.append(((score > 0) == (labels == 1)).numpy())
    return found, np.concatenate(correct)


def train(logs, run: str, seed: int, dataset, evaluated, num_val: int, steps: int) -> None:
    """Train one run and add its checkpoints, each before the update of its step."""
    set_seed(seed)
    longest = int(max(dataset.train.ids.lengths.max(), dataset.test.ids.lengths.max()))
    model = TransformerClassifier(len(dataset.vocabulary), longest, run == UNIFORM)
    optimizer = torch.optim.Adam(model.parameters())
    order = np.random.default_rng(seed)
    saves = {*SAVES, *range(0, steps, 250), steps - 1}
    for step in tqdm(range(steps), desc=run, disable=not sys.stderr.isatty()):
        if step in saves:
            found, correct = scores(model, evaluated)
            test_acc, train_acc = correct[:num_val].mean(), correct[num_val:].mean()
            add_checkpoint(logs, run, step, **found, test_acc=test_acc, train_acc=train_acc)
        ids, real, labels = padded(dataset.train, order.integers(len(dataset.train), size=BATCH))
        score, _, _ = model(ids, real, torch.ones(ids.shape))
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(score, labels).backward()
        optimizer.step()
    print(f"{run} (seed {seed}): test accuracy {test_acc:.3f} at step {steps - 1}")


def main(argv=None) -> None:
    parser = script_parser(__doc__)
    add_options(
        parser,
        dataset=(str, "toy", "dataset in data/"),
        name=(str, "own_model", "name of the logs"),
        steps=(count, 300, "updates"),
        test_set_size=(count, 400, "test examples evaluated, and as many training examples"),
    )
    args = parser.parse_args(argv)

    torch.set_num_threads(1)
    dataset = load_dataset(args.dataset)
    num_val = min(args.test_set_size, len(dataset.test))
    sample = sample_train(dataset.train, num_val)
    evaluated = dataset.test.take(range(num_val)).join(dataset.train.take(sample))
    src = [evaluated.ids[i] for i in range(len(evaluated))]
    index = [*range(num_val), *sample]
    logs = create_logs(args.name, src, evaluated.labels, num_val, index)
    for run, seed in RUNS.items():
        train(logs, run, seed, dataset, evaluated, num_val, args.steps)
    for split in ("train", "test") if args.name != args.dataset else ():
        shutil.copy(f"data/{args.dataset}_{split}.json", f"data/{args.name}_{split}.json")
    print(save(logs))


if __name__ == "__main__":
    run_script(main)

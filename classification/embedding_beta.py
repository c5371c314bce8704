"""Train β^px, what a bag-of-words classifier knows about words (docs/method.md, section 2.4).

    python embedding_beta.py --dataset Furd --epochs 60 --lr 1.5e-4

The mean of the word embeddings of a sentence -> linear -> sigmoid, without word order or attention,
trained with Adam on the summed binary cross-entropy of each batch. β[w] = E[w] . W after the epoch
with the lowest loss on the test examples; the untrained model counts as the first. Reads the data.
Writes outputs/{dataset}embedding{embed_dim}beta.pkl, an array (vocab,), and a .json record. The
same command resumes an interrupted training, from a .state file in outputs/.
"""

import argparse

import numpy as np
import torch
from data import Split, canonical_name, load_dataset
from torch.nn import functional as F

from attention_dynamics.cli import RunError, add_options, count, run_script, script_parser
from attention_dynamics.runs.embedding_baseline import (
    Baseline,
    add_embedding_options,
    write_baseline,
)
from attention_dynamics.runs.paths import embedding_beta_path


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as Furd, SMS or toy")
    add_embedding_options(parser)
    add_options(
        parser,
        test_set_size=(count, 4000, "number of leading test examples used to choose the epoch"),
        lr=(float, 0.0002, "learning rate of Adam; the paper: 5e-5 or 1.5e-4 (embedding_runs.sh)"),
    )
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

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Scores (batch,) of token ids (tokens,) of sentences with ``lengths`` (batch,)."""
        starts = lengths.cumsum(0) - lengths
        mean = F.embedding_bag(ids, self.embedding.weight, starts, mode="mean")
        return self.linear(mean).squeeze(1)


def build(train: Split, val: Split, vocab: int, embed_dim: int, device: torch.device) -> Baseline:
    """The untrained model, and its summed binary cross-entropy on training and all ``val``
    examples.
    """
    model = BagOfWords(vocab, embed_dim).to(device)

    def loss_on(split: Split, examples: np.ndarray) -> torch.Tensor:
        ids, lengths, labels = (part.to(device) for part in split.batch(examples))
        score = model(ids, lengths)
        return F.binary_cross_entropy_with_logits(score, labels, reduction="sum")

    @torch.no_grad()
    def validation_loss() -> float:
        return float(loss_on(val, np.arange(len(val))))

    return model, lambda examples: loss_on(train, examples), validation_loss


def main(argv=None) -> None:
    args = parse_args(argv)
    args.dataset = canonical_name(args.dataset)
    dataset = load_dataset(args.dataset)
    val = dataset.test.take(range(min(args.test_set_size, len(dataset.test))))
    path, vocab = embedding_beta_path(args.dataset, args.embed_dim), len(dataset.vocabulary)
    try:
        write_baseline(
            path, args, dataset.checksum, len(dataset.train),
            lambda device: build(dataset.train, val, vocab, args.embed_dim, device),
        )  # fmt: skip
    except RunError as error:
        if "diverged" not in str(error):
            raise
        raise RunError(f"{error}; --lr {args.lr:g} may be too large") from None


if __name__ == "__main__":
    run_script(main)

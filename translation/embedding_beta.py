"""Train β^px, what a bag-of-words translator knows about words (docs/method.md, section 3.4).

    python embedding_beta.py --dataset multi30k

The mean of the embeddings of the source pieces -> linear -> log-softmax over all pieces, without
word order or attention, trained with Adam on the summed negative log-probabilities of the target
pieces of each batch (those after <s>: departure 5). β is taken after the epoch with the lowest
validation loss; the untrained model counts as the first. Reads the data. Writes
outputs/{dataset}embedding{embed_dim}translation.pkl, an array (vocab, vocab): softmax(E W^T), row =
source piece, column = target piece; and a .json record. The same command resumes an interrupted
training, from a .state file in outputs/.
"""

import argparse

import numpy as np
import torch
from data import Batch, Pairs, load_dataset
from torch.nn import functional as F

from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.runs.embedding_baseline import (
    Baseline,
    add_embedding_options,
    write_baseline,
)
from attention_dynamics.runs.paths import translation_beta_path


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as multi30k or toy")
    add_embedding_options(parser)
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

    def forward(self, batch: Batch) -> torch.Tensor:
        """log p (trg_tokens,) of the targets after <s> of a batch (departure 5)."""
        src, lengths = batch.src, batch.src_lengths
        starts = (lengths.cumsum(0) - lengths).to(src.device)
        mean = F.embedding_bag(src, self.embedding.weight, starts, mode="mean")
        log_probs = self.linear(mean).log_softmax(dim=1)  # (batch, vocab)
        sentence = torch.repeat_interleave(batch.trg_lengths).to(src.device)
        return log_probs[sentence, batch.targets]


def build(train: Pairs, val: Pairs, vocab: int, embed_dim: int, device: torch.device) -> Baseline:
    """The untrained model, its loss (summed) on training pairs, and its mean loss on ``val``."""
    model = BagOfPieces(vocab, embed_dim).to(device)

    @torch.no_grad()
    def validation_loss() -> float:
        loss, targets = 0.0, 0
        for examples in np.array_split(np.arange(len(val)), -(-len(val) // 256)):
            log_probs = model(val.batch(examples).to(device))
            loss -= float(log_probs.cpu().double().sum())
            targets += len(log_probs)
        return loss / targets

    return model, lambda some: -model(train.batch(some).to(device)).sum(), validation_loss


def main(argv=None) -> None:
    args = parse_args(argv)
    dataset = load_dataset(args.dataset)
    path = translation_beta_path(args.dataset, args.embed_dim)
    write_baseline(
        path, args, dataset.checksum, len(dataset.train),
        lambda device: build(dataset.train, dataset.val, dataset.vocab, args.embed_dim, device),
    )  # fmt: skip


if __name__ == "__main__":
    run_script(main)

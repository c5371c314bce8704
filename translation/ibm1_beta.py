"""Train β^ibm1, the lexical translation table of IBM Model 1 (Brown et al. 1993), beside β^px.

    python ibm1_beta.py --dataset multi30k

A table t(target piece | source piece) without any neural network, trained by expectation
maximization on the training pairs. Every target piece (</s> included) is aligned with one of the
source pieces of its sentence (<s> and </s> included, in place of the model's empty word); before
the first iteration all alignments are equally likely. Reads the data. Writes
outputs/{dataset}_ibm1_beta.pkl, a sparse matrix (compressed rows: {"data", "indices", "indptr",
"shape"}; row = source piece, column = target piece, rows sum to 1), and a .json record with the
perplexity of the training targets before the first iteration and after each.
"""

import argparse
import sys
from itertools import pairwise

import numpy as np
from data import Pairs, load_dataset, token_pairs
from scipy.sparse import csr_array
from tqdm import tqdm

from attention_dynamics.cli import add_options, count, run_script, script_parser
from attention_dynamics.runs.outputs import output
from attention_dynamics.runs.paths import ibm1_beta_path

# Source-target token pairs in memory together.
_TOKEN_PAIRS = 1 << 22


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as multi30k or toy")
    add_options(parser, iterations=(count, 10, "iterations of expectation maximization"))
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an output that is up to date"
    )
    return parser.parse_args(argv)


def chunks(pairs: Pairs) -> list[Pairs]:
    """The pairs in parts of about ``_TOKEN_PAIRS`` token pairs."""
    sizes = np.cumsum(pairs.src.lengths * (pairs.trg.lengths - 1))
    part = sizes // _TOKEN_PAIRS
    bounds = np.flatnonzero(np.diff(part, prepend=-1, append=part[-1] + 1))
    return [pairs.take(range(start, stop)) for start, stop in pairwise(bounds)]


def train(pairs: Pairs, vocab: int, iterations: int) -> tuple[csr_array, list[float]]:
    """The table t (vocab, vocab), sparse; perplexity of the targets after 0, 1, ... iterations.

    The cells of the table that any sentence uses are numbered in order; each part of the corpus
    keeps the cell of each of its token pairs.
    """
    parts = chunks(pairs)
    used = np.empty(0, dtype=np.int64)
    for part in parts:
        src, trg, _ = token_pairs(part.src, part.trg)
        used = np.union1d(used, src * vocab + trg)
    cells = []
    for part in parts:
        src, trg, rows = token_pairs(part.src, part.trg)
        cells.append((np.searchsorted(used, src * vocab + trg).astype(np.int32), rows))
    source = used // vocab
    table = np.full(len(used), 1 / vocab)
    num_targets = int((pairs.trg.lengths - 1).sum())
    perplexities = []
    for iteration in tqdm(range(iterations + 1), unit="iteration", disable=not sys.stderr.isatty()):
        counts, loss = np.zeros(len(used)), 0.0
        for cell, rows in cells:
            share = table[cell]  # (token pairs,)
            total = np.add.reduceat(share, rows[:-1])  # (targets,)
            lengths = np.diff(rows)
            loss -= np.log(total / lengths).sum()
            share /= np.repeat(total, lengths)
            counts += np.bincount(cell, share, minlength=len(used))
        perplexities.append(float(np.exp(loss / num_targets)))
        if iteration < iterations:  # the last pass is for the perplexity only
            table = counts / np.bincount(source, counts)[source]
    indptr = np.searchsorted(source, np.arange(vocab + 1))
    columns = (used % vocab).astype(np.int32)
    return csr_array((table.astype(np.float32), columns, indptr), (vocab, vocab)), perplexities


def main(argv=None) -> None:
    args = parse_args(argv)
    dataset = load_dataset(args.dataset)
    settings = {"data": dataset.checksum, "dataset": args.dataset, "iterations": args.iterations}
    path = ibm1_beta_path(args.dataset)
    with output(path, settings, args.overwrite) as out:
        if out.is_current:
            print(f"{path} is up to date; --overwrite trains it again")
            return
        table, perplexities = train(dataset.train, dataset.vocab, args.iterations)
        indptr = table.indptr.astype(np.int64)
        content = {"data": table.data, "indices": table.indices, "indptr": indptr}
        out.write({**content, "shape": table.shape}, {"training_perplexities": perplexities})
    print(
        f"{path}: {table.nnz} pairs of pieces, training perplexity {perplexities[0]:.1f} before "
        f"and {perplexities[-1]:.1f} after {args.iterations} iterations"
    )


if __name__ == "__main__":
    run_script(main)

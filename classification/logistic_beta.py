"""Fit β^lr, the coefficients of a bag-of-words logistic regression (docs/method.md, section 2.4).

    python logistic_beta.py --dataset Furd

scikit-learn's logistic regression on word counts divided by sentence length, for a range of C. The
best accuracy on the first test_set_size test examples wins; ties go to the first. The counts are
sparse (departure 11: a fraction of the memory). As published, the solver stops at scikit-learn's
default tolerance, before the optimum for large C, and rounding decides where: coefficients of
sparse and dense counts can differ by several percent of the largest one. Reads the data. Writes
outputs/{dataset}_logistic_beta.pkl, an array (choices, vocab), and a .json record with the C of
each row: the published choice, then each other C whose accuracy is at most 0.01 below the best.
"""

import argparse
import sys
import warnings

import numpy as np
from data import Split, canonical_name, load_dataset
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from attention_dynamics.cli import add_options, count, run_script, script_parser
from attention_dynamics.runs.outputs import output
from attention_dynamics.runs.paths import logistic_beta_path

INVERSE_STRENGTHS = (
    1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5,
    1, 5, 10, 50, 100, 500, 1e3, 5e3, 1e4,
)  # fmt: skip

# How much lower the accuracy of the other values of C may be whose coefficients are stored as well.
_NEAR = 0.01 + 1e-9


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as Furd, SMS or toy")
    size = "number of leading test examples used to choose C"
    add_options(parser, test_set_size=(count, 4000, size))
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an output that is up to date"
    )
    return parser.parse_args(argv)


def word_shares(split: Split, vocab: int) -> csr_array:
    """``(examples, vocab)`` float64: the count of each word divided by the sentence's length.

    <bos> and <eos> count as words, as they do for every other reader of these sentences.
    """
    lengths = split.ids.lengths
    shares = np.repeat(1.0 / lengths, lengths)
    matrix = csr_array(
        (shares, split.ids.values, split.ids.offsets),
        shape=(len(split), vocab),
        copy=True,  # sum_duplicates sorts the indices in place
    )
    matrix.sum_duplicates()
    return matrix


def fit(train: Split, val: Split, vocab: int) -> tuple[np.ndarray, list[dict]]:
    """Coefficients ``(19, vocab)``, and accuracy and convergence, for each C."""
    train_shares, val_shares = word_shares(train, vocab), word_shares(val, vocab)
    coefficients, tried = [], []
    for strength in tqdm(INVERSE_STRENGTHS, unit="C", disable=not sys.stderr.isatty()):
        regression = LogisticRegression(C=strength, max_iter=1000)
        with warnings.catch_warnings():
            # Not converged after max_iter steps is part of the recipe; it is recorded instead.
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression.fit(train_shares, train.labels)
        accuracy = float(np.mean(regression.predict(val_shares) == val.labels))
        coefficients.append(regression.coef_[0])
        converged = bool(regression.n_iter_[0] < regression.max_iter)
        tried.append({"C": strength, "accuracy": accuracy, "converged": converged})
    return np.array(coefficients), tried


def choices(accuracies: list[float]) -> list[int]:
    """Positions of the best accuracy (the first of equals) and then of others up to 0.01 lower."""
    best = int(np.argmax(accuracies))
    near = [i for i, value in enumerate(accuracies) if value >= accuracies[best] - _NEAR]
    return [best, *(i for i in near if i != best)]


def main(argv=None) -> None:
    args = parse_args(argv)
    args.dataset = canonical_name(args.dataset)

    dataset = load_dataset(args.dataset)
    settings = {
        "dataset": args.dataset,
        "data": dataset.checksum,
        "test_set_size": args.test_set_size,
    }
    path = logistic_beta_path(args.dataset)
    with output(path, settings, args.overwrite) as out:
        if out.is_current:
            print(f"{path} is up to date; --overwrite fits it again")
            return
        val = dataset.test.take(range(min(args.test_set_size, len(dataset.test))))
        coefficients, tried = fit(dataset.train, val, len(dataset.vocabulary))
        chosen = choices([row["accuracy"] for row in tried])
        best, strengths = tried[chosen[0]], [tried[i]["C"] for i in chosen]
        out.write(coefficients[chosen], {"tried": tried, "best": best, "C": strengths})
    print(
        f"{path}: {coefficients.shape[1]} words, C = {best['C']:g}, validation accuracy "
        f"{best['accuracy']:.4f} (within 0.01 also: {strengths[1:]})"
    )


if __name__ == "__main__":
    run_script(main)

"""The toy corpus knows its evidence words: how often do α and β find them?"""

from pathlib import Path

import numpy as np
from scipy.stats import hypergeom

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.names import GOLD, UNIFORM
from attention_dynamics.storage.files import read_json


def planted_mask(dataset: str, logs: Logs) -> np.ndarray | None:
    """``(scores,)`` bool: is this token a planted word? None if the dataset has no truth."""
    path = Path("data") / f"{dataset}_truth.json"
    if not path.exists():
        return None
    truth = read_json(path, "planted truth")
    marked = np.zeros(logs.num_scores, dtype=bool)
    for split, file_split in (("val", "test"), ("train", "train")):
        try:
            positions = truth["positions"][file_split]
            for example in logs.examples(split):
                start, stop = logs.src.offsets[example : example + 2]
                # Positions count words; the source begins with <bos>.
                words = np.array(positions[int(logs.index[example])], dtype=np.int64)
                if ((words < 0) | (words >= stop - start - 2)).any():
                    raise IndexError
                marked[start + 1 + words] = True
        except (KeyError, IndexError, TypeError, ValueError):
            raise InputError(
                f"planted truth {path} does not fit the logs of {dataset}: prepare, train and dump "
                "the dataset again"
            ) from None
    return marked


def planted_rows(dataset: str, logs: Logs) -> list[dict]:
    """A row per checkpoint: the fraction of test sentences with a planted word in the top 5%.

    For α of the gold run and for the votes β^uf of the uniform run, beside the exact expectation of
    a random order; sentences without planted words are left out. Empty if the dataset has no
    truth.
    """
    marked = planted_mask(dataset, logs)
    if marked is None:
        return []
    mask = logs.cut(marked, "val")
    if not mask.values.any():
        return []
    sign = np.repeat(2 * np.asarray(logs.trg) - 1, logs.src.lengths)
    chance = _chance(mask)
    rows = []
    for t in logs.iterations(GOLD):
        row = {
            "iteration": t,
            "α of normal_A": hit_rate(logs.scores(GOLD, t, "alpha", "val"), mask),
        }
        beta = logs.arrays.get((UNIFORM, t, "beta"))
        row["β of uniform"] = None if beta is None else hit_rate(logs.cut(beta * sign, "val"), mask)
        rows.append({**row, "chance": chance})
    return rows


def hit_rate(scores: Ragged, mask: Ragged) -> float:
    """Fraction of the rows with planted words that have one in the top 5% of the scores.

    Top 5%: the ceil(0.05 n) highest of n scores; of equal ones the earlier.
    """
    row = np.repeat(np.arange(len(scores)), scores.lengths)
    order = np.lexsort((-scores.values, row))  # stable: equal scores stay in order
    place = np.arange(len(order)) - np.repeat(scores.offsets[:-1], scores.lengths)
    top = place < np.repeat(np.ceil(0.05 * scores.lengths), scores.lengths)
    hit = np.logical_or.reduceat(mask.values[order] & top, mask.offsets[:-1])
    some = np.logical_or.reduceat(mask.values, mask.offsets[:-1])
    return float(hit[some].mean())


def _chance(mask: Ragged) -> float:
    """Expectation of :func:`hit_rate` for random orders: 1 - P(no planted word among k of n)."""
    n = mask.lengths
    m = np.add.reduceat(mask.values, mask.offsets[:-1], dtype=np.int64)
    k = np.ceil(0.05 * n)
    n, m, k = n[m > 0], m[m > 0], k[m > 0]
    return float((1 - hypergeom.pmf(0, n, m, k)).mean())

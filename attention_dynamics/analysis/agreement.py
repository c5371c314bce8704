"""The metrics of agreement, top 5% match and Kendall's tau (docs/method.md, section 1.2).

Metrics, per row of length n:

- ``top 5% match``: 1 if fewer than ceil(0.05 n) entries of b are strictly greater than
b[argmax(a)].
- ``kendall tau``: Kendall's tau-b; NaN if all values of one vector are equal. Means leave NaN out.
"""

import numpy as np

from attention_dynamics.analysis.kendall import kendall_tau
from attention_dynamics.analysis.ragged import Ragged


def agreement(metric: str, first: Ragged, second: Ragged) -> np.ndarray:
    """``(rows,)`` float64: the metric between each row of ``first`` and of ``second``.

    Raises ValueError if the metric is unknown or the rows differ in length.
    """
    if metric not in _FUNCTIONS:
        raise ValueError(f"unknown metric {metric!r} (expected one of {', '.join(_FUNCTIONS)})")
    return _FUNCTIONS[metric][0](first, second)


def top_match(first: Ragged, second: Ragged) -> np.ndarray:
    """``(rows,)`` 0.0 or 1.0: does the arg-max of ``first`` lie in the top 5% of ``second``?

    Not symmetric. The first of several maxima counts. Raises ValueError if the rows differ in
    length.
    """
    first.check_same_rows(second)
    # The gold run comes first, so its cached lengths and maxima serve every comparison.
    lengths = first.lengths
    chosen = second.values[first.argmax]
    greater = second.values > np.repeat(chosen, lengths)
    return (first.counts(greater) < np.ceil(0.05 * lengths)).astype(np.float64)


def shuffled(scores: Ragged, seed: int) -> Ragged:
    """Each row of ``scores`` in a random order: the shuffle baseline Â (departure 8: seeded)."""
    row = np.repeat(np.arange(len(scores)), scores.lengths)
    # The row in the upper half of one number, chance in the lower.
    order = np.argsort((row << 32) + np.random.default_rng(seed).integers(1 << 32, size=len(row)))
    return Ragged(scores.values[order], scores.offsets)


def expected_by_chance(metric: str, scores: Ragged) -> np.ndarray:
    """``(rows,)``: the exact expectation of the agreement with a random order of ``scores``."""
    return _FUNCTIONS[metric][1](scores)


def _expected_tau(scores: Ragged) -> np.ndarray:
    """0 by symmetry; NaN where tau is undefined."""
    low = np.minimum.reduceat(scores.values, scores.offsets[:-1])
    high = np.maximum.reduceat(scores.values, scores.offsets[:-1])
    return np.where(low < high, 0.0, np.nan)


def _expected_top_match(scores: Ragged) -> np.ndarray:
    """The fraction of entries with fewer than ceil(0.05 n) strictly greater ones in their row.

    Without ties that is ceil(0.05 n) / n.
    """
    lengths = scores.lengths
    row, column = np.repeat(np.arange(len(scores)), lengths), np.arange(len(scores.values))
    descending = scores.values[np.lexsort((-scores.values, row))]
    # In descending order, the position of the first of equal values is its number of greater ones.
    new = np.append(True, (np.diff(descending) != 0) | (np.diff(row) != 0))
    greater = np.maximum.accumulate(np.where(new, column, 0)) - scores.offsets[row]
    return scores.counts(greater < np.ceil(0.05 * lengths)[row]) / lengths


# Metric -> its agreement, and the expectation of that under a random order.
_FUNCTIONS = {
    "top 5% match": (top_match, _expected_top_match),
    "kendall tau": (kendall_tau, _expected_tau),
}

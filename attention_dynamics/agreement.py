"""Agreement A(a, b) between score vectors: all rows of two ragged arrays at once (method A).

Metrics, per row of length n:

- ``top 5% match``: 1 if fewer than ceil(0.05 n) entries of b are strictly greater than
b[argmax(a)].
- ``kendall tau``: Kendall's tau-b; NaN where one of the vectors is all ties, and left out of means.
"""

import numpy as np

from attention_dynamics.ragged import Ragged

METRICS = ("top 5% match", "kendall tau")

# kendall_tau compares a block of positions with the rest of their rows, this many pairs at once: as
# much as stays in the processor's cache.
_BLOCK = 16
_PAIRS_AT_ONCE = 1 << 17


def agreement(metric: str, first: Ragged, second: Ragged) -> np.ndarray:
    """``(rows,)`` float64: the metric between each row of ``first`` and of ``second``."""
    if metric == "top 5% match":
        return top_match(first, second)
    if metric == "kendall tau":
        return kendall_tau(first, second)
    raise ValueError(f"unknown metric {metric!r}; there are {', '.join(METRICS)}")


def top_match(first: Ragged, second: Ragged) -> np.ndarray:
    """``(rows,)`` 0.0 or 1.0: does the arg-max of ``first`` lie in the top 5% of ``second``?

    Not symmetric. Of several maxima the first counts.
    """
    chosen = second.values[_argmax(first)]
    greater = second.values > np.repeat(chosen, second.lengths)
    return (_row_sums(greater, second) < _top_size(second.lengths)).astype(np.float64)


def _top_size(lengths: np.ndarray) -> np.ndarray:
    return np.ceil(0.05 * lengths)


def _row_sums(values: np.ndarray, like: Ragged) -> np.ndarray:
    return np.add.reduceat(values, like.offsets[:-1], dtype=np.int64)


def _argmax(scores: Ragged) -> np.ndarray:
    """``(rows,)``: where in ``scores.values`` each row has its (first) maximum."""
    highest = np.maximum.reduceat(scores.values, scores.offsets[:-1])
    places = np.flatnonzero(scores.values == np.repeat(highest, scores.lengths))
    return places[np.searchsorted(places, scores.offsets[:-1])]


def kendall_tau(first: Ragged, second: Ragged) -> np.ndarray:
    """``(rows,)`` float64: tau-b of each row; NaN where undefined (length 1, or all values equal).

    Rows of similar length are padded and counted together; the integers behind each tau are exact.
    """
    taus = np.full(len(first), np.nan)
    lengths = first.lengths
    by_length = np.argsort(lengths, kind="stable")
    start = int(np.searchsorted(lengths[by_length], 2))
    while start < len(by_length):
        # A slice whose widest row keeps the comparisons of one block within the cache.
        stop = start + max(1, _PAIRS_AT_ONCE // (_BLOCK * int(lengths[by_length[start]])))
        rows = by_length[start:stop]
        taus[rows] = _tau_b(_padded(first, rows), _padded(second, rows), lengths[rows])
        start = stop
    return taus


def _padded(scores: Ragged, rows: np.ndarray) -> np.ndarray:
    """Some rows as ``(rows, longest)``, filled up with +inf."""
    lengths = scores.lengths[rows]
    column = np.arange(lengths.max())
    real = column < lengths[:, None]
    padded = np.full(real.shape, np.inf, dtype=scores.values.dtype)
    padded[real] = scores.values[(scores.offsets[rows][:, None] + column)[real]]
    return padded


def _tau_b(a: np.ndarray, b: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """tau-b of the first ``lengths`` entries of each row, ``(rows, width)`` both (Knight 1966).

    With positions ordered by a, then b, the discordant pairs are the inversions left in b.
    """
    width = a.shape[1]
    rank_a, ties_a = _ranks_and_ties(a, lengths)
    rank_b, ties_b = _ranks_and_ties(b, lengths)
    # One sortable number per position; padding has the highest rank in both, so it stays last.
    joint = rank_a.astype(np.int64) * width + rank_b
    joint.sort(axis=1)
    ties_both = _tied_pairs(joint, lengths) if ties_a.any() and ties_b.any() else 0
    discordant = _inversions((joint % width).astype(np.int16 if width < 2**15 else np.int32))
    pairs = lengths * (lengths - 1) // 2
    score = pairs - ties_a - ties_b + ties_both - 2 * discordant
    with np.errstate(invalid="ignore", divide="ignore"):
        return score / np.sqrt((pairs - ties_a).astype(float)) / np.sqrt(pairs - ties_b)


def _ranks_and_ties(values: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dense ranks along each row, ``(rows, width)``, and each row's number of tied pairs."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    rising = np.zeros(values.shape, dtype=np.int32)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=rising[:, 1:])
    ranks = np.empty_like(rising)
    np.put_along_axis(ranks, order, rising, axis=1)
    if np.array_equal(rising[np.arange(len(lengths)), lengths - 1], lengths - 1):
        return ranks, np.zeros(len(lengths), dtype=np.int64)
    return ranks, _tied_pairs(ordered, lengths)


def _tied_pairs(ordered: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """``(rows,)``: pairs of equal values among the first ``lengths`` of each ordered row."""
    column = np.arange(ordered.shape[1])
    new = np.ones(ordered.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first_equal = np.maximum.accumulate(np.where(new, column, 0), axis=1)
    return np.where(column < lengths[:, None], column - first_equal, 0).sum(axis=1)


def _inversions(values: np.ndarray) -> np.ndarray:
    """``(rows,)``: pairs i < j with values[i] > values[j]; a block against all after it."""
    rows, width = values.shape
    total = np.zeros(rows, dtype=np.int64)
    after = np.triu(np.ones((_BLOCK, _BLOCK), dtype=bool), 1)
    for start in range(0, width, _BLOCK):
        stop = min(start + _BLOCK, width)
        greater = values[:, start:stop, None] > values[:, None, start:]  # (rows, block, rest)
        greater[:, :, : stop - start] &= after[: stop - start, : stop - start]
        # At most _BLOCK ones meet in a sum: they fit in a byte, which adds fastest.
        total += greater.view(np.uint8).sum(axis=1, dtype=np.uint8).sum(axis=1, dtype=np.int64)
    return total


def shuffled(scores: Ragged, seed: int) -> Ragged:
    """Each row of ``scores`` in a random order: the shuffle baseline Â (departure 8: seeded)."""
    keys = np.random.default_rng(seed).random(len(scores.values))
    order = np.lexsort((keys, np.repeat(np.arange(len(scores)), scores.lengths)))
    return Ragged(scores.values[order], scores.offsets)


def expected_by_chance(metric: str, scores: Ragged) -> np.ndarray:
    """``(rows,)``: the exact expectation of the agreement with a random order of ``scores``.

    For the top 5% match it is the share of entries with fewer than ceil(0.05 n) strictly greater
    ones (ceil(0.05 n) / n without ties); for Kendall's tau it is 0 where tau is defined, by
    symmetry.
    """
    if metric == "kendall tau":
        low = np.minimum.reduceat(scores.values, scores.offsets[:-1])
        high = np.maximum.reduceat(scores.values, scores.offsets[:-1])
        return np.where(low < high, 0.0, np.nan)
    lengths = scores.lengths
    row = np.repeat(np.arange(len(scores)), lengths)
    order = np.lexsort((-scores.values, row))
    falling = scores.values[order]
    # In falling order the first of equal values has as many greater entries as its place says.
    new = np.ones(len(falling), dtype=bool)
    new[1:] = (falling[1:] != falling[:-1]) | (row[1:] != row[:-1])
    place = np.arange(len(falling)) - np.repeat(scores.offsets[:-1], lengths)
    greater = np.maximum.accumulate(np.where(new, np.arange(len(falling)), 0))
    greater = place[greater]
    return _row_sums(greater < np.repeat(_top_size(lengths), lengths), scores) / lengths


def bootstrap_interval(
    per_row: np.ndarray, example: np.ndarray, seed: int, resamples: int = 1000
) -> tuple[float, float]:
    """The 95% percentile interval of a mean over rows, by resampling whole examples.

    Args:
        per_row: ``(rows,)`` agreements, NaN left out.
        example: ``(rows,)`` which example each row belongs to (rows of one sentence stay together).
        seed: of the resampling.
        resamples: how many.

    Returns:
        (low, high); (nan, nan) when no agreement is defined.
    """
    defined = ~np.isnan(per_row)
    if not defined.any():
        return float("nan"), float("nan")
    _, group = np.unique(example[defined], return_inverse=True)
    sums = np.bincount(group, per_row[defined])
    counts = np.bincount(group)
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    for number in range(resamples):
        drawn = rng.integers(0, len(sums), len(sums))
        means[number] = sums[drawn].sum() / counts[drawn].sum()
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)

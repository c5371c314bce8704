"""Agreement A(a, b) between score vectors: all rows of two ragged arrays at once (method A).

Metrics, per row of length n:

- ``top 5% match``: 1 if fewer than ceil(0.05 n) entries of b are strictly greater than
b[argmax(a)].
- ``kendall tau``: Kendall's tau-b; NaN where one of the vectors is all ties, and left out of means.
"""

import numpy as np

from attention_dynamics.analysis.ragged import Ragged, batches_by_length

# Work is cut into slices of about this many scores, so that what is in between stays in the cache.
_SCORES_AT_ONCE = 1 << 13

# _inversions compares pairs directly within blocks of at most this many positions.
_BLOCK = 16


def agreement(metric: str, first: Ragged, second: Ragged) -> np.ndarray:
    """``(rows,)`` float64: the metric between each row of ``first`` and of ``second``."""
    if metric not in _FUNCTIONS:
        raise ValueError(f"unknown metric {metric!r} (expected one of {', '.join(_FUNCTIONS)})")
    return _FUNCTIONS[metric][0](first, second)


def top_match(first: Ragged, second: Ragged) -> np.ndarray:
    """``(rows,)`` 0.0 or 1.0: does the arg-max of ``first`` lie in the top 5% of ``second``?

    Not symmetric. Of several maxima the first counts.
    """
    # The gold run comes first: what is asked of its rows is kept from one comparison to the next.
    lengths = first.lengths
    chosen = second.values[first.argmax]
    greater = second.values > np.repeat(chosen, lengths)
    return (first.counts(greater) < _top_size(lengths)).astype(np.float64)


def _top_size(lengths: np.ndarray) -> np.ndarray:
    return np.ceil(0.05 * lengths)


def kendall_tau(first: Ragged, second: Ragged) -> np.ndarray:
    """``(rows,)`` float64: tau-b of each row; NaN where undefined (length 1, or all values equal).

    Rows of similar length are padded and counted together; the integers behind each tau are exact.
    """
    taus = np.full(len(first), np.nan)
    lengths = first.lengths
    for rows in batches_by_length(lengths, len(first), _SCORES_AT_ONCE):
        rows = rows[lengths[rows] > 1]
        if len(rows):
            taus[rows] = _tau_b(_padded(first, rows), _padded(second, rows), lengths[rows])
    return taus


def _padded(scores: Ragged, rows: np.ndarray) -> np.ndarray:
    """Some rows as ``(rows, longest)``, filled up with +inf."""
    lengths = scores.lengths[rows]
    column = np.arange(lengths.max())
    real = column < lengths[:, None]
    places = scores.offsets[rows][:, None] + column
    padded = scores.values.take(places, mode="clip")
    padded[~real] = np.inf
    return padded


def _tau_b(a: np.ndarray, b: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """tau-b of the first ``lengths`` entries of each row, ``(rows, width)`` both (Knight 1966).

    With positions ordered by a, then b, the discordant pairs are the inversions left in b.
    """
    rows, width = a.shape
    order_a, rank_a, ties_a = _order(a, lengths)
    order_b, rank_b, ties_b = _order(b, lengths)
    base = np.arange(rows)[:, None] * width
    rank_of_place = np.empty(rows * width, dtype=np.int32)
    rank_of_place[(order_b + base).ravel()] = rank_b.ravel()
    b_by_a = rank_of_place.take(order_a + base)
    ties_both = 0
    if ties_a.any():
        joint = rank_a.astype(np.int64) * width + b_by_a
        joint.sort(axis=1)
        b_by_a = (joint % width).astype(np.int32)
        if ties_b.any():
            ties_both = _tied_pairs(joint, lengths)
    pairs = lengths * (lengths - 1) // 2
    score = pairs - ties_a - ties_b + ties_both - 2 * _inversions(b_by_a)
    with np.errstate(invalid="ignore", divide="ignore"):
        return score / np.sqrt((pairs - ties_a).astype(float)) / np.sqrt(pairs - ties_b)


def _order(values: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Along each row: the places by rising value, the dense ranks in that order, the tied pairs.

    Returns:
        order ``(rows, width)``, ranks ``(rows, width)`` int32, pairs of equal values ``(rows,)``.
    """
    if values.dtype == np.float32:
        # Sorting one integer that holds value and place is faster than argsort.
        joint = _rising_bits(values).astype(np.int64) << 32
        joint |= np.arange(values.shape[1])
        joint.sort(axis=1)
        order = joint & 0xFFFFFFFF
        ordered = joint >> 32
    else:
        order = np.argsort(values, axis=1)
        ordered = np.take_along_axis(values, order, axis=1)
    ranks = np.zeros(values.shape, dtype=np.int32)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=ranks[:, 1:])
    if np.array_equal(ranks[np.arange(len(lengths)), lengths - 1], lengths - 1):
        return order, ranks, np.zeros(len(lengths), dtype=np.int64)
    return order, ranks, _tied_pairs(ordered, lengths)


def _rising_bits(values: np.ndarray) -> np.ndarray:
    """int32 of the same shape as float32 ``values``: rises where they rise, equal where equal.

    The bits of floats do so once those of negative ones are turned round.
    """
    bits = (values + np.float32(0)).view(np.int32)  # + 0.0 makes -0.0 a 0.0
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    return bits


def _tied_pairs(ordered: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """``(rows,)``: pairs of equal values among the first ``lengths`` of each ordered row."""
    column = np.arange(ordered.shape[1])
    new = np.ones(ordered.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first_equal = np.maximum.accumulate(np.where(new, column, 0), axis=1)
    return np.where(column < lengths[:, None], column - first_equal, 0).sum(axis=1)


def _inversions(values: np.ndarray) -> np.ndarray:
    """``(rows,)``: pairs i < j with values[i] > values[j], of int32 ranks ``(rows, width)``.

    As merge sort counts them: first within small blocks, then between the halves of larger ones.
    """
    rows, width = values.shape
    levels = max(0, int(width - 1).bit_length() - _BLOCK.bit_length() + 1)
    block = -(-width >> levels)
    padded = np.full((rows, block << levels), width, dtype=np.int32)  # no rank is as high
    padded[:, :width] = values
    within = np.ascontiguousarray(padded.reshape(-1, block).T)
    if width < 2**15:
        within = within.astype(np.int16)
    count = np.zeros(within.shape[1], dtype=np.int64)
    for place in range(block - 1):
        count += (within[place] > within[place + 1 :]).sum(axis=0, dtype=np.uint8)
    total = count.reshape(rows, -1).sum(axis=1)
    padded *= 2
    half = block
    while half < padded.shape[1]:
        # Sorted together, an element of the left half stands as many places later than among its
        # own as there are smaller ones in the right half. The lowest bit says "right", so that of
        # equal ones the left come first.
        keyed = padded.reshape(-1, 2, half).copy()
        keyed[:, 1] |= 1
        keyed = keyed.reshape(rows, -1, 2 * half)
        keyed.sort(axis=2)
        places_of_left = ((keyed & 1) ^ 1).astype(np.float64) @ np.arange(2.0 * half)
        total += places_of_left.sum(axis=1).astype(np.int64)
        total -= keyed.shape[1] * (half * (half - 1) // 2)
        half *= 2
    return total


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
    row = np.repeat(np.arange(len(scores)), lengths)
    if scores.values.dtype == np.float32:
        # One sortable number for rising row and, in it, falling value.
        falling = (row << 32) - _rising_bits(scores.values)
        falling.sort()
    else:
        falling = scores.values[np.lexsort((-scores.values, row))]
    # In falling order the first of equal values has as many greater entries as its place says.
    new = np.ones(len(falling), dtype=bool)
    new[1:] = (falling[1:] != falling[:-1]) | (row[1:] != row[:-1])
    place = np.arange(len(falling)) - np.repeat(scores.offsets[:-1], lengths)
    greater = np.maximum.accumulate(np.where(new, np.arange(len(falling)), 0))
    greater = place[greater]
    return scores.counts(greater < np.repeat(_top_size(lengths), lengths)) / lengths


# Metric -> its agreement, and the expectation of that under a random order.
_FUNCTIONS = {
    "top 5% match": (top_match, _expected_top_match),
    "kendall tau": (kendall_tau, _expected_tau),
}


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

"""Ragged arrays: many vectors of different lengths as one array of values and one of offsets."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Ragged:
    """Score vectors, concatenated.

    Attributes:
        values: ``(total,)``.
        offsets: ``(rows + 1,)`` int64; row i is ``values[offsets[i]:offsets[i + 1]]``.
    """

    values: np.ndarray
    offsets: np.ndarray

    def __post_init__(self):
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.values):
            ends = f"{self.offsets[0]} to {self.offsets[-1]}"
            raise ValueError(f"offsets run from {ends}, but there are {len(self.values)} values")

    @classmethod
    def from_rows(cls, rows: list) -> "Ragged":
        """Join ``rows``, each ``(length,)``."""
        return cls(np.concatenate([np.asarray(row) for row in rows]), offsets_of(map(len, rows)))

    @cached_property
    def lengths(self) -> np.ndarray:
        """``(rows,)`` int64."""
        return np.diff(self.offsets)

    @cached_property
    def argmax(self) -> np.ndarray:
        """``(rows,)``: position in ``values`` of the (first) maximum of each row.

        Cached: the gold run is compared with every iteration of every other run.
        """
        highest = np.maximum.reduceat(self.values, self.offsets[:-1])
        places = np.flatnonzero(self.values == np.repeat(highest, self.lengths))
        return places[np.searchsorted(places, self.offsets[:-1])]

    def counts(self, marked: np.ndarray) -> np.ndarray:
        """``(rows,)`` int64: the number of True values of each row in ``marked`` (total,) bool."""
        return np.add.reduceat(marked, self.offsets[:-1], dtype=np.int64)

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Positions in ``values`` of the entries of some rows, row after row."""
        lengths = self.lengths[rows]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(self.offsets[rows], lengths) + within

    def check_same_rows(self, other: "Ragged") -> None:
        """Raise ValueError unless ``other`` has rows of the same lengths."""
        if not np.array_equal(self.offsets, other.offsets):
            raise ValueError("the rows of the two score arrays differ in number or length")

    def take(self, rows) -> "Ragged":
        """The given rows, in that order."""
        rows = np.asarray(rows, dtype=np.int64)
        return Ragged(self.values[self.places(rows)], offsets_of(self.lengths[rows]))

    def join(self, other: "Ragged") -> "Ragged":
        """These rows, then those of ``other``."""
        values = np.concatenate([self.values, other.values])
        return Ragged(values, np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]))

    @property
    def rest(self) -> np.ndarray:
        """All values except the first of each row."""
        return np.delete(self.values, self.offsets[:-1])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.offsets[row] : self.offsets[row + 1]]


def offsets_of(lengths) -> np.ndarray:
    """``(rows + 1,)`` int64 offsets of rows with these lengths."""
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, dtype=np.int64))]).astype(np.int64)


def batches_by_length(lengths: np.ndarray, most_rows: int, most_values: int) -> list[np.ndarray]:
    """The rows, longest first, in batches of at most ``most_rows``.

    A batch padded to its longest row holds at most ``most_values`` (or is a single row).
    """
    order = np.argsort(lengths, kind="stable")[::-1]
    batches, start = [], 0
    while start < len(order):
        size = max(1, min(most_rows, most_values // int(lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches

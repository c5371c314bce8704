"""What the readers of the datasets share: examples, splits, finding files, labels."""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from attention_dynamics.cli import InputError
from attention_dynamics.preparation import ReadReport
from attention_dynamics.storage.archives import Source

# The fraction of test examples if a distribution defines no split.
TEST_FRACTION = 0.2


class Example(NamedTuple):
    """One text with its label, 0 or 1, in the split "train" or "test"."""

    split: str
    text: str
    label: int


# The complete distributions of the papers' tasks: split ("all" if the split is drawn here) ->
# examples of label 0 and of label 1.
FULL: dict[str, dict[str, tuple[int, int]]] = {
    "IMDB": {"train": (12500, 12500), "test": (12500, 12500)},
    "Furd": {"train": (3310, 3610), "test": (912, 909)},
    "AG_News": {"train": (30000, 30000), "test": (1900, 1900)},
    "Newsgroups": {"train": (597, 600), "test": (397, 399)},
    "Yelp": {"train": (280000, 280000), "test": (19000, 19000)},
    "Amzn": {"train": (1800000, 1800000), "test": (200000, 200000)},
    "SMS": {"all": (4827, 747)},
}


def shuffled(items: list, seed: int) -> list:
    """``items`` in the random order of ``seed``."""
    return [items[index] for index in np.random.default_rng(seed).permutation(len(items))]


def split_by_seed(items: list, seed: int, report: ReadReport) -> Iterator[tuple[str, object]]:
    """("train" or "test", item) in the given order; ``TEST_FRACTION``, drawn by seed, are test."""
    report.notes.append(
        f"no split is defined: {TEST_FRACTION:.0%} of the rows, drawn with seed {seed}, are the "
        "test set"
    )
    order = np.random.default_rng(seed).permutation(len(items))
    test = set(order[: round(TEST_FRACTION * len(items))].tolist())
    for index, item in enumerate(items):
        yield ("test" if index in test else "train"), item


def split_files(source: Source, dataset: str, suffixes: str, expected: str) -> dict[str, str]:
    """{file name: split} of the train and the test file; InputError if one is absent or not unique.

    Args:
        source: the distribution.
        dataset: its name.
        suffixes: of the files, as a regular expression.
        expected: the files, in words.
    """
    names = {}
    for split in ("train", "test"):
        pattern = re.compile(rf"(?:^|/){split}\.(?:{suffixes})$", re.IGNORECASE)
        matching = [name for name in source.names if pattern.search(name)]
        if len(matching) > 1:
            raise InputError(
                f"source {source.path} holds more than one {split} file ({', '.join(matching)}); "
                "give the directory of one of them"
            )
        if not matching:
            raise source.not_recognized(dataset, expected)
        names[matching[0]] = split
    return names


def label_of(value: str, accepted: dict[str, int | None], where: str, number: int) -> int | None:
    """The label that ``value`` stands for; InputError, which names file and line, for others."""
    if value not in accepted:
        raise unknown_label(value, ", ".join(accepted), where, number)
    return accepted[value]


def unknown_label(value: str, accepted: str, where: str, number: int) -> InputError:
    """The error of a label that is not among the accepted ones."""
    return InputError(
        f"{where} line {number} has the label {value[:60]!r}; accepted are {accepted}"
    )


def peeked(items: Iterator) -> tuple[Iterator, object]:
    """All items, and the first one (None if there is none)."""
    first = next(items, None)
    return itertools.chain([] if first is None else [first], items), first

"""What the readers of the data sets share: examples, findings, splits, choosing files, labels."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source

# Where a distribution defines no split, this share is the test set.
TEST_SHARE = 0.2


class Example(NamedTuple):
    """One text with its label, 0 or 1, in the split "train" or "test"."""

    split: str
    text: str
    label: int


Counts = dict[str, tuple[int, int]]


@dataclass
class Findings:
    """What came up while reading.

    Attributes:
        expected: split ("train", "test", or "all" where the split is drawn here) -> (label 0, label
            1) rows of the complete public distribution; empty when nothing is known.
        notes: one sentence each.
    """

    expected: Counts = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


# The complete distributions of the papers' tasks.
FULL: dict[str, Counts] = {
    "IMDB": {"train": (12500, 12500), "test": (12500, 12500)},
    "Furd": {"train": (3310, 3610), "test": (912, 909)},
    "AG_News": {"train": (30000, 30000), "test": (1900, 1900)},
    "Newsgroups": {"train": (597, 600), "test": (397, 399)},
    "Yelp": {"train": (280000, 280000), "test": (19000, 19000)},
    "Amzn": {"train": (1800000, 1800000), "test": (200000, 200000)},
    "SMS": {"all": (4827, 747)},
}
MULTI_DOMAIN = {"all": (4000, 4000)}
LABELLED_SENTENCES = {"all": (500, 500)}


def shuffled(items: list, seed: int) -> list:
    """``items`` in the random order of ``seed``."""
    return [items[place] for place in np.random.default_rng(seed).permutation(len(items))]


def split_by_seed(items: list, seed: int) -> Iterator[tuple[str, object]]:
    """("train" or "test", item) in the order given; ``TEST_SHARE`` of them, by seed, are test."""
    order = np.random.default_rng(seed).permutation(len(items))
    test = set(order[: round(TEST_SHARE * len(items))].tolist())
    for place, item in enumerate(items):
        yield ("test" if place in test else "train"), item


def unlike(source: Source, dataset: str, expected: str) -> InputError:
    return InputError(
        f"source {source.path} does not look like {dataset}: expected {expected}; "
        f"{source.described()}"
    )


def real_names(source: Source) -> list[str]:
    """Names without what operating systems leave in archives (``__MACOSX/``, ``.DS_Store``)."""
    return [name for name in source.names if not re.search(r"(^|/)(\.|__MACOSX/)", name)]


def one_file(
    source: Source, dataset: str, stems: tuple[str, ...], suffixes: str, expected: str
) -> str:
    """The one file named by the first of ``stems`` that is there."""
    for stem in stems:
        pattern = re.compile(rf"(?:^|/){stem}\.(?:{suffixes})$", re.IGNORECASE)
        matching = [name for name in real_names(source) if pattern.search(name)]
        if len(matching) > 1:
            raise InputError(
                f"source {source.path} holds more than one {stem} file ({', '.join(matching)}); "
                "give the folder of one of them"
            )
        if matching:
            return matching[0]
    raise unlike(source, dataset, expected)


def note_split(found: Findings, seed: int) -> None:
    found.notes.append(
        f"no split is defined: {TEST_SHARE:.0%} of the rows, drawn with seed {seed}, are the test "
        "set"
    )


def label_of(value: str, accepted: dict[str, int | None], where: str, number: int) -> int | None:
    if value not in accepted:
        raise unknown_label(value, ", ".join(accepted), where, number)
    return accepted[value]


def unknown_label(value: str, accepted: str, where: str, number: int) -> InputError:
    return InputError(
        f"{where} line {number} has the label {value[:60]!r}; accepted are {accepted}"
    )


def peeked(items: Iterator) -> tuple[Iterator, object]:
    """All the items, and the first of them beforehand (None when there is none)."""
    first = next(items, None)
    return itertools.chain([] if first is None else [first], items), first

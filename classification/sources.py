"""Readers of the public distributions: each yields (split, text, label) of the binary task.

A reader takes the ``Source``, the seed of what it draws, and ``Findings``, where it leaves what a user
should know. What is filtered out belongs to the task (neutral sentences, other topics); what cannot be
understood is an InputError with file, line, what was found and what was expected.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import numpy as np

from attention_dynamics.archives import Source
from attention_dynamics.errors import InputError
from attention_dynamics.textfiles import delimited_rows, text_lines

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
        expected: split ("train", "test", or "all" where the split is drawn here) -> (label 0, label 1)
            rows of the complete public distribution; empty when nothing is known.
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
_MULTI_DOMAIN = {"all": (4000, 4000)}
_LABELLED_SENTENCES = {"all": (500, 500)}


def read_source(dataset: str, source: Source, seed: int, found: Findings) -> Iterator[Example]:
    """The examples of a known data set from its public distribution.

    Raises InputError when the source does not look like it, naming what was expected and found.
    """
    found.expected = FULL[dataset]
    return _READERS[dataset](source, seed, found)


def read_file(dataset: str, source: Source, split: str, found: Findings) -> Iterator[Example]:
    """The examples of one file of a known data set, in any of the layouts its copies come in."""
    found.expected = FULL[dataset] if "train" in FULL[dataset] else {}
    if len(source.names) > 1:
        raise InputError(f"--{split} must be one file, but {source.described()}")
    for name, stream in source.open_all(source.names):
        for text, label in _FILE_READERS[dataset](stream, source.place(name), found):
            yield Example(split, text, label)


def has_file_reader(dataset: str) -> bool:
    """Whether single files of this data set have a layout of their own."""
    return dataset in _FILE_READERS


def shuffled(items: list, seed: int) -> list:
    """``items`` in the random order of ``seed``."""
    return [items[place] for place in np.random.default_rng(seed).permutation(len(items))]


def split_by_seed(items: list, seed: int) -> Iterator[tuple[str, object]]:
    """("train" or "test", item), in the order given: ``TEST_SHARE`` of them, drawn by seed, are test."""
    order = np.random.default_rng(seed).permutation(len(items))
    test = set(order[: round(TEST_SHARE * len(items))].tolist())
    for place, item in enumerate(items):
        yield ("test" if place in test else "train"), item


def _unlike(source: Source, dataset: str, expected: str) -> InputError:
    return InputError(
        f"source {source.path} does not look like {dataset}: expected {expected}; {source.described()}"
    )


def _real_names(source: Source) -> list[str]:
    """Names without what operating systems leave in archives (``__MACOSX/``, ``.DS_Store``)."""
    return [name for name in source.names if not re.search(r"(^|/)(\.|__MACOSX/)", name)]


def _part(source: Source, dataset: str, stems: tuple[str, ...], suffixes: str, expected: str) -> str:
    """The one file named by the first of ``stems`` that is there."""
    for stem in stems:
        pattern = re.compile(rf"(?:^|/){stem}\.(?:{suffixes})$", re.IGNORECASE)
        matching = [name for name in _real_names(source) if pattern.search(name)]
        if len(matching) > 1:
            raise InputError(
                f"source {source.path} holds more than one {stem} file ({', '.join(matching)}); "
                "give the folder of one of them"
            )
        if matching:
            return matching[0]
    raise _unlike(source, dataset, expected)


# --- IMDB: aclImdb/{train,test}/{pos,neg}/ID_RATING.txt


def _imdb(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    pattern = re.compile(r"(?:^|/)(train|test)/(pos|neg)/\d+_(\d+)\.txt$")
    members = {name: match for name in source.names if (match := pattern.search(name))}
    if not members:
        raise _unlike(source, "IMDB", "aclImdb/{train,test}/{pos,neg}/ID_RATING.txt")
    rows = {}
    for name, stream in source.open_all(members):
        split, polarity, rating = members[name].groups()
        where = source.place(name)
        if not (int(rating) <= 4 if polarity == "neg" else 7 <= int(rating) <= 10):
            raise InputError(f"{where} has the rating {rating}: neg is 1 to 4, pos is 7 to 10")
        text = "".join(text_lines(stream, where))
        rows[name] = Example(split, text, int(polarity == "pos"))
    # One class comes after the other in the folders, and the evaluation takes the first 4,000.
    found.notes.append(f"the reviews, stored by class, are shuffled with seed {seed}")
    yield from shuffled([rows[name] for name in sorted(rows)], seed)


# --- Furd: Stanford Sentiment Treebank, trees or `sentence<TAB>label`

# `\/` and `\*` are the treebank's, which escapes brackets as well.
_BRACKETS = {"lrb": "(", "rrb": ")", "lsb": "[", "rsb": "]", "lcb": "{", "rcb": "}"}
_ESCAPE = re.compile(r"-(lrb|rrb|lsb|rsb|lcb|rcb)-|\\([/*])", re.IGNORECASE)
_LEAF = re.compile(r"\([0-4] ([^()]+)\)")
_TREE = re.compile(r"\(([0-4]) .*\)$")


def _furd(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    expected = "train.txt and test.txt of trees, or train.tsv and test.tsv with sentence and label"
    names = {_part(source, "Furd", (s,), "txt|tsv", expected): s for s in ("train", "test")}
    for name, stream in source.open_all(names):
        for text, label in _furd_file(stream, source.place(name), found):
            yield Example(names[name], text, label)


def _furd_file(stream: BinaryIO, where: str, found: Findings) -> Iterator[tuple[str, int]]:
    lines, first = _peeked(text_lines(stream, where))
    if first.startswith("("):
        yield from _trees(lines, where)
        return
    for number, row in _with_header(lines, where, "\t", ("sentence", "label"), "a tree per line, or"):
        yield _unescaped(row["sentence"]), _label(row["label"], {"0": 0, "1": 1}, where, number)


def _trees(lines: Iterator[str], where: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(lines, 1):
        # Only ASCII white space ends a line: a leaf may end in, or hold, a no-break space.
        line = line.strip(" \t\r\n")
        if not line:
            continue
        tree = _TREE.match(line)
        # Leaves are read up to the bracket: three of them hold a no-break space.
        leaves = _LEAF.findall(line)
        if not tree or not leaves or line.count("(") != line.count(")"):
            raise InputError(
                f"{where} line {number} is not a sentiment tree such as (3 (2 It) (4 shines)): {line[:60]!r}"
            )
        if tree[1] != "2":
            yield _unescaped(" ".join(leaves)), int(tree[1] > "2")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: match[2] or _BRACKETS[match[1].lower()], text)


# --- AG_News: "class","title","description", and two copies of a part of its training set

_AG_LOST = re.compile(r" (#\d+|quot|amp|lt|gt|nbsp);")


def _ag_news(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    expected = (
        "train.csv and test.csv of ag_news_csv (a training file from elsewhere goes with "
        "--train FILE --test FILE in place of --source)"
    )
    names = {_part(source, "AG_News", (s,), "csv", expected): s for s in ("train", "test")}
    for name, stream in source.open_all(names):
        for text, label in _ag_news_file(stream, source.place(name), found):
            yield Example(names[name], text, label)


def _ag_news_file(stream: BinaryIO, where: str, found: Findings) -> Iterator[tuple[str, int]]:
    """World is 0 and Business 1; Sports and Sci/Tech are left out.

    The classes are 1 to 4 in the distribution's own headerless layout, 0 to 3 in the copies.
    """
    from_one = {"1": 0, "2": None, "3": 1, "4": None}
    from_zero = {"0": 0, "1": None, "2": 1, "3": None}
    for number, row in delimited_rows(text_lines(stream, where), where, ",", quoting=True):
        if number == 1 and "text" in row:
            header, codes = row, from_zero
            text_columns = [header.index("text")]
            # In NoisyAG-News `gt` is the class; its `label` is wrong on purpose in a fifth of the rows.
            name = "gt" if "gt" in header else "label"
            if name not in header:
                raise InputError(f"{where} has no column gt or label; it has {', '.join(header)}")
            label_column = header.index(name)
            continue
        if number == 1 or (not_yet := "codes" not in locals()):
            pass
        yield "", 0

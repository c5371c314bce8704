"""Readers of the public distributions: each yields (split, text, label) of the binary task.

A reader takes the ``Source``, the seed of random draws, and a ``ReadReport`` for its findings. What
is filtered out belongs to the task (neutral sentences, other topics); anything malformed is an
InputError with file, line, and what was expected.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import BinaryIO

from attention_dynamics.cli import InputError
from attention_dynamics.preparation import ReadReport
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import delimited_rows, text_lines
from preparation.examples import (
    FULL,
    Example,
    label_of,
    peeked,
    shuffled,
    split_by_seed,
    split_files,
)


def read_source(dataset: str, source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    """The examples of a known dataset from its public distribution.

    Raises InputError if the source does not look like it, naming the files expected and found.
    """
    report.expected = FULL[dataset]
    return _READERS[dataset](source, seed, report)


# --- IMDB: aclImdb/{train,test}/{pos,neg}/ID_RATING.txt


def _imdb(source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    pattern = re.compile(r"(?:^|/)(train|test)/(pos|neg)/\d+_(\d+)\.txt$")
    members = {name: match for name in source.names if (match := pattern.search(name))}
    if not members:
        raise source.not_recognized("IMDB", "aclImdb/{train,test}/{pos,neg}/ID_RATING.txt")
    rows = {}
    for name, stream in source.open_all(members):
        split, polarity, rating = members[name].groups()
        where = source.place(name)
        if not (int(rating) <= 4 if polarity == "neg" else 7 <= int(rating) <= 10):
            raise InputError(f"{where} has the rating {rating}: neg is 1 to 4, pos is 7 to 10")
        rows[name] = Example(split, "".join(text_lines(stream, where)), int(polarity == "pos"))
    # One class comes after the other in the directories, and the first 4,000 are evaluated.
    report.notes.append(f"the reviews, stored by class, are shuffled with seed {seed}")
    yield from shuffled([rows[name] for name in sorted(rows)], seed)


# --- Furd: Stanford Sentiment Treebank, trees or `sentence<TAB>label`

# `\/` and `\*` are the treebank's, which escapes brackets as well.
_BRACKETS = {"lrb": "(", "rrb": ")", "lsb": "[", "rsb": "]", "lcb": "{", "rcb": "}"}
_ESCAPE = re.compile(r"-(lrb|rrb|lsb|rsb|lcb|rcb)-|\\([/*])", re.IGNORECASE)
_LEAF = re.compile(r"\([0-4] ([^()]+)\)")
_TREE = re.compile(r"\(([0-4]) .*\)$")


def _furd(source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    expected = "train.txt and test.txt of trees, or train.tsv and test.tsv with sentence and label"
    names = split_files(source, "Furd", "txt|tsv", expected)
    for name, stream in source.open_all(names):
        where = source.place(name)
        lines, first = peeked(text_lines(stream, where))
        read = _trees if first and first.startswith("(") else _sentences
        for text, label in read(lines, where):
            yield Example(names[name], unescape_treebank(text), label)


def _sentences(lines: Iterator[str], where: str) -> Iterator[tuple[str, int]]:
    rows = delimited_rows(lines, where, "\t", quoting=False)
    _, header = next(rows, (0, []))
    if "sentence" not in header or "label" not in header:
        raise InputError(
            f"{where} must hold one tree a line, or have a header with sentence and label; its "
            f"first line has {', '.join(header)[:80] or 'nothing'}"
        )
    text_column, label_column = header.index("sentence"), header.index("label")
    for number, row in rows:
        yield row[text_column], label_of(row[label_column], {"0": 0, "1": 1}, where, number)


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
                f"{where} line {number} is not a sentiment tree such as (3 (2 It) (4 shines)): "
                f"{line[:60]!r}"
            )
        if tree[1] != "2":
            yield " ".join(leaves), int(tree[1] > "2")


def unescape_treebank(text: str) -> str:
    """``text`` with brackets for -LRB- and the like, and plain slashes and stars."""
    return _ESCAPE.sub(lambda match: match[2] or _BRACKETS[match[1].lower()], text)


# --- AG_News, Yelp and Amzn: train.csv and test.csv without a header; a class, then the text


def _csv_rows(
    source: Source, dataset: str, columns: str, widths: tuple[int, ...], report: ReadReport
) -> Iterator[tuple[str, str, int, list[str]]]:
    """(split, file, line, fields) of each row, which must have one of the ``widths``."""
    names = split_files(source, dataset, "csv", f"train.csv and test.csv of {columns}")
    for name, stream in source.open_all(names):
        where = source.place(name)
        lines = text_lines(stream, where)
        rows, first = peeked(delimited_rows(lines, where, ",", quoting=True))
        fields = first[1] if first else []
        if fields == [str(column) for column in range(len(fields))]:
            next(rows, None)
            report.notes.append(
                f"{PurePath(where).name}: the first line {','.join(fields)} is column numbers, "
                "left out"
            )
        if fields and len(fields) not in widths:
            raise InputError(
                f"{where} has {len(fields)} column(s), expected {columns}; give files with other "
                "columns as --train FILE --test FILE"
            )
        for number, row in rows:
            yield names[name], where, number, row


_AG_LOST = re.compile(r" (#\d+|quot|amp|lt|gt|nbsp);")


def _ag_news(source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    """World is 0 and Business 1; Sports and Sci/Tech are left out."""
    classes = {"1": 0, "2": None, "3": 1, "4": None}
    rows = _csv_rows(source, "AG_News", "class,title,description", (3,), report)
    for split, where, number, row in rows:
        label = label_of(row[0], classes, where, number)
        if label is not None:
            yield Example(split, restore_ag_news(" ".join(row[1:])), label)


def restore_ag_news(text: str) -> str:
    """``text`` with spaces for its backslashes (line breaks) and ``&#39;`` for `` #39;``."""
    return _AG_LOST.sub(r"&\1;", text.replace("\\", " "))


def _yelp(source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    yield from _polarity(source, "Yelp", "class,text", report)


def _amzn(source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    yield from _polarity(source, "Amzn", "class,title,text", report)


def _polarity(source: Source, dataset: str, columns: str, report: ReadReport) -> Iterator[Example]:
    """Class 1 (1 and 2 stars) is 0 and class 2 (4 and 5 stars) is 1."""
    for split, where, number, row in _csv_rows(source, dataset, columns, (2, 3), report):
        label = label_of(row[0], {"1": 0, "2": 1}, where, number)
        # As its readme says, line breaks are written \n; quotes inside are \" as well as doubled.
        text = " ".join(row[1:]).replace("\\n", " ").replace('\\"', '"')
        yield Example(split, text, label)


# --- Newsgroups: 20news-bydate-{train,test}/GROUP/NUMBER

_GROUPS = {"rec.sport.baseball": 0, "rec.sport.hockey": 1}


def _newsgroups(source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    # Private in scikit-learn, but these are what "headers, footers and quotes removed" means.
    from sklearn.datasets._twenty_newsgroups import (
        strip_newsgroup_footer,
        strip_newsgroup_header,
        strip_newsgroup_quoting,
    )

    pattern = re.compile(r"(?:^|/)[^/]*(train|test)/(rec\.sport\.(?:baseball|hockey))/[^/]+$")
    members = {name: match for name in source.names if (match := pattern.search(name))}
    if not members:
        expected = "20news-bydate-{train,test}/{rec.sport.baseball,rec.sport.hockey}/NUMBER"
        raise source.not_recognized("Newsgroups", expected)
    rows = {}
    for name, stream in source.open_all(members):
        split, group = members[name].groups()
        # The functions look for "\n\n": with "\r\n" they would take everything for the header.
        text = stream.read().decode("latin-1").replace("\r\n", "\n")
        text = strip_newsgroup_quoting(strip_newsgroup_footer(strip_newsgroup_header(text)))
        rows[name] = Example(split, text, _GROUPS[group])
    report.notes.append(f"the posts, stored by group, are shuffled with seed {seed}")
    yield from shuffled([rows[name] for name in sorted(rows)], seed)


# --- SMS: ham or spam, TAB, message


def _sms(source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    names = [name for name in source.names if re.search(r"(^|/)smsspam[^/]*$", name, re.I)]
    names = names or (source.names if len(source.names) == 1 else [])
    if len(names) != 1:
        raise source.not_recognized("SMS", "one file SMSSpamCollection")
    items = []
    for name, stream in source.open_all(names):
        items.extend(_messages(stream, source.place(name)))
    for split, (text, label) in split_by_seed(items, seed, report):
        yield Example(split, text, label)


def _messages(stream: BinaryIO, where: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(text_lines(stream, where), 1):
        line = line.rstrip("\r\n")
        if line:
            # Quotes are text here: messages hold unbalanced ones.
            label, tab, message = line.partition("\t")
            if not tab:
                raise InputError(
                    f"{where} line {number} is not ham or spam, TAB, message: {line[:60]!r}"
                )
            yield message, label_of(label, {"ham": 0, "spam": 1}, where, number)


_READERS: dict[str, Callable[[Source, int, ReadReport], Iterator[Example]]] = {
    "IMDB": _imdb,
    "Furd": _furd,
    "AG_News": _ag_news,
    "Newsgroups": _newsgroups,
    "Yelp": _yelp,
    "Amzn": _amzn,
    "SMS": _sms,
}

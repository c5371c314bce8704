"""Readers of the public distributions: each yields (split, text, label) of the binary task.

A reader takes the ``Source``, the seed of what it draws, and ``Findings``, where it leaves what a
user should know. What is filtered out belongs to the task (neutral sentences, other topics); what
cannot be understood is an InputError with file, line, what was found and what was expected.
"""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import delimited_rows, text_lines
from preparation.examples import (
    FULL,
    Example,
    Findings,
    label_of,
    note_split,
    one_file,
    peeked,
    real_names,
    shuffled,
    split_by_seed,
    unlike,
)
from preparation.reviews import read_amzn, read_imdb, read_yelp, reviews_file


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


# --- Furd: Stanford Sentiment Treebank, trees or `sentence<TAB>label`

# `\/` and `\*` are the treebank's, which escapes brackets as well.
_BRACKETS = {"lrb": "(", "rrb": ")", "lsb": "[", "rsb": "]", "lcb": "{", "rcb": "}"}
_ESCAPE = re.compile(r"-(lrb|rrb|lsb|rsb|lcb|rcb)-|\\([/*])", re.IGNORECASE)
_LEAF = re.compile(r"\([0-4] ([^()]+)\)")
_TREE = re.compile(r"\(([0-4]) .*\)$")


def _furd(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    expected = "train.txt and test.txt of trees, or train.tsv and test.tsv with sentence and label"
    names = {one_file(source, "Furd", (s,), "txt|tsv", expected): s for s in ("train", "test")}
    for name, stream in source.open_all(names):
        for text, label in _furd_file(stream, source.place(name), found):
            yield Example(names[name], text, label)


def _furd_file(stream: BinaryIO, where: str, found: Findings) -> Iterator[tuple[str, int]]:
    lines, first = peeked(text_lines(stream, where))
    if first and first.startswith("("):
        yield from _trees(lines, where)
        return
    rows = delimited_rows(lines, where, "\t", quoting=False)
    _, header = next(rows, (0, []))
    if "sentence" not in header or "label" not in header:
        raise InputError(
            f"{where} must hold one tree a line, or have a header with sentence and label; its "
            f"first line has {', '.join(header)[:80] or 'nothing'}"
        )
    text_column, label_column = header.index("sentence"), header.index("label")
    for number, row in rows:
        yield (
            unescape_treebank(row[text_column]),
            label_of(row[label_column], {"0": 0, "1": 1}, where, number),
        )


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
            yield unescape_treebank(" ".join(leaves)), int(tree[1] > "2")


def unescape_treebank(text: str) -> str:
    """``text`` with brackets for -LRB- and the like, and plain slashes and stars."""
    return _ESCAPE.sub(lambda match: match[2] or _BRACKETS[match[1].lower()], text)


# --- AG_News: "class","title","description", and two copies of a part of its training set

_AG_LOST = re.compile(r" (#\d+|quot|amp|lt|gt|nbsp);")


def _ag_news(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    expected = (
        "train.csv and test.csv of ag_news_csv (a training file from elsewhere goes with "
        "--train FILE --test FILE in place of --source)"
    )
    names = {one_file(source, "AG_News", (s,), "csv", expected): s for s in ("train", "test")}
    for name, stream in source.open_all(names):
        for text, label in _ag_news_file(stream, source.place(name), found):
            yield Example(names[name], text, label)


def _ag_news_file(stream: BinaryIO, where: str, found: Findings) -> Iterator[tuple[str, int]]:
    """World is 0 and Business 1; Sports and Sci/Tech are left out.

    The classes are 1 to 4 in the distribution's own headerless layout, 0 to 3 in the copies.
    """
    rows, first = peeked(delimited_rows(text_lines(stream, where), where, ",", quoting=True))
    fields = first[1] if first else []
    classes = "0123"
    if "text" in fields:
        # In NoisyAG-News `gt` is the class; its `label` is wrong on purpose in a fifth of the rows.
        label_name = "gt" if "gt" in fields else "label"
        if label_name not in fields:
            raise InputError(f"{where} has no column gt or label; it has {', '.join(fields)}")
        text_columns, label_column = [fields.index("text")], fields.index(label_name)
        next(rows)
    elif len(fields) == 3:
        text_columns, label_column, classes = [1, 2], 0, "1234"
    elif len(fields) == 2:
        text_columns, label_column = [0], 1
    else:
        raise InputError(
            f"{where} has {len(fields)} column(s): expected class,title,description, or "
            "text,label, or a header with text and gt or label; name others with --text_column "
            "and --label_column"
        )
    labels = dict(zip(classes, (0, None, 1, None), strict=True))
    for number, row in rows:
        label = label_of(row[label_column], labels, where, number)
        if label is not None:
            yield restore_ag_news(" ".join(row[column] for column in text_columns)), label


def restore_ag_news(text: str) -> str:
    """``text`` with spaces for its backslashes (line breaks) and ``&#39;`` for `` #39;``."""
    return _AG_LOST.sub(r"&\1;", text.replace("\\", " "))


# --- Newsgroups: 20news-bydate-{train,test}/GROUP/NUMBER

_GROUPS = {"rec.sport.baseball": 0, "rec.sport.hockey": 1}


def _newsgroups(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    # Private in scikit-learn, but these are what "headers, footers and quotes removed" means.
    from sklearn.datasets._twenty_newsgroups import (
        strip_newsgroup_footer,
        strip_newsgroup_header,
        strip_newsgroup_quoting,
    )

    pattern = re.compile(r"(?:^|/)[^/]*(train|test)/(rec\.sport\.(?:baseball|hockey))/[^/]+$")
    members = {name: match for name in real_names(source) if (match := pattern.search(name))}
    if not members:
        expected = "20news-bydate-{train,test}/{rec.sport.baseball,rec.sport.hockey}/NUMBER"
        raise unlike(source, "Newsgroups", expected)
    rows = {}
    for name, stream in source.open_all(members):
        split, group = members[name].groups()
        text = strip_newsgroup_header(stream.read().decode("latin-1"))
        text = strip_newsgroup_quoting(strip_newsgroup_footer(text))
        rows[name] = Example(split, text, _GROUPS[group])
    found.notes.append(f"the posts, stored by group, are shuffled with seed {seed}")
    yield from shuffled([rows[name] for name in sorted(rows)], seed)


# --- SMS: ham or spam, TAB, message


def _sms(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    names = [name for name in real_names(source) if re.search(r"(^|/)smsspam[^/]*$", name, re.I)]
    names = names or (source.names if len(source.names) == 1 else [])
    if len(names) != 1:
        raise unlike(source, "SMS", "one file SMSSpamCollection")
    items = []
    for name, stream in source.open_all(names):
        items.extend(_sms_file(stream, source.place(name), found))
    note_split(found, seed)
    for split, (text, label) in split_by_seed(items, seed):
        yield Example(split, text, label)


def _sms_file(stream: BinaryIO, where: str, found: Findings) -> Iterator[tuple[str, int]]:
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


_READERS: dict[str, Callable[[Source, int, Findings], Iterator[Example]]] = {
    "IMDB": read_imdb,
    "Furd": _furd,
    "AG_News": _ag_news,
    "Newsgroups": _newsgroups,
    "Yelp": read_yelp,
    "Amzn": read_amzn,
    "SMS": _sms,
}
_FILE_READERS: dict[str, Callable[[BinaryIO, str, Findings], Iterator[tuple[str, int]]]] = {
    "Furd": _furd_file,
    "AG_News": _ag_news_file,
    "Yelp": reviews_file,
    "Amzn": reviews_file,
    "SMS": _sms_file,
}

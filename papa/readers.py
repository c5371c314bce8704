"""Rows of csv, tsv, json and CoNLL files, and of datasets of the hub.

Own code, since pandas fills short rows with nothing, shifts the columns of long ones, and cannot
name the line of a bad value.
"""

import itertools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from attention_dynamics.cli import InputError
from attention_dynamics.storage import hub
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.files import parse_json
from attention_dynamics.storage.text import (
    delimited_rows,
    has_lone_surrogate,
    json_rows,
    text_lines,
)

JSON = (".json", ".jsonl", ".ndjson")
DOCUMENT = "-DOCSTART-"  # the line between the documents of CoNLL-2003
CONLLU_COLUMNS = (
    "id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"
)  # fmt: skip


class Table(NamedTuple):
    """The rows of a file or of a split of the hub.

    Attributes:
        where: the file or split, for errors.
        rows: (where the row is, column -> value): strings in csv and tsv files, any type in json,
            lists of strings in CoNLL files.
        label_names: column -> the class names of its numbers, where the hub gives them.
    """

    where: str
    rows: list[tuple[str, dict]]
    label_names: dict[str, tuple[str, ...]]

    @property
    def columns(self) -> list[str]:
        """The columns of the first row."""
        return list(self.rows[0][1])


class Split(NamedTuple):
    """Examples: ``texts[i]`` is one or two sentences, or the words of a sentence; ``labels[i]`` a
    number, or the names of the labels of the words. A test set may have no labels (None)."""

    texts: list
    labels: list | None


class Task(NamedTuple):
    """A task: its name (None: your own), the names of its labels in the order of their numbers
    (none for a regression), and its splits by name."""

    name: str | None
    labels: tuple[str, ...]
    splits: dict[str, Split]


def is_text(value: object) -> bool:
    """Whether ``value`` is a string without lone surrogates, which JSON can encode."""
    return isinstance(value, str) and not has_lone_surrogate(value)


def unknown_label(place: str, label: str, names: tuple[str, ...]) -> InputError:
    """The error of a label that is none of the task's."""
    more = ", ..." if len(names) > 20 else ""
    return InputError(
        f"{place} has the label {label[:40]!r} (expected one of {', '.join(names[:20])}{more}); "
        "fix the label, or remove the example"
    )


def read_files(
    files: dict[str, str | None], splits: list[str], read: Callable[[Source, str], Table]
) -> dict[str, Table]:
    """Read the file of each split; InputError for a split without one."""
    tables = {}
    for split in splits:
        if not files[split]:
            given = ", ".join(f"--{name}_file" for name, path in files.items() if path)
            raise InputError(f"the split {split} is needed: give --{split}_file beside {given}")
        source = Source(files[split])
        tables[split] = read(source, source.only_file(f"--{split}_file"))
    return tables


def _lines(source: Source, name: str) -> list[str]:
    streams = source.open_all([name])
    return [line for _, stream in streams for line in text_lines(stream, source.place(name))]


def read_table(
    source: Source, name: str, header: Sequence[str] = (), skip_malformed: bool = False
) -> Table:
    """The table in one file of a source.

    In csv files quotes enclose a field; in tsv files they are text. A json file has one object per
    line, or is one array of objects; its columns are the keys of the first object.

    Args:
        header: the columns of a file whose first row has as many fields and none of these names.
        skip_malformed: leave out the rows of a tsv file that have more or fewer fields than the
            first, and print how many; else they are an error.
    """
    where, suffix = source.place(name), PurePosixPath(name.lower()).suffix
    lines, unit = _lines(source, name), "line"
    if suffix not in (".csv", ".tsv", *JSON):
        raise InputError(f"{where} must end in .csv, .tsv, {', '.join(JSON)}, each also with .gz")
    if suffix not in JSON:
        if skip_malformed:
            _blank_malformed(lines, where)
        is_csv = suffix == ".csv"
        fields = list(delimited_rows(iter(lines), where, "," if is_csv else "\t", is_csv))
        first = fields[0][1] if fields else []
        if len(first) != len(header) or {*first} & {*header}:
            header, fields = first, fields[1:]
        rows = [(number, dict(zip(header, row, strict=True))) for number, row in fields]
    elif lines and lines[0].lstrip().startswith("["):
        rows, unit = list(enumerate(parse_json("".join(lines), where), 1)), "element"
        if not all(isinstance(row, dict) for _, row in rows):
            raise InputError(f"{where}: an element is not a JSON object")
    else:
        rows = list(json_rows(iter(lines), where))
    if not rows:
        raise InputError(f"{where} has no rows")
    return Table(where, [(f"{where} {unit} {number}", row) for number, row in rows], {})


def _blank_malformed(lines: list[str], where: str) -> None:
    tabs = lines[0].count("\t") if lines else 0
    malformed = [n for n, line in enumerate(lines) if line.strip() and line.count("\t") != tabs]
    for number in malformed:
        lines[number] = ""
    if malformed:
        print(
            f"note: {where}: {len(malformed)} row(s) have more or fewer than {tabs + 1} fields "
            f"and are left out (the first one: line {malformed[0] + 1})",
            file=sys.stderr,
        )


def read_words(source: Source, name: str) -> Table:
    """The sentences of one file, each a row of lists.

    A json file has them as :func:`read_table` says; a CoNLL file has a word and its labels per
    line, and blank lines between sentences. The columns of CoNLL are "0", "1" ..., separated by
    tabs where the line has one, else by spaces; those of CoNLL-U (.conllu) have its names, and
    ranges of words (1-2) and empty nodes (8.1) are left out. So are comments: before a sentence,
    lines with # whose last field is not that of any word ("# id 7" in MultiCoNER), but not #big.
    """
    where, suffix = source.place(name), PurePosixPath(name.lower()).suffix
    if suffix in JSON:
        return read_table(source, name)
    lines = [line.strip(" \r\n") for line in _lines(source, name)]
    fields = [re.split("\t" if "\t" in line else " +", line) for line in lines]
    is_word = re.compile(rf"(?!#|{DOCUMENT})\S")
    words = [row for line, row in zip(lines, fields, strict=True) if is_word.match(line)]
    header, left_out = [str(number) for number in range(len(words[0]))] if words else [], DOCUMENT
    if suffix == ".conllu":
        header, left_out = CONLLU_COLUMNS, r"#|\d+[-.]\d+\t"
    last_fields, rows = {row[-1] for row in words}, []
    numbered = zip(itertools.count(1), lines, fields)
    for is_blank, block in itertools.groupby(numbered, lambda line: not line[1].strip()):
        sentence = []
        for number, line, row in () if is_blank else block:
            is_comment = re.match(r"#(\s|$|begin |end )", line) and row[-1] not in last_fields
            if re.match(left_out, line) or (is_comment and not sentence):
                continue
            if len(row) != len(header):
                raise InputError(
                    f"{where} line {number} has {len(row)} column(s) (expected {len(header)}); fix "
                    "the line"
                )
            sentence.append((number, *row))
        if sentence:
            (first, *_), *columns = map(list, zip(*sentence, strict=True))
            rows.append((f"{where} line {first}", dict(zip(header, columns, strict=True))))
    if not rows:
        raise InputError(f"{where} has no sentences")
    return Table(where, rows, {})


def read_hub(
    name: str, config: str | None, cache_dir: str | None, splits: list[str], files: str
) -> dict[str, Table]:
    """Splits of a dataset of the hub; ``files``: the options to use without the hub.

    Raises InputError for a missing dataset or split.
    """
    found = hub.load_cached_splits(
        name,
        *([config] if config else []),
        cache_dir=cache_dir,
        advice=f"check the name and the network, or give local files with {files}",
    )
    tables = {}
    for split in splits:
        if split not in found:
            raise InputError(f"{name} has no split {split} on the hub; it has {', '.join(found)}")
        where, features = f"{name} {split}", found[split].features
        classes = {column: getattr(of, "feature", of) for column, of in features.items()}
        rows = [(f"{where} row {n}", row) for n, row in enumerate(found[split].to_list())]
        names = {c: tuple(of.names) for c, of in classes.items() if getattr(of, "names", None)}
        tables[split] = Table(where, rows, names)
    return tables

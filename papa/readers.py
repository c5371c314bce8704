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

from arguments import DataArguments

from attention_dynamics.cli import InputError
from attention_dynamics.storage import hub
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.files import json_text, parse_json
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
    """A file or a split of the hub: its name; (place, column -> value) of each row, strings in csv
    and tsv files, lists in CoNLL files; column -> class names, where the hub gives them."""

    where: str
    rows: list[tuple[str, dict]]
    label_names: dict[str, tuple[str, ...]]


class Split(NamedTuple):
    """Sentences or pairs and a number each (None: no labels), or words and the labels of each."""

    texts: list
    labels: list | None


class Task(NamedTuple):
    """Its name (None: your own), the names of its labels by number (none: a regression), splits."""

    name: str | None
    labels: tuple[str, ...]
    splits: dict[str, Split]


def unknown_label(place: str, label: str, names: tuple[str, ...]) -> InputError:
    """The error of a label that is none of the task's."""
    expected = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return InputError(f"{place} has the label {label[:40]!r} (expected {expected}); fix the label")


def read_splits(
    data: DataArguments,
    files: dict[str, str | None],
    splits: list[str],
    read: Callable[[str, str], Table],
    cache_dir: str | None,
) -> dict[str, Table]:
    """Read splits from ``files`` by ``read(path, split)``, else from the hub's dataset.

    Raises InputError for a missing file, dataset or split.
    """
    if any(files.values()):
        if missing := [split for split in splits if not files[split]]:
            given = ", ".join(f"--{split}_file" for split, path in files.items() if path)
            option = f"--{missing[0]}_file"
            raise InputError(f"the split {missing[0]} is needed: give {option} beside {given}")
        return {split: read(files[split], split) for split in splits}
    if not data.dataset_name:
        raise InputError("no data: give --train_file, --dataset_name or a --task_name of GLUE")
    name, tables = data.dataset_name, {}
    hub.use_cache_without_network()
    found = hub.load_splits(
        name,
        *filter(None, [data.dataset_config_name]),
        cache_dir=cache_dir,
        advice="check the name and the network, or give local files (--train_file or --task_dir)",
    )
    for split in splits:
        if split not in found:
            raise InputError(f"{name} has no split {split} on the hub; it has {', '.join(found)}")
        where, features = f"{name} {split}", found[split].features
        classes = {column: getattr(of, "feature", of) for column, of in features.items()}
        names = {c: tuple(of.names) for c, of in classes.items() if getattr(of, "names", None)}
        rows = [(f"{where} row {n}", row) for n, row in enumerate(found[split].to_list())]
        tables[split] = Table(where, rows, names)
    return tables


def _read_lines(path: str, file: str | None = None) -> tuple[str, list[str], str]:
    """The name for errors, the lines and the suffix (in lower case, without .gz) of a file.

    ``path`` is the file, or a directory or archive that holds it, anywhere, as ``file``.
    """
    source = Source(path)
    names = [name for name in source.names if file in (None, PurePosixPath(name).name)]
    if len(names) != 1:
        held = ", ".join((names or source.names)[:8])
        raise InputError(f"{path} must hold one {file or 'file'}, once; it holds {held}")
    where = source.place(names[0])
    lines = [line for _, stream in source.open_all(names) for line in text_lines(stream, where)]
    return where, lines, PurePosixPath(names[0].lower()).suffix


def read_table(
    path: str, header: Sequence[str] = (), file: str | None = None, skip_malformed: bool = False
) -> Table:
    """The table in a file.

    In csv files quotes enclose a field; in tsv files they are text. A json file has one object per
    line, or is one array of objects; its columns are the keys of the first object.

    Args:
        path: the file, or a directory or archive in which it is called ``file``.
        header: the columns of a file whose first row has as many fields and none of these names.
        skip_malformed: leave out the rows of a tsv file that have more or fewer fields than the
            first, and print how many; else they are an error.
    """
    where, lines, suffix = _read_lines(path, file)
    unit = "line"
    if suffix in (".csv", ".tsv"):
        if skip_malformed:
            lines = _blank_malformed(lines, where)
        is_csv = suffix == ".csv"
        fields = list(delimited_rows(iter(lines), where, "," if is_csv else "\t", is_csv))
        first = fields[0][1] if fields else []
        if len(first) != len(header) or {*first} & {*header}:
            header, fields = first, fields[1:]
        rows = [(number, dict(zip(header, row, strict=True))) for number, row in fields]
    elif suffix not in JSON:
        raise InputError(f"{where} must end in .csv, .tsv, {', '.join(JSON)}, each also with .gz")
    elif lines and lines[0].lstrip().startswith("["):
        unit, rows = "row", list(enumerate(parse_json("".join(lines), where), 1))
    else:
        rows = list(json_rows(iter(lines), where))
    if not rows or not all(isinstance(row, dict) for _, row in rows):
        raise InputError(f"{where} has no rows, or some that are not JSON objects")
    for number, row in rows if suffix in JSON else ():
        if has_lone_surrogate(json_text(row)):
            raise InputError(
                f"{where} {unit} {number} has a lone surrogate (invalid Unicode); fix the text"
            )
    return Table(where, [(f"{where} {unit} {number}", row) for number, row in rows], {})


def _blank_malformed(lines: list[str], where: str) -> list[str]:
    tabs = lines[0].count("\t") if lines else 0
    malformed = {n for n, line in enumerate(lines) if line.strip() and line.count("\t") != tabs}
    if malformed:
        rows = f"{len(malformed)} row(s) have more or fewer than {tabs + 1} fields and are left out"
        print(f"note: {where}: {rows} (the first one: line {min(malformed) + 1})", file=sys.stderr)
    return ["" if number in malformed else line for number, line in enumerate(lines)]


def read_words(path: str) -> Table:
    """The sentences of a file, each a row of lists.

    A json file has them as :func:`read_table` says; a CoNLL file has a word and its labels per
    line, and blank lines between sentences. The columns of CoNLL are "0", "1" ..., separated by
    tabs where the line has one, else by spaces; those of CoNLL-U (.conllu) have its names, and its
    comments, ranges of words (1-2) and empty nodes (8.1) are left out.
    """
    path, lines, suffix = _read_lines(path)
    if suffix in JSON:
        return read_table(path)
    is_conllu = suffix == ".conllu"
    left_out = re.compile(r"#|\d+[-.]\d+\t" if is_conllu else DOCUMENT)
    header, rows = CONLLU_COLUMNS if is_conllu else (), []
    numbered = ((number, line.strip(" \r\n")) for number, line in enumerate(lines, 1))
    for is_blank, block in itertools.groupby(numbered, lambda line: not line[1].strip()):
        words = []
        for number, line in () if is_blank else block:
            if left_out.match(line):
                continue
            words.append(re.split("\t" if "\t" in line else " +", line))
            header = header or tuple(map(str, range(len(words[0]))))
            if len(words[-1]) != len(header):
                raise InputError(
                    f"{path} line {number} has {len(words[-1])} column(s) (expected "
                    f"{len(header)}); fix the line"
                )
        if words:
            columns = map(list, zip(*words, strict=True))
            rows.append(
                (f"{path}, sentence {len(rows) + 1}", dict(zip(header, columns, strict=True)))
            )
    if not rows:
        raise InputError(f"{path} has no sentences")
    return Table(path, rows, {})

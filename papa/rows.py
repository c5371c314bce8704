"""Chosen columns of csv, tsv and json files, and of data sets of the hub."""

import sys
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple

from attention_dynamics.cli import InputError
from attention_dynamics.storage import hub
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.files import parse_json
from attention_dynamics.storage.text import delimited_rows, json_rows, text_lines

JSON = (".json", ".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", *JSON)

Choose = Callable[[list[str], str], list[str | None]]


class Rows(NamedTuple):
    """Rows of a table: ``places[i]`` says where row i stands, for errors.

    ``values`` are those of the chosen columns, text in csv and tsv files, anything in json.
    """

    places: list[str]
    values: list[list]


def open_source(path: str, option: str) -> Source:
    """The files at ``path``; InputError names the option it was given by when nothing is there."""
    try:
        return Source(path)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def split_source(files: dict[str, str], split: str) -> Source:
    """The file of a split, by ``files`` (split -> path).

    Raises InputError when none was given, when it is not there, or when it is several.
    """
    if split not in files:
        given = ", ".join(f"--{one}_file" for one in files)
        raise InputError(f"the split {split} is needed: give --{split}_file beside {given}")
    source = open_source(files[split], f"--{split}_file")
    if len(source.names) > 1:
        raise InputError(f"--{split}_file must be one file, but {source.described()}")
    return source


def file_suffix(name: str) -> str:
    """The suffix of a member of a source, in lower case."""
    return PurePosixPath(name.lower()).suffix


def read_rows(
    source: Source,
    name: str,
    choose: Choose,
    default_columns: Callable[[list[str]], list[str] | None] = lambda first: None,
    skip_short: bool = False,
) -> Rows:
    """The chosen columns of one file.

    Args:
        source: where it is.
        name: its name in there. In csv, quotes enclose a field; in tsv they are text. json is one
            object a line, or one array of objects.
        choose: the columns to read, given those the file has and, for its errors, where that is;
            the values of a column None are None.
        default_columns: the names of the columns of a file without header, from its first row; None
            where that row is the header.
        skip_short: leave out rows with too few fields, with a note, instead of raising.

    Raises InputError for a malformed line, and for a file without rows.
    """
    where = source.place(name)
    suffix = file_suffix(name)
    if suffix not in SUFFIXES:
        raise InputError(f"{where} must end in {', '.join(SUFFIXES)}, each also with .gz")
    rows = Rows([], [])
    for _, stream in source.open_all([name]):
        if suffix in JSON:
            table = _objects(stream, where)
            columns = None
            for place, row in table:
                columns = columns or choose(list(row), where)
                if missing := {*columns} - {*row, None}:
                    raise InputError(f"{place} has no {missing.pop()!r}, which the first row has")
                rows.places.append(place)
                rows.values.append([row.get(column) for column in columns])
        elif suffix == ".csv" or not skip_short:
            lines = text_lines(stream, where)
            table = delimited_rows(
                lines, where, "," if suffix == ".csv" else "\t", suffix == ".csv"
            )
            _choose_fields(table, where, choose, default_columns, rows)
        else:
            _choose_fields(_fields(stream, where), where, choose, default_columns, rows)
    if not rows.values:
        raise InputError(f"{where} has no rows")
    return rows


def _choose_fields(table, where: str, choose: Choose, default_columns, rows: Rows) -> None:
    first = next(table, None)
    if first is None:
        return
    header = default_columns(first[1])
    if header is not None:
        table = _before(first, table)
    header = header or first[1]
    chosen = [None if column is None else header.index(column) for column in choose(header, where)]
    last = max(place for place in chosen if place is not None)
    short = []
    for number, row in table:
        if len(row) <= last:
            short.append(number)
            continue
        rows.places.append(f"{where} line {number}")
        rows.values.append([None if place is None else row[place] for place in chosen])
    if short:
        print(
            f"note: {where}: {len(short)} rows have too few fields and are left out "
            f"(the first is line {short[0]})",
            file=sys.stderr,
        )


def _before(first, others) -> Iterator:
    yield first
    yield from others


def _fields(stream: BinaryIO, where: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text_lines(stream, where), 1):
        if line.strip("\r\n"):
            yield number, line.rstrip("\r\n").split("\t")


def _objects(stream: BinaryIO, where: str) -> Iterator[tuple[str, dict]]:
    lines = text_lines(stream, where)
    first = next(lines, "")
    if not first.lstrip().startswith("["):
        for number, row in json_rows(_before(first, lines), where):
            yield f"{where} line {number}", row
        return
    table = parse_json(first + "".join(lines), where)
    for number, row in enumerate(table, 1):
        if not isinstance(row, dict):
            raise InputError(f"{where}: element {number} is not a JSON object")
        yield f"{where} element {number}", row


def load_hub(
    name: str, config: str | None, cache_dir: str | None, splits: list[str], files: str
) -> dict:
    """Splits of a data set of the hub, as its library gives them.

    Raises InputError for one that is not there; ``files``: the options to use without the hub.
    """
    there = hub.load_cached_splits(
        name,
        *([config] if config else []),
        cache_dir=cache_dir,
        advice=f"check the name and the network, or give local files with {files}",
    )
    for split in splits:
        if split not in there:
            raise InputError(f"{name} has no split {split} on the hub; it has {', '.join(there)}")
    return {split: there[split] for split in splits}


def hub_rows(table, where: str, columns: list[str | None]) -> Rows:
    """The chosen columns of a split of the hub; the values of a column None are None."""
    missing = [None] * len(table)
    values = zip(*(table[column] if column else missing for column in columns), strict=True)
    return Rows([f"{where} row {number}" for number in range(len(table))], list(values))


def unknown_label(place: str, label: str, names: tuple[str, ...]) -> InputError:
    """The error of a label that is none of the task's."""
    more = ", ..." if len(names) > 20 else ""
    return InputError(
        f"{place} has the label {label[:40]!r}, which is none of the task's "
        f"({', '.join(names[:20])}{more}): mend it, or leave the example out"
    )

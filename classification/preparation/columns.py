"""A user's own texts: CSV, TSV or JSON lines with a column of texts and one of labels."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from attention_dynamics.cli import InputError
from attention_dynamics.preparation import ReadReport
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import delimited_rows, json_rows, text_lines
from preparation.sources import Example

# Spellings of an absent label, in lower case.
_ABSENT = {"", "na", "n/a", "<na>", "nan", "none", "null"}

Row = tuple[int, str, str]  # line, text, label


def read_columns(
    parts: dict[str, Source],
    columns: tuple[str, str],
    labels: tuple[str, str] | None,
    report: ReadReport,
) -> Iterator[Example]:
    """The examples of a training and a test file.

    Args:
        parts: "train" and "test" -> a source of one .csv, .tsv, .txt, .jsonl or .ndjson file. In
            CSV, quotes enclose a field; in TSV they are text.
        columns: of texts and labels, names in the header or 0-based numbers in files without one.
        labels: the two values that mean 0 and 1; None takes 0 and 1 themselves, or else the two
            values of the training file (numbers by size, others as text), and notes which is which.
        report: receives the note.

    Raises InputError for an absent column, a malformed line, or an absent or third label.
    """
    labels = labels and tuple(map(_canonical, labels))
    for split, source in parts.items():
        name = source.only_file(f"--{split}")
        where = source.place(name)
        for _, stream in source.open_all([name]):
            rows = list(_read(stream, name, where, *columns))
            if not rows:
                raise InputError(f"{where} holds no row of text and label")
            labels = labels or _two_labels(rows, where, report)
            for number, text, value in rows:
                if value not in labels:
                    raise InputError(
                        f"{where} line {number} has the label {value[:60]!r}; accepted are "
                        f"{' and '.join(labels)}"
                    )
                yield Example(split, text, labels.index(value))


def _read(stream: BinaryIO, name: str, where: str, *columns: str) -> Iterator[Row]:
    suffix = name.lower().rpartition(".")[2]
    lines = text_lines(stream, where)
    if suffix in ("jsonl", "ndjson"):
        for number, row in json_rows(lines, where):
            text, label = (row[i] for i in _find(columns, list(row), f"{where} line {number}"))
            if not isinstance(text, str):
                raise InputError(f"{where} line {number}: {columns[0]} is {text!r}, not a text")
            yield number, text, _canonical(label)
        return
    if suffix not in ("csv", "tsv", "txt"):
        raise InputError(
            f"{where} must end in .csv, .tsv, .txt (as .tsv), .jsonl or .ndjson, each also with .gz"
        )
    rows = delimited_rows(lines, where, "," if suffix == "csv" else "\t", quoting=suffix == "csv")
    places = None
    for number, row in rows:
        if places is None:
            has_header = not columns[0].isdigit()
            header = row if has_header else [str(index) for index in range(len(row))]
            places = [header.index(column) for column in _find(columns, header, where)]
            if has_header:
                continue
        yield number, row[places[0]], _canonical(row[places[1]])


def _find(columns: tuple[str, str], present: list[str], where: str) -> tuple[str, str]:
    """``columns``; InputError if one is absent."""
    for column in columns:
        if column not in present:
            raise InputError(
                f"{where} has no column {column!r}; its columns are {str(present)[:200]}: "
                "choose with --text_column and --label_column (numbers if there is no header)"
            )
    return columns


def _canonical(label: object) -> str:
    """A label as text; integers in any spelling (1.0, 01, JSON's true) are the same label."""
    text = str(int(label)) if isinstance(label, bool) else str(label).strip()
    return str(int(float(text))) if re.fullmatch(r"[+-]?\d{1,15}(\.0*)?", text) else text


def _two_labels(rows: list[Row], where: str, report: ReadReport) -> tuple[str, str]:
    lines: dict[str, int] = {}
    for number, _, value in rows:
        lines.setdefault(value, number)
    for value, number in lines.items():
        if value.lower() in _ABSENT:
            raise InputError(
                f"{where} line {number} has no label ({value!r}); fill it in or remove the row, or "
                "name both labels with --labels ZERO ONE if this is one of them"
            )
    if lines.keys() <= {"0", "1"}:
        return "0", "1"
    if len(lines) > 2:
        raise InputError(
            f"{where} line {list(lines.values())[2]} has a third label; the task is binary, and "
            f"this column holds {', '.join(map(repr, list(lines)[:6]))}: keep two, or name another "
            "--label_column"
        )
    if len(lines) < 2:
        raise InputError(f"{where} has only the label {next(iter(lines))!r}: both are needed")
    try:
        zero, one = sorted(lines, key=float)
    except ValueError:
        zero, one = sorted(lines)
    report.notes.append(
        f"label {zero!r} is 0 and {one!r} is 1 (sorted; --labels ZERO ONE sets them)"
    )
    return zero, one

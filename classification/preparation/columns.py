"""A user's own texts: CSV, TSV or JSON lines with a column of texts and one of labels."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from attention_dynamics.cli import InputError
from attention_dynamics.preparation import ReadReport
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import delimited_rows, json_rows, text_lines
from preparation.examples import Example, unknown_label

TEXT_COLUMN, LABEL_COLUMN = "text", "label"

# Spellings of an absent label, in lower case.
_ABSENT = {"", "na", "n/a", "<na>", "nan", "none", "null"}


def read_columns(
    parts: dict[str, Source],
    text_column: str,
    label_column: str,
    labels: tuple[str, str] | None,
    report: ReadReport,
) -> Iterator[Example]:
    """The examples of a training and a test file.

    Args:
        parts: "train" and "test" -> a source of one .csv, .tsv, .txt, .jsonl or .ndjson file. In
            CSV, quotes enclose a field; in TSV they are text.
        text_column: name in the header, or 0-based number in a file without header.
        label_column: name or number of the column of labels.
        labels: the two values that mean 0 and 1; None takes 0 and 1 themselves, or else the two
            values of the training file (numbers by size, others as text), and notes which is which.
        report: receives the note.

    Raises InputError for an absent column, a malformed line, or an absent or third label.
    """
    if text_column.isdigit() != label_column.isdigit():
        raise InputError(
            "--text_column and --label_column must both be names, or both be column numbers, not "
            f"{text_column!r} and {label_column!r}"
        )
    labels = labels and tuple(map(_canonical, labels))
    for split, source in parts.items():
        name = source.only_file(f"--{split}")
        for _, stream in source.open_all([name]):
            where = source.place(name)
            rows = list(_read(stream, name, where, text_column, label_column))
            if not rows:
                raise InputError(f"{where} holds no row of text and label")
            if labels is None:
                labels = _two_labels(rows, where, report)
            for number, text, value in rows:
                if value not in labels:
                    raise unknown_label(value, " and ".join(labels), where, number)
                yield Example(split, text, labels.index(value))


def _read(
    stream: BinaryIO, name: str, where: str, text_column: str, label_column: str
) -> Iterator[tuple[int, str, str]]:
    """(line, text, canonical label) of each row."""
    suffix = name.lower().rpartition(".")[2]
    lines = text_lines(stream, where)
    if suffix in ("jsonl", "ndjson"):
        for number, row in json_rows(lines, where):
            for column in (text_column, label_column):
                if column not in row:
                    raise _no_column(column, list(row), f"{where} line {number}")
            text = row[text_column]
            if not isinstance(text, str):
                raise InputError(f"{where} line {number}: {text_column} is {text!r}, not a text")
            yield number, text, _canonical(row[label_column])
        return
    if suffix not in ("csv", "tsv", "txt"):
        raise InputError(
            f"{where} must end in .csv, .tsv, .txt (as .tsv), .jsonl or .ndjson, each also with .gz"
        )
    rows = delimited_rows(lines, where, "," if suffix == "csv" else "\t", quoting=suffix == "csv")
    columns = None
    for number, row in rows:
        if columns is None:
            header = [str(index) for index in range(len(row))] if text_column.isdigit() else row
            for column in (text_column, label_column):
                if column not in header:
                    raise _no_column(column, row, where)
                if header.count(column) > 1:
                    raise InputError(
                        f"{where} has the column {column!r} twice; rename or remove one"
                    )
            columns = header.index(text_column), header.index(label_column)
            if header is row:
                continue
        yield number, row[columns[0]], _canonical(row[columns[1]])


def _no_column(column: str, present: list[str], where: str) -> InputError:
    columns = ", ".join(f"{index} {name[:30]!r}" for index, name in enumerate(present))
    return InputError(
        f"{where} has no column {column!r}; its columns are {columns}: choose with --text_column "
        "and --label_column (numbers if there is no header)"
    )


def _canonical(label: object) -> str:
    """A label as text; integers in any spelling (1.0, 01, JSON's true) are the same label."""
    text = str(int(label)) if isinstance(label, bool) else str(label).strip()
    return str(int(float(text))) if re.fullmatch(r"[+-]?\d{1,15}(\.0*)?", text) else text


def _two_labels(
    rows: list[tuple[int, str, str]], where: str, report: ReadReport
) -> tuple[str, str]:
    seen: dict[str, int] = {}
    for number, _, value in rows:
        seen.setdefault(value, number)
    for value, number in seen.items():
        if value.lower() in _ABSENT:
            raise InputError(
                f"{where} line {number} has no label ({value!r}); fill it in or remove the row, or "
                "name both labels with --labels ZERO ONE if this is one of them"
            )
    if seen.keys() <= {"0", "1"}:
        return "0", "1"
    if len(seen) > 2:
        listed = ", ".join(f"{value[:30]!r}" for value in list(seen)[:6])
        number = list(seen.values())[2]
        raise InputError(
            f"{where} line {number} has a third label; the task is binary, and this column holds "
            f"{listed}{', ...' if len(seen) > 6 else ''}: keep two, or name another --label_column"
        )
    if len(seen) < 2:
        raise InputError(
            f"{where} has only the label {next(iter(seen))!r}: a classifier needs both in training"
        )
    try:
        zero, one = sorted(seen, key=float)
    except ValueError:
        zero, one = sorted(seen)
    report.notes.append(
        f"label {zero!r} is 0 and {one!r} is 1 (sorted; --labels ZERO ONE sets them)"
    )
    return zero, one

"""A user's own texts: CSV, TSV or JSON lines with a column of texts and one of labels."""

from collections.abc import Iterator
from typing import BinaryIO

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import delimited_rows, json_rows, text_lines
from preparation.examples import Example, Findings, unknown_label

TEXT_COLUMN, LABEL_COLUMN = "text", "label"


def read_columns(
    parts: dict[str, Source],
    text_column: str,
    label_column: str,
    labels: tuple[str, str] | None,
    found: Findings,
) -> Iterator[Example]:
    """The examples of a training and a test file.

    Args:
        parts: "train" and "test" -> a source of one .csv, .tsv, .txt, .jsonl or .ndjson file. In
            CSV, quotes enclose a field; in TSV they are text.
        text_column: name in the header, or 0-based number in a file without header.
        label_column: likewise.
        labels: the two values that mean 0 and 1; None takes 0 and 1 themselves, or else the two
            values of the training file in sorted order, and notes which is which.
        found: where the note goes.

    Raises InputError for a column that is not there, a malformed line, or a label that is neither.
    """
    if text_column.isdigit() != label_column.isdigit():
        raise InputError(
            "--text_column and --label_column must both be names, or both be column numbers, not "
            f"{text_column!r} and {label_column!r}"
        )
    for split, source in parts.items():
        if len(source.names) > 1:
            raise InputError(f"--{split} must be one file, but {source.described()}")
        for name, stream in source.open_all(source.names):
            where = source.place(name)
            rows = list(_read(stream, name, where, text_column, label_column))
            if not rows:
                raise InputError(f"{where} holds no row of text and label")
            if labels is None:
                labels = _two_labels(rows, where, found)
            for number, text, value in rows:
                if value not in labels:
                    raise unknown_label(value, " and ".join(labels), where, number)
                yield Example(split, text, labels.index(value))


def _read(
    stream: BinaryIO, name: str, where: str, text_column: str, label_column: str
) -> Iterator[tuple[int, str, str]]:
    """(line, text, label as written) of each row."""
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
            yield number, text, _as_written(row[label_column])
        return
    if suffix not in ("csv", "tsv", "txt"):
        raise InputError(
            f"{where} must end in .csv, .tsv, .txt (as .tsv), .jsonl or .ndjson, each also with .gz"
        )
    rows = delimited_rows(lines, where, "," if suffix == "csv" else "\t", quoting=suffix == "csv")
    places = None
    for number, row in rows:
        if places is None:
            header = [str(place) for place in range(len(row))] if text_column.isdigit() else row
            for column in (text_column, label_column):
                if column not in header:
                    raise _no_column(column, row, where)
                if header.count(column) > 1:
                    raise InputError(
                        f"{where} has the column {column!r} twice: rename one, or take out one of "
                        "its headers"
                    )
            places = header.index(text_column), header.index(label_column)
            if header is row:
                continue
        yield number, row[places[0]], row[places[1]].strip()


def _no_column(column: str, present: list[str], where: str) -> InputError:
    columns = ", ".join(f"{place} {name[:30]!r}" for place, name in enumerate(present))
    return InputError(
        f"{where} has no column {column!r}; its columns are {columns}: choose with --text_column "
        "and --label_column (numbers where there is no header)"
    )


def _as_written(value: object) -> str:
    """A JSON label as CSV would have it: true and 1.0 are 1."""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    return str(value)


def _two_labels(
    rows: list[tuple[int, str, str]], where: str, found: Findings
) -> tuple[str, str] | None:
    seen: dict[str, int] = {}
    for number, _, value in rows:
        seen.setdefault(value, number)
    for value in ("", "nan", "None"):
        if value in seen:
            raise InputError(
                f"{where} line {seen[value]} has no label: fill it in, or drop the row"
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
    zero, one = sorted(seen)
    found.notes.append(
        f"label {zero!r} is 0 and {one!r} is 1 (sorted; --labels ZERO ONE sets them)"
    )
    return zero, one

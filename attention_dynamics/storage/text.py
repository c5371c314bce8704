"""Lines, delimited rows and JSON lines of text files, with errors that name file and line."""

import csv
from collections.abc import Iterator
from typing import BinaryIO

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import parse_json

# The longest line, and field of a csv (whose own limit of 128 KB is shorter than some reviews). A
# longer one is no text, and would fill the memory.
LONGEST = 1 << 26
csv.field_size_limit(LONGEST)


def has_lone_surrogate(text: str) -> bool:
    """Whether ``text`` holds half of a surrogate pair: JSON can, but no text can be written so."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def text_lines(stream: BinaryIO, where: str) -> Iterator[str]:
    """The lines of a UTF-8 stream, each with its line end; a byte-order mark is left out.

    Only ``\\n`` ends a line: texts hold form feeds and Unicode separators that ``str.splitlines``
    would cut at. InputError names ``where`` and the line and byte of what is not UTF-8, and the
    line that is longer than ``LONGEST``.
    """
    start = 0
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST), b""), 1):
        if len(line) == LONGEST:
            raise InputError(f"{where} line {number} is longer than {LONGEST:,} bytes: no text")
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{where} is not UTF-8 text: line {number}, byte {start + error.start}; convert "
                "it, e.g. with iconv -f LATIN1 -t UTF-8"
            ) from None
        start += len(line)
        yield text.removeprefix("\ufeff") if number == 1 else text


def delimited_rows(
    lines: Iterator[str], where: str, delimiter: str, quoting: bool
) -> Iterator[tuple[int, list[str]]]:
    """(line number of the row's end, fields) of each row that is not blank.

    Args:
        lines: with their line ends.
        where: the file, for errors.
        delimiter: between fields.
        quoting: whether ``"..."`` encloses a field, as in CSV; without it, quotes are text.

    Raises InputError for broken quoting, and for a row with more or fewer fields than the first.
    """
    if quoting:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        rows = _numbered(reader, where)
    else:
        rows = (
            (number, line.rstrip("\r\n").split(delimiter)) for number, line in enumerate(lines, 1)
        )
    width = None
    for number, row in rows:
        if not row or row == [""]:
            continue
        if width is None:
            width = len(row)
        elif len(row) != width:
            raise InputError(
                f"{where} line {number} has {len(row)} field(s), the first row has {width}: mend "
                "the line, or its quotes"
            )
        yield number, row


def _numbered(reader, where: str) -> Iterator[tuple[int, list[str]]]:
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f"{where} line {reader.line_num} is malformed CSV: {error}") from None
        if row is None:
            return
        yield reader.line_num, row


def json_rows(lines: Iterator[str], where: str) -> Iterator[tuple[int, dict]]:
    """(line number, object) of each line of a JSON-lines file that is not blank.

    Raises InputError for a line that is malformed, or is not an object.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = parse_json(line.rstrip(), f"{where} line {number}", one_line=True)
        if not isinstance(row, dict):
            raise InputError(f'{where} line {number} is not a JSON object such as {{"text": ...}}')
        yield number, row

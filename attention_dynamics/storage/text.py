"""Lines, delimited rows and JSON lines of text files, with errors that name file and line.

Own code because pandas and csv neither name the line of an encoding error nor reject a row with too
few or too many fields.
"""

import csv
from collections.abc import Iterator
from typing import BinaryIO

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import encoding_error, parse_json

csv.field_size_limit(1 << 31)  # the default, 128 KB, is shorter than some reviews


def has_lone_surrogate(text: str) -> bool:
    """Whether ``text`` has a lone surrogate: JSON can encode it, but it is invalid Unicode."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def text_lines(stream: BinaryIO, where: str) -> Iterator[str]:
    """The lines of a UTF-8 stream, each with its line end and without byte-order marks.

    Only ``\\n`` ends a line: texts hold form feeds and Unicode separators. A byte-order mark may
    start any line, since files with one get concatenated.

    Raises InputError, which names ``where`` and the line, for other encodings.
    """
    start = 0
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            position = f"line {number}, byte {start + error.start}"
            raise encoding_error(where, position, line) from None
        start += len(line)
        yield text.removeprefix("\ufeff")


def delimited_rows(
    lines: Iterator[str], where: str, delimiter: str, quoting: bool
) -> Iterator[tuple[int, list[str]]]:
    """(line number of the row's end, fields) of each row of the file ``where`` that is not blank.

    With ``quoting``, ``"..."`` encloses a field, as in CSV; without it, quotes are text. Raises
    InputError for broken quoting, and for a row with more or fewer fields than the first.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    rows = reader if quoting else (line.rstrip("\r\n").split(delimiter) for line in lines)
    width = None
    try:
        for number, row in enumerate(rows, 1):
            number = reader.line_num if quoting else number
            if not row or row == [""]:
                continue
            width = width or len(row)
            if len(row) != width:
                raise InputError(
                    f"{where} line {number} has {len(row)} field(s), the first row has {width}; "
                    "fix the line, or its quotes"
                )
            yield number, row
    except csv.Error as error:
        raise InputError(f"{where} line {reader.line_num} is malformed CSV: {error}") from None


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

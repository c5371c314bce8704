"""Atomic writes (a temporary name, then a rename), JSON and checksums.

Own code because writers of one file wait for each other, and errors name the output.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attention_dynamics.cli import InputError


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A binary file that replaces ``path`` only when all of it is on disk.

    If the block raises, or the disk fills, the old file stays as it was and nothing is left behind.
    Other processes that write ``path`` wait; what a killed one has left is overwritten.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _open_alone(temporary) as stream:
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                os.replace(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a full disk names no file
            error.filename = str(path)
        raise


def _open_alone(path: Path) -> BinaryIO:
    """The empty file ``path``, locked until it is closed; waits for the process that has it."""
    while True:
        stream = os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o666), "w+b")
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(stream, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                stream.truncate()
                return stream
        stream.close()  # the other process has renamed or removed it


def check_writable(path: str | os.PathLike, beside: Path | None = None) -> None:
    """Reject an output path before the work is done rather than after it.

    Raises InputError if ``path`` is a folder, is inside a file or in a folder without write
    permission, or is in the folder ``beside``, whose files must not be replaced.
    """
    path = Path(path)
    parent = next(filter(Path.exists, path.parents))
    if path.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(
            f"{str(path)!r} cannot be written: it is a folder, lies in a file, or lacks permission"
        )
    if beside is not None and path.resolve().parent == beside.resolve():
        raise InputError(f"{path} lies among the files that are read: name one outside {beside}/")


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path`` atomically."""
    with atomic_write(path) as stream:
        stream.write(text.encode())


def json_text(value: object, indent: int | None = 2) -> str:
    """``value`` as the text of a JSON file."""
    return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"


def write_json(path: str | os.PathLike, value: object, indent: int | None = 2) -> None:
    """Write ``value`` as JSON to ``path`` atomically."""
    write_text(path, json_text(value, indent))


def write_together(files: dict[Path, bytes]) -> None:
    """Write several files; the old ones stay when one of them cannot be written.

    The first one is removed before, and appears after all others: it stands for a complete set.
    """
    with contextlib.ExitStack() as stack:
        for path, content in files.items():
            stream = stack.enter_context(atomic_write(path))
            stream.write(content)
            stream.flush()
        next(iter(files)).unlink(missing_ok=True)


def write_pickle(path: str | os.PathLike, value: object) -> None:
    """Write ``value`` as a pickle (protocol 5, streamed: arrays are not copied) to ``path``."""
    with atomic_write(path) as stream:
        pickle.dump(value, stream, protocol=5)


def opened(path: str | os.PathLike, what: str) -> BinaryIO:
    """The file at ``path``, opened for reading; InputError if it is missing or a folder."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{what} {path} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{what} {path} is a folder, not a file") from None


def read_json(path: str | os.PathLike, what: str = "file") -> object:
    """The JSON value in ``path``; InputError names the file and the position of a mistake."""
    with opened(path, what) as stream:
        content = stream.read()
    try:
        return parse_json(content.decode("utf-8-sig"), f"{what} {path}")
    except UnicodeDecodeError as error:
        raise encoding_error(f"{what} {path}", f"byte {error.start}", content) from None


def encoding_error(where: str, position: str, start: bytes) -> InputError:
    """The error of a text ``where`` that begins with ``start`` and is not UTF-8 at ``position``."""
    encoding = "UTF-16" if start.startswith((b"\xff\xfe", b"\xfe\xff")) else "LATIN1"
    return InputError(
        f"{where} is not UTF-8 text: {position}; convert it from its encoding, for example with "
        f"iconv -f {encoding} -t UTF-8"
    )


def parse_json(text: str, where: str, one_line: bool = False) -> object:
    """The JSON value that ``text`` is; InputError names ``where`` and the position of a mistake.

    If the text is ``one_line`` of a file, which ``where`` names, the position is the column.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"{'' if one_line else f'line {error.lineno} '}column {error.colno}"
        raise InputError(f"{where} is malformed JSON at {at}: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # thousands of digits or of brackets
        raise InputError(f"{where} cannot be read: {error}") from None


def sha256(path: str | os.PathLike) -> str:
    """Hexadecimal SHA-256 of a file, or of a folder (names and contents of all files, in order)."""
    path = Path(path)
    if not path.is_dir():
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
    for member in sorted(entry for entry in path.rglob("*") if entry.is_file()):
        digest.update(f"{member.relative_to(path).as_posix()}\0{sha256(member)}\n".encode())
    return digest.hexdigest()

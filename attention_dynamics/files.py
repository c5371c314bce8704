"""Whole files only: a file is written under a temporary name, then renamed; JSON and checksums."""

import contextlib
import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attention_dynamics.errors import InputError


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A binary file to write to that takes the place of ``path`` only when all of it is on disk.

    If the block raises, or the disk fills, the old file stays as it was and nothing is left behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part"
    )
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file it was
        raise


def check_writable(path: str | os.PathLike, beside: Path) -> None:
    """Refuse an output path before the work is done rather than after it.

    Raises InputError when ``path`` is a folder, lies in a file or where nothing may be written, or
    is in the folder ``beside``, whose files are not to be replaced.
    """
    path = Path(path)
    parents = [parent for parent in path.parents if parent.exists()]
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} cannot be written: it is a device or a pipe; name a file")
    if path.is_dir() or not parents[0].is_dir():
        raise InputError(f"{str(path)!r} cannot be written: it is a folder, or lies in a file")
    if path.resolve().parent == beside.resolve():
        raise InputError(f"{path} lies among the files that are read: name one outside {beside}/")
    if not os.access(parents[0], os.W_OK):
        raise InputError(f"{path} cannot be written: no permission in {parents[0]}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path``, whole or not at all."""
    with whole_file(path) as stream:
        stream.write(text.encode())


def json_text(value: object, indent: int | None = 2) -> str:
    """``value`` as the text of a JSON file."""
    return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"


def write_json(path: str | os.PathLike, value: object, indent: int | None = 2) -> None:
    """Write ``value`` as JSON to ``path``, whole or not at all."""
    write_text(path, json_text(value, indent))


def write_together(files: dict[Path, bytes]) -> None:
    """Write several files; the old ones stay when one of them cannot be written.

    The first one takes its place last, and its old one is removed before any other does, so that it
    stands for a complete set.
    """
    with contextlib.ExitStack() as stack:
        for path, content in files.items():
            stream = stack.enter_context(whole_file(path))
            stream.write(content)
            stream.flush()
        next(iter(files)).unlink(missing_ok=True)


def write_pickle(path: str | os.PathLike, value: object) -> None:
    """Write ``value`` as a pickle (protocol 5, streamed: arrays are not copied) to ``path``."""
    with whole_file(path) as stream:
        pickle.dump(value, stream, protocol=5)


def read_json(path: str | os.PathLike, what: str = "file") -> object:
    """The JSON value in ``path``; InputError names the file and the position of a mistake."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{what} {path} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{what} {path} is a folder, not a JSON file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{what} {path} is not UTF-8 text (byte {error.start})") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{what} {path} is malformed JSON at line {error.lineno} column {error.colno}: "
            f"{error.msg}"
        ) from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{what} {path} cannot be read: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{what} {path} is nested too deeply to be read") from None


def sha256(path: str | os.PathLike) -> str:
    """Hexadecimal SHA-256 of a file, or of a folder (names and contents of all files, in order)."""
    path = Path(path)
    digest = hashlib.sha256()
    if path.is_dir():
        for member in sorted(entry for entry in path.rglob("*") if entry.is_file()):
            digest.update(f"{member.relative_to(path).as_posix()}\0{sha256(member)}\n".encode())
    else:
        with open(path, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()

"""Atomic writes (a temporary name, then a rename), JSON and checksums.

Own code because temporary files of killed processes are removed, and errors name the output.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attention_dynamics.cli import InputError

_PART = ".part"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A binary file to write to that takes the place of ``path`` only when all of it is on disk.

    If the block raises, or the disk fills, the old file stays as it was and nothing is left behind.
    What a process that was killed has left of the same file is removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name[:50]}."
    remove_abandoned(path.parent, prefix)
    temporary = None
    try:
        handle, temporary = _new_part(path.parent, prefix)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)  # while it is locked
    except BaseException as error:
        if temporary:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        # A full disk does not say which file it was; others name the temporary one.
        if isinstance(error, OSError):
            named = os.path.basename(str(error.filename or prefix))
            if named.startswith(prefix):
                error.filename = str(path)
        raise


def _new_part(folder: Path, prefix: str) -> tuple[int, str]:
    """A new temporary file, locked until it is closed: so that others see it is being written."""
    while True:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=_PART)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(temporary):
            return handle, temporary
        os.close(handle)  # another process took it for abandoned before it was locked


def remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove temporary files that begin with ``prefix``, but for those that are being written."""
    with os.scandir(folder) as entries:
        found = [e.path for e in entries if e.name.startswith(prefix) and e.name.endswith(_PART)]
    for path in found:
        with contextlib.suppress(OSError), open(path, "rb") as stream:
            if _is_locked(stream.fileno()):
                os.unlink(path)


def _is_locked(handle: int) -> bool:
    """Whether the file could be locked for this process; not where there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def check_writable(path: str | os.PathLike, beside: Path | None = None) -> None:
    """Refuse an output path before the work is done rather than after it.

    Raises InputError if ``path`` is a folder, is inside a file or in a folder without write
    permission, or is in the folder ``beside``, whose files must not be replaced.
    """
    path = Path(path)
    parents = [parent for parent in path.parents if parent.exists()]
    if path.is_dir() or not parents[0].is_dir():
        raise InputError(f"{str(path)!r} cannot be written: it is a folder, or lies in a file")
    if beside is not None and path.resolve().parent == beside.resolve():
        raise InputError(f"{path} lies among the files that are read: name one outside {beside}/")
    if not os.access(parents[0], os.W_OK):
        raise InputError(f"{path} cannot be written: no permission in {parents[0]}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path``, whole or not at all."""
    with atomic_write(path) as stream:
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
        try:
            text = stream.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{what} {path} is not UTF-8 text (byte {error.start})") from None
        return parse_json(text, f"{what} {path}")


def parse_json(text: str, where: str, one_line: bool = False) -> object:
    """The JSON value that ``text`` is; InputError names ``where`` and the position of a mistake.

    If the text is ``one_line`` of a file, which ``where`` names, the position is the column.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = "" if one_line else f"line {error.lineno} "
        raise InputError(
            f"{where} is malformed JSON at {line}column {error.colno}: {error.msg}"
        ) from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where} cannot be read: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply to be read") from None


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

"""Whole files only: a file is written under a temporary name, then renamed; JSON and checksums.

Files that are read may come from strangers, or be damaged: :func:`opened` and
:func:`bounded_memory` keep them from more than an error.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pickle
import resource
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attention_dynamics.cli import InputError

# What reading a file may take of memory: this much, and so many times its size. Honest files of
# many small objects take up to 30 times their size.
_ROOM, _TIMES = 1 << 30, 64

_PART = ".part"
_LONGEST_NAME = 255  # bytes, of nearly all file systems


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

    Raises InputError when ``path`` is a folder, lies in a file or where nothing may be written, has
    too long a name, or is in the folder ``beside``, whose files are not to be replaced.
    """
    path = Path(path)
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts):
        raise InputError(f"{str(path)[:60]!r}... cannot be written: its name is too long")
    parents = [parent for parent in path.parents if parent.exists()]
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} cannot be written: it is a device or a pipe; name a file")
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
    """The file at ``path`` to read; InputError when it is missing, a folder, or a pipe."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{what} {path} does not exist") from None
    kind = "folder" if stat.S_ISDIR(mode) else "device or a pipe"
    raise InputError(f"{what} {path} is a {kind}, not a file")


@contextlib.contextmanager
def bounded_memory(path: str | os.PathLike, what: str) -> Iterator[None]:
    """While the file at ``path`` is read, memory that is out of all proportion to it is refused.

    Raises InputError when the block runs out of memory. Where the system does not tell how much
    memory a process takes (macOS), the block is not bounded.
    """
    size = os.stat(path).st_size
    limits = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    if statm.exists():
        taken = int(statm.read_text().split()[0]) * resource.getpagesize()
        most = taken + _ROOM + _TIMES * size
        if limits[0] == resource.RLIM_INFINITY or most < limits[0]:
            resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    try:
        yield
    except MemoryError:
        raise InputError(
            f"{what} {path} of {size:,} bytes takes too much memory: it is damaged, or made to "
            "fill the memory"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def read_json(path: str | os.PathLike, what: str = "file") -> object:
    """The JSON value in ``path``; InputError names the file and the position of a mistake."""
    with opened(path, what) as stream, bounded_memory(path, what):
        try:
            text = stream.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{what} {path} is not UTF-8 text (byte {error.start})") from None
        return parse_json(text, f"{what} {path}")


def parse_json(text: str, where: str, one_line: bool = False) -> object:
    """The JSON value that ``text`` is; InputError names ``where`` and the position of a mistake.

    Of text that is ``one_line`` of a file, which ``where`` names, the position is the column. A key
    that an object has twice is a mistake as well: one of its values would be lost.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        line = "" if one_line else f"line {error.lineno} "
        raise InputError(
            f"{where} is malformed JSON at {line}column {error.colno}: {error.msg}"
        ) from None
    except ValueError as error:  # a key twice, or a number of thousands of digits
        raise InputError(f"{where} cannot be read: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply to be read") from None


def _object(pairs: list[tuple[str, object]]) -> dict:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"it has the key {twice[:60]!r} twice in one object")
    return content


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

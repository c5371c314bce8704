"""One process at a time for a run folder or an output."""

import contextlib
import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attention_dynamics.errors import WorkError
from attention_dynamics.files import remove_abandoned

# What a file system without locks answers.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


@contextlib.contextmanager
def locked(path: str | os.PathLike) -> Iterator[None]:
    """Hold the lock of a run folder or output while the block runs.

    The lock is that of the system on a file beside ``path``, which ends with its process, however
    that ends; the file says who holds it. Where the file system has no locks, what the file says
    decides: of a process of this host it is seen whether it still runs. What a killed owner had
    begun to write is removed.

    Raises WorkError that names host and process id of the owner when another process has it.
    """
    path = Path(path)
    file = path.parent / f".{path.name}.lock"
    new_folder = not file.parent.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    stream = _taken(file, path)
    with stream:
        stream.seek(0)
        stream.truncate()
        stream.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode())
        stream.flush()
        try:
            remove_abandoned(path.parent, f".{path.stem[:50]}")
            if path.is_dir():
                remove_abandoned(path, ".")
            yield
        finally:
            file.unlink(missing_ok=True)
            if new_folder:
                with contextlib.suppress(OSError):
                    file.parent.rmdir()  # nothing was written


def _taken(file: Path, path: Path) -> BinaryIO:
    while True:
        stream = os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _owned(file, path, stream) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                stream.close()
                raise
            if _may_run(_owner(stream)):
                raise _owned(file, path, stream) from None
        # Its owner may have removed the file before the lock was ours: then ours is worth nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(file)):
                return stream
        stream.close()


def _owned(file: Path, path: Path, stream: BinaryIO) -> WorkError:
    owner = _owner(stream)
    stream.close()
    return WorkError(
        f"{path} is being written by process {owner.get('pid', 'unknown')} on host "
        f"{owner.get('host', 'unknown')} (if that one is gone, remove {file})"
    )


def _owner(stream: BinaryIO) -> dict:
    stream.seek(0)
    try:
        owner = json.loads(stream.read(300))
    except ValueError:  # its owner is just writing it, or was killed then
        return {}
    return owner if isinstance(owner, dict) else {}


def _may_run(owner: dict) -> bool:
    """Whether the owner that a lock file names may still be there; nobody is named: no."""
    if owner.get("host") != socket.gethostname():
        return bool(owner)
    try:
        os.kill(int(owner["pid"]), 0)
    except (ProcessLookupError, KeyError, ValueError, TypeError, OverflowError):
        return False
    except PermissionError:
        return True
    return int(owner["pid"]) != os.getpid()

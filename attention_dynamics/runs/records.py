"""Records of runs (unfinished.json, then run.json), their provenance, and locks."""

import contextlib
import datetime
import errno
import fcntl
import importlib.metadata
import json
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import attention_dynamics
from attention_dynamics.cli import InputError, RunError
from attention_dynamics.runs.paths import (
    checkpoint_path,
    record_path,
    state_path,
    unfinished_path,
)
from attention_dynamics.storage.files import (
    read_json,
    remove_abandoned,
    sha256,
    write_json,
)

# The version of run folders: what run.json says, and how checkpoints come from its settings.
RUN_FORMAT = 1


# The pinned packages that can change a number.
_PACKAGES = (
    "torch", "torchtext", "numpy", "scipy", "scikit-learn", "sacrebleu", "sentencepiece",
    "datasets", "transformers", "accelerate", "seqeval",
)  # fmt: skip


def provenance() -> dict:
    """What is needed to run this again: command, commit, versions, machine, time (UTC)."""
    return {
        "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "commit": _commit(),
        "versions": {
            "attention_dynamics": attention_dynamics.__version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in _PACKAGES},
        },
        "machine": platform.machine(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def file_facts(path: str | os.PathLike) -> dict:
    """The name and the checksum of a file or folder that data were prepared from."""
    return {"name": Path(path).resolve().name, "sha256": sha256(path)}


def preparation_command(argv: list[str] | None) -> str:
    """The command without the folders of absolute paths, which are nobody else's business."""
    given = sys.argv[1:] if argv is None else argv
    shown = [Path(word).name if os.path.isabs(word) else word for word in map(str, given)]
    return shlex.join(["python", "prepare_data.py", *shown])


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    here = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            # Without the lock of the index: when this is killed, the lock would stay.
            ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None  # not a clone, or no git here
    return described.stdout.strip()


def differences(earlier: dict, now: dict) -> str:
    """What differs between the settings of two runs, in words; empty when nothing does."""
    differing = [key for key in {**earlier, **now} if earlier.get(key) != now.get(key)]
    return "; ".join(f"{key} was {earlier.get(key)!r}, is {now.get(key)!r}" for key in differing)


def begin_run(folder: Path, settings: dict, overwrite: bool) -> bool:
    """Open the run ``folder`` for writing; False if this run is already finished there.

    An unfinished run with the same settings keeps its resume state and its checkpoints.

    Args:
        folder: directory of the run.
        settings: everything that determines the weights (seed, config, data checksum, steps, ...).
        overwrite: whether to replace a run with different settings, or a finished one.

    Raises InputError, which names the difference, if ``folder`` holds a run with different settings
    and ``overwrite`` is false.
    """
    record, begun, state = record_path(folder), unfinished_path(folder), state_path(folder)
    if (record.exists() or begun.exists()) and not overwrite:
        earlier = read_run(folder)
        old = {"format": earlier.get("format", RUN_FORMAT), **earlier["settings"]}
        new = {"format": RUN_FORMAT, **json.loads(json.dumps(settings))}
        if what := differences(old, new):
            kind = "a finished" if earlier.get("finished") else "an unfinished"
            raise InputError(
                f"{folder} holds {kind} run of other settings ({what}); --overwrite replaces it"
            )
        if earlier.get("finished"):
            lost = [s for s in new.get("saves", []) if not checkpoint_path(folder, s).exists()]
            if lost:
                raise InputError(
                    f"{folder} is finished, but its checkpoint(s) {', '.join(map(str, lost))} are "
                    "gone; --overwrite trains the run anew"
                )
            state.unlink(missing_ok=True)
            begun.unlink(missing_ok=True)
            return False
        if record.exists():  # earlier versions wrote run.json at the start of a run
            record.replace(begun)
        if state.exists():
            return True
    elif not overwrite and (others := sorted(folder.glob("model*"))):
        raise InputError(
            f"{folder} holds {len(others)} checkpoint(s) without a run.json, made by other code; "
            "move them away, or --overwrite replaces them"
        )
    # In this order: if it stops after any line, the record still describes the checkpoints.
    state.unlink(missing_ok=True)
    content = {"format": RUN_FORMAT, "settings": settings, **provenance(), "finished": None}
    write_json(begun, content)
    record.unlink(missing_ok=True)
    for stale in folder.glob("model*"):
        stale.unlink()
    return True


def read_run(folder: Path) -> dict:
    """The record of a run, finished or not; InputError if it is not a run record."""
    record = record_path(folder)
    record = record if record.exists() else unfinished_path(folder)
    try:
        content = read_json(record, "run record")
    except InputError as error:
        raise InputError(f"{error}; --overwrite trains the run anew") from None
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        raise InputError(f"{record} is not a run record; --overwrite trains the run anew")
    return content


def check_trained_on(folder: Path, checksum: str) -> None:
    """Raise InputError if the run was trained on data that differ from the current data.

    Runs of other code have no record: nothing is known about their data, and nothing is checked.
    """
    if not (record_path(folder).exists() or unfinished_path(folder).exists()):
        return
    trained = read_run(folder)["settings"].get("data")
    if trained != checksum:
        raise InputError(
            f"{folder} was trained on other data than data/ holds now (checksum {trained}, now "
            f"{checksum}): prepare that data again, or train the run again with --overwrite"
        )


def finish_run(folder: Path, results: dict) -> None:
    """Write run.json, with the ``results``: the run is finished. Its resume state is removed."""
    begun = unfinished_path(folder)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    content = {**read_json(begun, "run record"), "finished": now, "results": results}
    write_json(record_path(folder), content)
    state_path(folder).unlink(missing_ok=True)
    begun.unlink(missing_ok=True)


def is_unfinished(folder: Path) -> bool:
    """Whether a run has begun in ``folder`` and is not finished.

    Runs of other code have no record and count as finished.
    """
    begun = record_path(folder).exists() or unfinished_path(folder).exists()
    return begun and not read_run(folder).get("finished")


# What a file system without locks answers.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


@contextlib.contextmanager
def locked(path: str | os.PathLike) -> Iterator[None]:
    """Hold the lock of a run folder or output while the block runs.

    The lock is that of the system on a file beside ``path``, which ends with its process, however
    that ends; the file says who holds it. Where the file system has no locks, what the file says
    decides: of a process of this host it is seen whether it still runs. What a killed owner had
    begun to write is removed.

    Raises RunError that names host and process id of the owner when another process has it.
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


def _owned(file: Path, path: Path, stream: BinaryIO) -> RunError:
    owner = _owner(stream)
    stream.close()
    return RunError(
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

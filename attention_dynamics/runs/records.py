"""Records of training runs (unfinished.json, then run.json), provenance, and locks."""

import contextlib
import datetime
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

from filelock import FileLock, Timeout

import attention_dynamics
from attention_dynamics.cli import InputError, RunError
from attention_dynamics.runs.paths import checkpoint_path, record_path, state_path, unfinished_path
from attention_dynamics.storage.files import read_json, write_json

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
        "started": _now(),
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _version(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)


def _commit() -> str | None:
    # Without the lock of the index: when this is killed, the lock would stay.
    command = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40"]
    options = {"cwd": Path(__file__).parent, "stderr": subprocess.DEVNULL, "timeout": 10}
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # not a clone, or no git here
        return subprocess.check_output(command, text=True, **options).strip()


def differences(earlier: dict, now: dict) -> str:
    """What differs between the settings of two runs, in words; empty when nothing does."""
    now = json.loads(json.dumps(now))  # tuples become lists
    differing = [key for key in {**earlier, **now} if earlier.get(key) != now.get(key)]
    return "; ".join(f"{key} was {earlier.get(key)!r}, is {now.get(key)!r}" for key in differing)


def check_same_settings(what: str, earlier: dict, now: dict) -> None:
    """Raise InputError "{what} with different settings ..." if the settings differ."""
    if differing := differences(earlier, now):
        raise InputError(f"{what} with different settings ({differing}); --overwrite replaces it")


def begin_run(folder: Path, settings: dict, overwrite: bool) -> bool:
    """Open the run ``folder`` for writing; False if this run is already finished there.

    An unfinished run with the same ``settings``, which are everything that determines the weights,
    keeps its resume state and its checkpoints; ``overwrite`` replaces any run.

    Raises InputError, which names the difference, if ``folder`` holds a run with different settings
    and ``overwrite`` is false.
    """
    record, begun, state = record_path(folder), unfinished_path(folder), state_path(folder)
    earlier = None if overwrite else read_run(folder)
    if earlier:
        finished = earlier.get("finished")
        kind = "a finished" if finished else "an unfinished"
        check_same_settings(f"{folder} holds {kind} run", earlier["settings"], settings)
        if finished:
            saves = settings.get("saves", [])
            if lost := [str(step) for step in saves if not checkpoint_path(folder, step).exists()]:
                raise InputError(
                    f"{folder} is finished, but its checkpoint(s) {', '.join(lost)} are gone; "
                    "--overwrite retrains the run"
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


def read_run(folder: Path) -> dict | None:
    """The record of a run, finished or not; None for a run of other code, which has no record.

    Raises InputError if it is not a run record.
    """
    record = next(filter(Path.exists, (record_path(folder), unfinished_path(folder))), None)
    if record is None:
        return None
    advice = "--overwrite retrains the run"
    try:
        content = read_json(record, "run record")
    except InputError as error:
        raise InputError(f"{error}; {advice}") from None
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        raise InputError(f"{record} is not a run record; {advice}")
    return content


def check_trained_on(folder: Path, checksum: str) -> None:
    """Raise InputError if the record of a run says that it was trained on other data."""
    run = read_run(folder)
    if run and (trained := run["settings"].get("data")) != checksum:
        raise InputError(
            f"{folder} was trained on data that does not match the current data (checksum "
            f"{trained}, now {checksum}): prepare that data again, or retrain the run with "
            "--overwrite"
        )


def finish_run(folder: Path, results: dict) -> None:
    """Write run.json, with the ``results``: the run is finished. Its resume state is removed."""
    begun = unfinished_path(folder)
    content = {**read_json(begun, "run record"), "finished": _now(), "results": results}
    write_json(record_path(folder), content)
    state_path(folder).unlink(missing_ok=True)
    begun.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: str | os.PathLike) -> Iterator[None]:
    """Hold the lock of a run folder or output while the block runs.

    The lock file is next to ``path`` and names its owner; the system releases the lock when the
    process ends.

    Raises RunError with host and process id of the owner if another process holds the lock.
    """
    path = Path(path)
    file = path.parent / f".{path.name}.lock"
    new_folder = not file.parent.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        owner = file.read_text(errors="replace").split() if file.exists() else []
        pid, host, *_ = [*owner, "unknown", "unknown"]
        raise RunError(
            f"{path} is being written by process {pid} on host {host} (if that process no longer "
            f"exists, remove {file})"
        ) from None
    try:
        file.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")
        yield
    finally:
        file.unlink(missing_ok=True)  # before the release: filelock rejects a removed file
        lock.release()
        if new_folder:
            with contextlib.suppress(OSError):
                file.parent.rmdir()  # nothing was written

"""Outputs of scripts: records, up-to-date checks, partial results and resume states."""

import contextlib
import hashlib
import io
import json
import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from attention_dynamics.cli import InputError
from attention_dynamics.runs.checkpoints import read_tensors
from attention_dynamics.runs.records import check_same_settings, differences, locked, provenance
from attention_dynamics.storage.files import atomic_write, read_json, sha256, write_json

_STARTED = time.perf_counter()  # start of this process, apart from earlier imports

# Version of the content of resume states and partial results.
FORMAT = 1


class Output:
    """An output file that :func:`output` has locked.

    Attributes:
        path: the output, a pickle.
        settings: everything that determines its content.
        is_current: whether the file exists and was made with these settings.
        partial: finished parts of the output, saved until it is written.
        state_path: resume state of the output, for ``runs.training.Training``.
    """

    def __init__(self, path: Path, settings: dict):
        """Nothing is read or changed except the record."""
        self.path, self.settings = path, settings
        record = read_output_record(path)
        self.is_current = (
            path.exists()
            and isinstance(record.get("settings"), dict)
            and not differences(record["settings"], settings)
            and record.get("sha256") == sha256(path)
        )
        self.partial = PartialResults(path)
        self.state_path = path.with_suffix(".state")

    def write(self, value: object, results: dict) -> None:
        """Write ``value`` as a pickle, and its record with the ``results`` just before it appears.

        The partial results and the resume state are removed.
        """
        with atomic_write(self.path) as stream:
            pickle.dump(value, stream, protocol=5)
            stream.seek(0)
            checksum = hashlib.file_digest(stream, "sha256").hexdigest()
            record_output(self.path, self.settings, results, checksum)
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove the partial results and the resume state."""
        self.partial.remove()
        self.state_path.unlink(missing_ok=True)


@contextlib.contextmanager
def output(
    path: Path, settings: dict, overwrite: bool, replace_stale: bool = True
) -> Iterator[Output]:
    """Lock the output ``path`` and find out whether it has to be made::

        with output(path, settings, args.overwrite) as out:
            if out.is_current:
                return
            out.write(compute(), {"accuracy": 0.9})

    ``settings`` (as JSON) determine the content; the record is the .json file beside ``path``.
    Unfinished work with the same settings is resumed: partial results through ``out.partial``, a
    training through ``out.state_path``; ``overwrite`` removes it and starts again.

    Raises RunError if another process is writing the output, and InputError if it exists with
    different settings and neither ``overwrite`` nor ``replace_stale`` is true.
    """
    with locked(path):
        out = Output(path, settings)
        if overwrite:
            out.is_current = False
        elif path.exists() and not out.is_current:
            earlier = read_output_record(path).get("settings")
            if not replace_stale and not isinstance(earlier, dict):
                raise InputError(
                    f"{path} exists, but its record {path.with_suffix('.json')} is missing or "
                    "malformed; --overwrite replaces it"
                )
            if not replace_stale:
                check_same_settings(f"{path} exists and is", earlier, settings)
            print(f"{path} is out of date or differs from its record: it is made again")
        if overwrite or out.is_current:
            out.remove_unfinished()
        yield out


def read_output_record(path: Path) -> dict:
    """The record beside an output; empty if it is missing or malformed."""
    try:
        record = read_json(path.with_suffix(".json"), "record")
    except InputError:
        return {}
    return record if isinstance(record, dict) else {}


def record_output(path: Path, settings: dict, results: dict, checksum: str) -> None:
    """Write the record beside ``path``: settings, its SHA-256, provenance and results.

    "seconds" of the results defaults to the time since the start of this process.
    """
    record = {
        "settings": settings,
        "sha256": checksum,
        **provenance(),
        "results": {"seconds": time.perf_counter() - _STARTED, **results},
    }
    write_json(path.with_suffix(".json"), record)


def save_state(path: Path, settings: dict, content: object) -> None:
    """Write ``content`` (plain containers, numbers, tensors) and its ``settings`` atomically."""
    buffer = io.BytesIO()  # torch would turn a full disk into a RuntimeError of its own
    torch.save({"settings": _text_of(settings), "content": content}, buffer)
    with atomic_write(path) as stream:
        stream.write(buffer.getbuffer())


def load_state(path: Path, settings: dict) -> object | None:
    """The content saved at ``path``; None if there is no such file.

    Raises InputError if the file is corrupt (every byte is checked) or was saved with different
    ``settings``, which are named.
    """
    if not path.exists():
        return None
    corrupt = "is corrupt: remove it and run the same command again"
    file = read_tensors(path, "file", corrupt)
    try:
        earlier, content = dict(json.loads(file["settings"])), file["content"]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"file {path} {corrupt}") from None
    now = json.loads(_text_of(settings))
    check_same_settings(f"{path} belongs to an unfinished run", earlier, now)
    return content


def _text_of(settings: dict) -> str:
    return json.dumps({"format": FORMAT, **settings}, sort_keys=True)


class PartialResults:
    """Finished parts of an output, saved in a directory beside it until the output is written.

    A part is found by its settings: parts with different settings are never used.
    """

    def __init__(self, out: Path):
        """The parts of the output ``out``, in {out without suffix}.parts/."""
        self.folder = out.with_suffix(".parts")

    def path(self, settings: dict) -> Path:
        """Path of the part with these settings."""
        return self.folder / hashlib.sha256(_text_of(settings).encode()).hexdigest()[:20]

    def get(self, settings: dict) -> object | None:
        """The part with these settings; None if it is not finished."""
        return load_state(self.path(settings), settings)

    def state_path(self, settings: dict) -> Path:
        """Path of the resume state of an unfinished part."""
        return self.path(settings).with_suffix(".state")

    def put(self, settings: dict, content: object) -> None:
        """Save a finished part."""
        save_state(self.path(settings), settings, content)
        self.state_path(settings).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all parts."""
        shutil.rmtree(self.folder, ignore_errors=True)

"""``output(...)``, within which a script makes its output: up to date?, record, partial results."""

import contextlib
import hashlib
import json
import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from attention_dynamics.cli import InputError
from attention_dynamics.runs.checkpoints import read_tensors, write_tensors
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
        """Nothing is changed; only the output and its record are read."""
        self.path, self.settings = path, settings
        self.record = read_output_record(path)
        self.is_current = (
            path.exists()
            and not differences(self.record.get("settings", {}), settings)
            and self.record.get("sha256") == sha256(path)
        )
        self.partial = PartialResults(path)
        self.state_path = path.with_suffix(".state")

    def write(self, value: object, results: dict) -> None:
        """Write ``value`` as a pickle, and just before it appears its record with the ``results``.

        Their "seconds" default to the time since the start of this process. The partial results and
        the resume state are removed.
        """
        with atomic_write(self.path) as stream:
            pickle.dump(value, stream, protocol=5)
            stream.seek(0)
            record = {
                "settings": self.settings,
                "sha256": hashlib.file_digest(stream, "sha256").hexdigest(),
                **provenance(),
                "results": {"seconds": time.perf_counter() - _STARTED, **results},
            }
            write_json(self.path.with_suffix(".json"), record)
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove the partial results and the resume state."""
        shutil.rmtree(self.partial.folder, ignore_errors=True)
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
        if path.exists() and not out.is_current and not overwrite:
            if not replace_stale and not out.record:
                raise InputError(
                    f"{path} exists, but its record {path.with_suffix('.json')} is missing or "
                    "malformed; --overwrite replaces it"
                )
            if not replace_stale:
                check_same_settings(f"{path} exists", out.record["settings"], settings)
            print(f"{path} is out of date or does not match its record: recomputing it")
        out.is_current = out.is_current and not overwrite
        if overwrite or out.is_current:
            out.remove_unfinished()
        yield out


def read_output_record(path: Path) -> dict:
    """The record beside an output; empty if it is missing or malformed."""
    with contextlib.suppress(InputError):
        record = read_json(path.with_suffix(".json"), "record")
        if isinstance(record, dict) and isinstance(record.get("settings"), dict):
            return record
    return {}


def save_state(path: Path, settings: dict, content: object) -> None:
    """Write ``content`` (plain containers, numbers, tensors) and its ``settings`` atomically."""
    write_tensors(path, {"settings": _text_of(settings), "content": content})


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

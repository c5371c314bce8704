"""Outputs of scripts: records, up-to-date checks, partial results and resume states."""

import hashlib
import io
import json
import shutil
import time
from pathlib import Path

import torch

from attention_dynamics.cli import InputError
from attention_dynamics.runs.checkpoints import read_tensors
from attention_dynamics.runs.records import differences, provenance
from attention_dynamics.storage.files import atomic_write, read_json, sha256, write_json

_BEGUN = time.perf_counter()  # of this process, but for what it imported before


def output_is_current(path: Path, settings: dict) -> bool:
    """Whether ``path`` was made with these ``settings`` (its record lies beside it, .json)."""
    earlier = read_output_record(path)
    return (
        path.exists()
        and earlier.get("settings") == json.loads(json.dumps(settings))
        and earlier.get("sha256") == sha256(path)
    )


def begin_output(path: Path, settings: dict, overwrite: bool) -> Path | None:
    """Where the training state of the output ``path`` lies; None when the output is up to date.

    With ``overwrite`` it is made from the start: a state that is there is removed.
    """
    state = path.with_suffix(".state")
    current = not overwrite and output_is_current(path, settings)
    if current or overwrite:
        state.unlink(missing_ok=True)
    return None if current else state


def read_output_record(path: Path) -> dict:
    """The record beside an output; empty when there is none, or a damaged one."""
    try:
        record = read_json(path.with_suffix(".json"), "record")
    except InputError:
        return {}
    return record if isinstance(record, dict) else {}


def record_output(path: Path, settings: dict, results: dict, content: bytes | None = None) -> None:
    """Note beside ``path`` what made it: settings, results, and the provenance.

    Results without "seconds" get those that this process has taken so far; not those of an earlier
    one that was stopped. With the ``content`` of the output before it is written: for one that is
    refused without a record.
    """
    record = {
        "settings": settings,
        "sha256": sha256(path) if content is None else hashlib.sha256(content).hexdigest(),
        **provenance(),
        "results": {"seconds": time.perf_counter() - _BEGUN, **results},
    }
    write_json(path.with_suffix(".json"), record)


# The version of what the files hold.
FORMAT = 1


def keep(path: Path, settings: dict, content: object) -> None:
    """Write ``content`` (plain containers, numbers, tensors) and its ``settings``, whole."""
    buffer = io.BytesIO()  # torch would turn a full disk into a RuntimeError of its own
    torch.save({"settings": _text_of(settings), "content": content}, buffer)
    with atomic_write(path) as stream:
        stream.write(buffer.getbuffer())


def kept(path: Path, settings: dict) -> object | None:
    """What was kept at ``path``; None when there is nothing.

    Raises InputError when the file is damaged (every byte is checked), or was kept with other
    ``settings``, which are named.
    """
    if not path.exists():
        return None
    damaged = "is damaged: remove it, and what it was kept for is made again"
    file = read_tensors(path, "file", damaged)
    try:
        earlier, content = dict(json.loads(file["settings"])), file["content"]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"file {path} {damaged}") from None
    if what := differences(earlier, json.loads(_text_of(settings))):
        raise InputError(
            f"{path} belongs to an unfinished run of other settings ({what}); --overwrite replaces "
            "it"
        )
    return content


def _text_of(settings: dict) -> str:
    return json.dumps({"format": FORMAT, **settings}, sort_keys=True)


class Parts:
    """What is finished of an output, kept in a folder beside it until the output is whole.

    A part is found by its settings: parts of other ones are never used.
    """

    def __init__(self, out: Path):
        """The parts of the output ``out``, in {out without suffix}.parts/."""
        self.folder = out.with_suffix(".parts")

    def path(self, settings: dict) -> Path:
        """Where the part with these settings is kept."""
        return self.folder / hashlib.sha256(_text_of(settings).encode()).hexdigest()[:20]

    def get(self, settings: dict) -> object | None:
        """The part with these settings; None when it is not finished."""
        return kept(self.path(settings), settings)

    def state_path(self, settings: dict) -> Path:
        """Where the training state of the part with these settings is kept until it is finished."""
        return self.path(settings).with_suffix(".state")

    def put(self, settings: dict, content: object) -> None:
        """Keep a finished part."""
        keep(self.path(settings), settings, content)
        self.state_path(settings).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all parts: the output is whole, or is to be made anew."""
        if self.folder.exists():
            shutil.rmtree(self.folder)


def parts_of(path: Path, settings: dict, overwrite: bool) -> Parts | None:
    """The finished parts of the output ``path``; None when the output itself is up to date.

    With ``overwrite`` it is made from the start: parts that are there are removed.
    """
    parts = Parts(path)
    current = not overwrite and output_is_current(path, settings)
    if current or overwrite:
        parts.remove()
    return None if current else parts

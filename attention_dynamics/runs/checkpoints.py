"""Checkpoints: plain state_dicts that are written atomically and read as data."""

import argparse
import io
import warnings
import zipfile
from pathlib import Path
from typing import BinaryIO

import torch
from torch import nn

from attention_dynamics.cli import InputError, add_options, count, note, step_list
from attention_dynamics.device import add_device_options
from attention_dynamics.storage.files import atomic_write, opened


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that the training scripts of both experiments have."""
    parser.add_argument(
        "--uniform", action="store_true", help="uniform attention (the run that gives β^uf)"
    )
    every = "steps between checkpoints; the paper's grid: 250, in translation 2000"
    add_options(
        parser,
        config=(str, "configs/model.json", "model config"),
        save_every=(count, 250, every),
        custom_saves=(step_list, None, "additional checkpoint steps, such as 0,10,50"),
    )
    parser.add_argument("--overwrite", action="store_true", help="retrain a run from the start")
    add_device_options(parser)


def steps_to_save(steps: int, save_every: int, custom_saves: list[int] | None) -> list[int]:
    """The steps below ``steps`` with a checkpoint, ascending; the last one always has one.

    Custom ones beyond the last step are left out, with a note on stderr.
    """
    custom = set(custom_saves or [])
    if beyond := sorted(step for step in custom if step >= steps):
        named = ",".join(map(str, beyond))
        note(f"--custom_saves {named} lie beyond the last step, {steps - 1}")
    return sorted({*range(0, steps, save_every), steps - 1, *custom} - {*beyond})


def save_checkpoint(path: Path, model: nn.Module) -> None:
    """Write the plain ``state_dict`` of ``model``, tensors on the CPU, atomically."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    write_tensors(path, state)


def write_tensors(path: Path, content: object) -> None:
    """Write plain containers, numbers and tensors atomically, for :func:`read_tensors`."""
    buffer = io.BytesIO()  # torch would turn a full disk into a RuntimeError of its own
    torch.save(content, buffer)
    with atomic_write(path) as stream:
        stream.write(buffer.getbuffer())


def load_checkpoint(path: Path, model: nn.Module) -> None:
    """Load the ``state_dict`` at ``path`` into ``model``; nothing but tensors is unpickled.

    Raises InputError naming the file when it is missing, corrupt, or has other dimensions.
    """
    corrupt = (
        "is corrupt or holds more than tensors: refused (nothing was run); train its run again "
        "with --overwrite"
    )
    state = read_tensors(path, "checkpoint", corrupt)
    try:
        model.load_state_dict(state)
    except (AttributeError, RuntimeError, TypeError) as error:  # torch says what differs
        raise InputError(
            f"checkpoint {path} does not fit the model that config and data describe; use those it "
            f"was trained with: {' '.join(str(error).split())[:400]}"
        ) from None


def read_tensors(path: Path, what: str, corrupt: str) -> object:
    """What torch saved at ``path``, on the CPU; nothing but plain data and tensors is unpickled.

    Raises InputError "{what} {path} {corrupt}" if the file is corrupt, and if it does not exist.
    """
    with opened(path, what) as stream:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _check_sums(stream)
                return torch.load(stream, map_location="cpu", weights_only=True)
        except Exception:  # torch wraps what goes wrong in many types, and advises to run the file
            raise InputError(f"{what} {path} {corrupt}") from None


def _check_sums(stream: BinaryIO) -> None:
    """Raise ValueError when the checksums of a zip file, which torch does not check, are wrong.

    Checkpoints of the first versions of torch are not zip files: nothing is known of their content.
    """
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                is_stored = member.compress_type == zipfile.ZIP_STORED
                # Of a folder (in its name or its attribute) torch reads uninitialized memory.
                if not is_stored or member.is_dir() or member.external_attr & 0x10:
                    raise ValueError("torch writes neither compressed files nor folders")
            if name := archive.testzip():
                raise ValueError(f"{name} is corrupt")
    stream.seek(0)

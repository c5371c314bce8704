"""Checkpoints: plain state_dicts that are written atomically and read as data."""

import argparse
import io
import os
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import torch
from torch import nn

from attention_dynamics.cli import InputError, count, step_list
from attention_dynamics.device import add_device_options
from attention_dynamics.runs.paths import checkpoint_path
from attention_dynamics.runs.records import check_trained_on
from attention_dynamics.storage.files import (
    atomic_write,
    opened,
)

# More files than a folder, or a list in memory, should hold.
MOST_CHECKPOINTS = 10**5


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that the training scripts of both experiments have."""
    parser.add_argument(
        "--uniform", action="store_true", help="uniform attention (the run that gives β^uf)"
    )
    parser.add_argument(
        "--config", default="configs/model.json", help="model config (default: %(default)s)"
    )
    parser.add_argument(
        "--save_every",
        type=count,
        default=250,
        help="steps between checkpoints; the paper's grid: 250, in translation 2000 "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--custom_saves",
        type=step_list,
        default=None,
        help="additional checkpoint steps, such as 0,10,50 (default: none)",
    )
    parser.add_argument("--overwrite", action="store_true", help="retrain a run from the start")
    add_device_options(parser)


def steps_to_save(steps: int, save_every: int, custom_saves: list[int] | None) -> list[int]:
    """The steps below ``steps`` with a checkpoint, ascending; the last one always has one.

    Custom ones beyond the last step are left out, with a note on stderr. Raises InputError for more
    than ``MOST_CHECKPOINTS``.
    """
    if steps // save_every > MOST_CHECKPOINTS:
        raise InputError(
            f"{steps:,} steps with --save_every {save_every} save more than {MOST_CHECKPOINTS:,} "
            "checkpoints: give a larger --save_every, or train for less"
        )
    beyond = [step for step in custom_saves or [] if step >= steps]
    if beyond:
        print(
            f"note: --custom_saves {','.join(map(str, beyond))} lie beyond the last step, "
            f"{steps - 1}",
            file=sys.stderr,
        )
    return sorted({*range(0, steps, save_every), steps - 1, *(custom_saves or [])} - {*beyond})


# The attribute of a folder in a zip file.
_DOS_FOLDER = 0x10


def save_checkpoint(path: Path, model: nn.Module) -> None:
    """Write the plain ``state_dict`` of ``model``, tensors on the CPU, whole or not at all."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    buffer = io.BytesIO()  # torch would turn a full disk into a RuntimeError of its own
    torch.save(state, buffer)
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
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise InputError(f"checkpoint {path} is not a state_dict of tensors")
    found = {name: tuple(value.shape) for name, value in state.items()}
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            raise InputError(
                f"checkpoint {path} does not fit the model: {name} is "
                f"{found.get(name, 'absent')} in the file, {expected.get(name, 'absent')} in the "
                "model that config and data describe; use the config and data it was trained with"
            )
    for name, value in state.items():
        plain = value.layout == torch.strided and value.device.type == "cpu"
        if not (plain and value.dtype.is_floating_point and not value.is_quantized):
            raise InputError(
                f"checkpoint {path} does not fit the model: {name} is no plain tensor of real "
                "numbers; train its run again with --overwrite"
            )
    model.load_state_dict(state)


def read_tensors(path: Path, what: str, corrupt: str) -> object:
    """What torch saved at ``path``, on the CPU; nothing but plain data and tensors is unpickled.

    Raises InputError "{what} {path} {corrupt}" if the file is corrupt, and if it does not exist.
    """
    with opened(path, what) as stream:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is unusual is refused by the caller
                _check_sums(stream)
                return torch.load(stream, map_location="cpu", weights_only=True)
        except Exception:  # torch wraps what goes wrong in many types, and advises to run the file
            raise InputError(f"{what} {path} {corrupt}") from None


def _check_sums(stream: BinaryIO) -> None:
    """Raise ValueError when the checksums of a zip file, which torch does not check, are wrong.

    Checkpoints of the first versions of torch are none: nothing is known of their content.
    """
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                stored = member.compress_type == zipfile.ZIP_STORED
                if not stored or member.file_size != member.compress_size:
                    raise ValueError("torch compresses nothing")
                # Of what it takes for a folder torch reads nothing: a tensor of what memory held.
                if member.is_dir() or member.external_attr & _DOS_FOLDER:
                    raise ValueError("torch writes no folders")
            if name := archive.testzip():
                raise ValueError(f"{name} is corrupt")
    stream.seek(0)


def checkpoints_of(
    config_path: Path, entries: list[dict], folder_of: Callable, checksum: str, command_of: Callable
) -> list[Path]:
    """The checkpoint of each entry of a log config.

    Args:
        config_path: the log config.
        entries: its entries.
        folder_of: entry -> the folder of its run.
        checksum: of the data that is there now.
        command_of: (entry, the iterations that the log config lists of its run) -> the command that
            trains it.

    Raises InputError naming all that are missing, or a run that was trained on other data.
    """
    paths, missing, folders = [], [], set()
    for entry in entries:
        folder = folder_of(entry)
        path = checkpoint_path(folder, entry["iteration"])
        if folder not in folders:
            check_trained_on(folder, checksum)
            folders.add(folder)
        paths.append(path)
        if not path.exists():
            same_run = [e["iteration"] for e in entries if e["name"] == entry["name"]]
            overwrite = " --overwrite" if folder.exists() else ""
            missing.append((path, command_of(entry, same_run) + overwrite))
    if missing:
        raise missing_checkpoints_error(missing, config_path)
    return paths


def missing_checkpoints_error(
    missing: list[tuple[Path, str]], config: str | os.PathLike
) -> InputError:
    """One error that names all missing checkpoints, by run, and the commands that make them.

    Args:
        missing: (checkpoint path, command that trains its run), in order.
        config: the log config that lists them.
    """
    by_folder: dict[Path, list[str]] = {}
    for path, _ in missing:
        by_folder.setdefault(path.parent, []).append(path.name.removeprefix("model"))
    files = "; ".join(f"{folder}/{{model{','.join(steps)}}}" for folder, steps in by_folder.items())
    commands = list(dict.fromkeys(command for _, command in missing))
    dataset = Path(config).stem.removesuffix("_log")
    grid = f"; all runs of the grid: DATASETS={dataset} bash train_runs.sh"
    return InputError(
        f"{len(missing)} checkpoint(s) of {config} are missing (to evaluate the existing ones: "
        f"python eval_dump.py --dataset {dataset} --make_log_config --overwrite"
        f"{grid if len(commands) > 1 else ''}): {files}. Make them with: {' && '.join(commands)}"
    )

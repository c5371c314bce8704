"""Run folders, checkpoints, configs: one function makes a path, for writer and reader."""

import datetime
import difflib
import hashlib
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import numpy
import torch
from torch import nn

import attention_dynamics
from attention_dynamics.errors import InputError
from attention_dynamics.files import (
    bounded_memory,
    opened,
    read_json,
    sha256,
    whole_file,
    write_json,
)
from attention_dynamics.seeding import LARGEST_SEED

_BEGUN = time.perf_counter()  # of this process, but for what it imported before

# The attribute of a folder in a zip file.
_DOS_FOLDER = 0x10

# The version of run folders: what run.json says, and how checkpoints come from its settings.
RUN_FORMAT = 1


def check_name(name: str, what: str = "data set") -> None:
    """Refuse a name that would lead out of the folders, or not into a file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise InputError(
            f"{what} {name[:200]!r} must have a plain name: letters, digits and _ . - (at most 100)"
        )


def run_folder(dataset: str, config: dict, seed: int, uniform: bool) -> Path:
    """The folder of one run, relative to the experiment's, named as the papers' code does."""
    parts = [f"h_dim={config['hidden_dim']}"]
    if "dropout" in config:
        parts.append(f"dropout={config['dropout']:f}")
    parts += [f"b_size={config['batch_size']}", f"seed={seed}", "uniform" if uniform else "normal"]
    return Path("models") / dataset / ",".join(parts)


def checkpoint_path(folder: Path, step: int) -> Path:
    """The checkpoint of ``folder`` as it was before the update of ``step``."""
    return folder / f"model{step}"


def logs_path(dataset: str) -> Path:
    """Where eval_dump writes what it dumped."""
    return Path("outputs") / f"{dataset}_logs.pkl"


def embedding_beta_path(dataset: str, embed_dim: int) -> Path:
    """Where the embedding baseline of classification, β^px, lies."""
    return Path("outputs") / f"{dataset}embedding{embed_dim}beta.pkl"


def logistic_beta_path(dataset: str) -> Path:
    """Where the logistic-regression baseline β^lr lies."""
    return Path("outputs") / f"{dataset}_logistic_beta.pkl"


def translation_beta_path(dataset: str, embed_dim: int) -> Path:
    """Where the embedding baseline of translation, β^px, lies."""
    return Path("outputs") / f"{dataset}embedding{embed_dim}translation.pkl"


def ibm1_beta_path(dataset: str) -> Path:
    """Where the table of IBM Model 1 lies."""
    return Path("outputs") / f"{dataset}_ibm1_beta.pkl"


def log_config_path(dataset: str) -> Path:
    """The list of checkpoints that eval_dump reads."""
    return Path("configs") / f"{dataset}_log.json"


def read_config(path: str | os.PathLike, required: tuple[str, ...]) -> dict:
    """A model config: the required keys, each a whole number above 0; ``dropout`` from 0 below 1.

    Raises InputError that names what is missing or wrong.
    """
    if not os.path.exists(path):
        raise InputError(
            f"config {path} does not exist; run the script in the folder that holds it and configs/"
        )
    config = read_json(path, "config")
    if not isinstance(config, dict):
        raise InputError(f"config {path} must be a JSON object with the keys {', '.join(required)}")
    missing = [key for key in required if key not in config]
    if missing:
        raise InputError(
            f"config {path} lacks {', '.join(missing)}; it needs {', '.join(required)}"
        )
    for key in required:
        number = config[key]
        if key == "dropout":
            if type(number) not in (int, float) or not 0 <= number < 1:
                raise InputError(
                    f"config {path}: dropout must be from 0 to below 1, not {number!r}"
                )
        elif type(number) is not int or not 1 <= number <= 10**6:
            raise InputError(
                f"config {path}: {key} must be a whole number above 0 (at most 1e6), not {number!r}"
            )
    return {key: config[key] for key in required}


def read_log_config(path: str | os.PathLike) -> list[dict]:
    """The entries ``{"name", "iteration", "seed", "uniform"}`` of a log config, checked.

    ``"calculate_grad"`` (translation) may be left out, and is then False.
    """
    if not os.path.exists(path):
        raise InputError(
            f"log config {path} does not exist; it lists the checkpoints to look at: let "
            "--make_log_config of eval_dump.py write it from the runs that are there"
        )
    entries = read_json(path, "log config")
    if not isinstance(entries, list) or not entries:
        raise InputError(f"log config {path} must be a list of checkpoints, with one at least")
    kinds = {"name": str, "iteration": int, "seed": int, "uniform": bool, "calculate_grad": bool}
    for number, entry in enumerate(entries):
        if isinstance(entry, dict):
            entry.setdefault("calculate_grad", False)
        for key, kind in kinds.items():
            if not isinstance(entry, dict) or key not in entry:
                raise InputError(f"log config {path}: entry {number} lacks the key {key!r}")
            if type(entry[key]) is not kind:
                raise InputError(
                    f"log config {path}: entry {number}: {key} must be {kind.__name__}, "
                    f"not {entry[key]!r}"
                )
            if kind is int and not 0 <= entry[key] <= LARGEST_SEED:
                raise InputError(
                    f"log config {path}: entry {number}: {key} must be from 0 to {LARGEST_SEED}"
                )
    keys = [(entry["name"], entry["iteration"]) for entry in entries]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise InputError(f"log config {path} lists {twice[0][0]} iteration {twice[0][1]} twice")
    runs: dict[str, dict] = {}
    for number, entry in enumerate(entries):
        first = runs.setdefault(entry["name"], entry)
        for key in ("seed", "uniform"):
            if entry[key] != first[key]:
                raise InputError(
                    f"log config {path}: entry {number}: {key} of the run {entry['name']!r} is "
                    f"{entry[key]}, but {first[key]} in an earlier entry: a name stands for one run"
                )
    return entries


def save_checkpoint(path: Path, model: nn.Module) -> None:
    """Write the plain ``state_dict`` of ``model``, tensors on the CPU, whole or not at all."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    buffer = io.BytesIO()  # torch would turn a full disk into a RuntimeError of its own
    torch.save(state, buffer)
    with whole_file(path) as stream:
        stream.write(buffer.getbuffer())


def load_checkpoint(path: Path, model: nn.Module) -> None:
    """Load the ``state_dict`` at ``path`` into ``model``; nothing but tensors is unpickled.

    Raises InputError naming the file when it is missing, damaged, or of other dimensions.
    """
    damaged = (
        "is damaged or holds more than tensors: refused (nothing was run); train its run again "
        "with --overwrite"
    )
    state = read_tensors(path, "checkpoint", damaged)
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


def read_tensors(path: Path, what: str, damaged: str) -> object:
    """What torch saved at ``path``, on the CPU; nothing but plain data and tensors is unpickled.

    Raises InputError "{what} {path} {damaged}" when it is damaged, and when there is no file.
    """
    with opened(path, what) as stream, bounded_memory(path, what):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is unusual is refused by the caller
                _check_sums(stream)
                return torch.load(stream, map_location="cpu", weights_only=True)
        except Exception:  # torch wraps what goes wrong in many types, and advises to run the file
            raise InputError(f"{what} {path} {damaged}") from None


def _check_sums(stream: BinaryIO) -> None:
    """Raise ValueError when the checksums of a zip file, which torch does not look at, are wrong.

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
                raise ValueError(f"{name} is damaged")
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


def absent_data_error(
    dataset: str, path: Path, there: Iterable[str], public: Iterable[str], own: str
) -> InputError:
    """That there is no such data set, with the nearest name, and how prepare_data.py makes it.

    Args:
        dataset: its name.
        path: the file that does not exist.
        there: the names of the data sets that are there.
        public: the names of those that prepare_data.py reads from --source.
        own: its options for any other.
    """
    there = sorted(there)
    near = {name.lower(): name for name in [*there, *public]}
    meant = difflib.get_close_matches(dataset.lower(), near, n=1)
    ways = {"toy": "", **dict.fromkeys(public, " --source PATH")}
    hints = [
        f"no data set {dataset}: {path} does not exist",
        f"data/ holds {', '.join(there)}" if there else "data/ holds no data set yet",
        *(f"did you mean {near[name]}?" for name in meant if near[name] != dataset),
        f"make it with: python prepare_data.py --dataset {dataset}{ways.get(dataset, f' {own}')} "
        "(see its --help)",
    ]
    return InputError("; ".join(hints))


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
        f"{len(missing)} checkpoint(s) of {config} are missing (to look at those that are there: "
        f"python eval_dump.py --dataset {dataset} --make_log_config --overwrite"
        f"{grid if len(commands) > 1 else ''}): {files}. Make them with: {' && '.join(commands)}"
    )


def provenance() -> dict:
    """What is needed to run this again: command, commit, versions, machine, time (UTC)."""
    return {
        "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "commit": _commit(),
        "versions": {
            "attention_dynamics": attention_dynamics.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
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


def state_path(folder: Path) -> Path:
    """The training state of a run that is not finished."""
    return folder / "state"


def differences(earlier: dict, now: dict) -> str:
    """What differs between the settings of two runs, in words; empty when nothing does."""
    differing = [key for key in {**earlier, **now} if earlier.get(key) != now.get(key)]
    return "; ".join(f"{key} was {earlier.get(key)!r}, is {now.get(key)!r}" for key in differing)


def begin_run(folder: Path, settings: dict, overwrite: bool) -> bool:
    """Open the run ``folder`` for writing; False when this very run is finished there already.

    ``settings`` is what decides the weights (seed, config, data checksum, steps, ...). A run of
    other settings is not touched: InputError names the difference, unless ``overwrite``. An
    unfinished one of the same settings keeps its training state and its checkpoints, to go on.
    """
    record, state = folder / "run.json", state_path(folder)
    if record.exists() and not overwrite:
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
            return False
        if state.exists():
            return True
    elif not overwrite and (others := sorted(folder.glob("model*"))):
        raise InputError(
            f"{folder} holds {len(others)} checkpoint(s) without a run.json, made by other code; "
            "move them away, or --overwrite replaces them"
        )
    # In this order: whenever this is stopped, what is there is no run but the one that it says.
    state.unlink(missing_ok=True)
    begun = {"format": RUN_FORMAT, "settings": settings, **provenance(), "finished": None}
    write_json(record, begun)
    for stale in folder.glob("model*"):
        stale.unlink()
    return True


def read_run(folder: Path) -> dict:
    """What ``run.json`` says; InputError when it is no run record."""
    record = folder / "run.json"
    try:
        content = read_json(record, "run record")
    except InputError as error:
        raise InputError(f"{error}; --overwrite trains the run anew") from None
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        raise InputError(f"{record} is not a run record; --overwrite trains the run anew")
    return content


def check_trained_on(folder: Path, checksum: str) -> None:
    """Refuse a run that was trained on other data than is there now (it says so in run.json).

    Runs of other code have no run.json: nothing is known of their data, and nothing checked.
    """
    if not (folder / "run.json").exists():
        return
    trained = read_run(folder)["settings"].get("data")
    if trained != checksum:
        raise InputError(
            f"{folder} was trained on other data than data/ holds now (checksum {trained}, now "
            f"{checksum}): prepare that data again, or train the run again with --overwrite"
        )


def finish_run(folder: Path, results: dict) -> None:
    """Note in ``run.json`` that the run is finished, and what came out; its state is removed."""
    record = folder / "run.json"
    content = read_json(record, "run record")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    write_json(record, {**content, "finished": now, "results": results})
    state_path(folder).unlink(missing_ok=True)


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

"""Model configs and log configs: reading, checking, and writing them from finished runs.

A log config (configs/{dataset}_log.json) lists the checkpoints that eval_dump.py evaluates, and
gives each run its name: normal_A is the gold run, normal_B, ... are compared with it, uniform gives
β^uf.
"""

import difflib
import os
import re
import string
from collections.abc import Iterable
from pathlib import Path

from attention_dynamics.cli import InputError, note
from attention_dynamics.names import GOLD, PAPER_SEEDS, PAPER_UNIFORM_SEED, UNIFORM
from attention_dynamics.runs.paths import log_config_path, run_folder
from attention_dynamics.runs.records import read_run
from attention_dynamics.storage.files import read_json, write_json

# Type of each key in an entry of a log config.
_ENTRY = {"name": str, "iteration": int, "seed": int, "uniform": bool, "calculate_grad": bool}


def read_config(path: str | os.PathLike, required: tuple[str, ...]) -> dict:
    """A model config: the required keys, each a positive integer; ``dropout`` from 0 to below 1.

    Raises InputError that names what is missing or wrong.
    """
    config = read_json(path, "config")
    if not isinstance(config, dict) or not config.keys() >= set(required):
        found = ", ".join(config) if isinstance(config, dict) else type(config).__name__
        raise InputError(
            f"config {path} must be a JSON object with the keys {', '.join(required)}; it has "
            f"{found or 'none'}"
        )
    for key in required:
        number, expected = config[key], "a positive integer (at most 1e6)"
        valid = type(number) is int and 1 <= number <= 10**6
        if key == "dropout":
            expected = "from 0 to below 1"
            valid = type(number) in (int, float) and 0 <= number < 1
        if not valid:
            raise InputError(f"config {path}: {key} must be {expected}, not {number!r}")
    return {key: config[key] for key in required}


def read_log_config(path: str | os.PathLike) -> list[dict]:
    """The entries ``{"name", "iteration", "seed", "uniform"}`` of a log config, checked.

    ``"calculate_grad"`` (translation) may be left out, and is then False.
    """
    if not os.path.exists(path):
        raise InputError(
            f"log config {path} does not exist; it lists the checkpoints to evaluate: let "
            "--make_log_config of eval_dump.py write it from the finished runs"
        )
    entries = read_json(path, "log config")
    if not isinstance(entries, list) or not entries:
        raise InputError(f"log config {path} must be a list of checkpoints, with one at least")
    runs: dict[str, dict] = {}
    checkpoints = set()
    for number, entry in enumerate(entries):
        where = f"log config {path}: entry {number}"
        if not isinstance(entry, dict):
            raise InputError(f"{where} must be an object with the keys {', '.join(_ENTRY)}")
        entry.setdefault("calculate_grad", False)
        for key, kind in _ENTRY.items():
            value = entry.get(key)
            if type(value) is not kind or (kind is int and value < 0):
                expected = "a non-negative int" if kind is int else kind.__name__
                raise InputError(f"{where}: {key} must be {expected}, not {value!r}")
        name, run = entry["name"], {key: entry[key] for key in ("seed", "uniform")}
        if (earlier := runs.setdefault(name, run)) != run:
            raise InputError(f"{where}: {name} has {run}, but {earlier} in an earlier entry")
        if (checkpoint := (name, entry["iteration"])) in checkpoints:
            raise InputError(f"{where} lists {name} iteration {entry['iteration']} twice")
        checkpoints.add(checkpoint)
    return entries


def absent_data_error(
    dataset: str, path: Path, there: Iterable[str], public: Iterable[str], own: str
) -> InputError:
    """The error that a dataset (its file ``path``) does not exist, with the command to make it.

    The nearest name of a dataset is suggested: one that is ``there``, or a ``public`` one, which
    prepare_data.py makes with --source. Any other is made with its options ``own``.
    """
    there = sorted(there)
    if Path("attention_dynamics").is_dir():
        return InputError(f"{Path.cwd()} has no data/: go to classification/ or translation/ first")
    names = {name.lower(): name for name in {*there, *public} - {dataset}}
    meant = [names[near] for near in difflib.get_close_matches(dataset.lower(), names, n=1)]
    way = {"toy": "", **dict.fromkeys(public, " --source PATH")}.get(dataset, f" {own}")
    return InputError(
        f"no dataset {dataset}: {path} does not exist; data/ holds "
        f"{', '.join(there) or 'no dataset yet'}; "
        + "".join(f"did you mean {name}?; " for name in meant)
        + f"make it with: python prepare_data.py --dataset {dataset}{way} (see its --help)"
    )


def make_log_config(dataset: str, config: dict, with_grad: bool, overwrite: bool) -> None:
    """Write the log config of ``dataset`` from the finished runs of ``config`` in models/.

    It lists the checkpoints that all of these runs have, and asks for Δ of the gold run if
    ``with_grad`` (translation; classification always has it). Prints its path and content; a run
    that is left out is named on stderr.

    Raises InputError when a run that the analysis needs is missing, when the runs have no
    checkpoint in common, or when a log config with another content exists and ``overwrite`` is
    false.
    """
    path = log_config_path(dataset)
    runs = _finished_runs(dataset, config)
    names = _name_runs(dataset, [*runs])
    iterations = [runs[run] for run in names.values()]
    common = sorted(set.intersection(*iterations))
    if not common:
        raise InputError(
            f"the finished runs of {dataset} in models/ have no checkpoint in common: train them "
            "with the same --save_every and --custom_saves"
        )
    entries = []
    for name, (seed, uniform) in names.items():
        if lacking := set.union(*iterations) - runs[seed, uniform]:
            lacks = f"{name} (seed {seed}) lacks {len(lacking)} checkpoint(s) that other runs have"
            note(f"{lacks}; they are left out")
        grad = {"calculate_grad": name == GOLD} if with_grad else {}
        described = {"seed": seed, "uniform": uniform, **grad}
        entries += [{"name": name, "iteration": t, **described} for t in common]
    if path.exists() and not overwrite and read_json(path, "log config") != entries:
        raise InputError(
            f"{path} exists and lists other checkpoints: leave --make_log_config away to use it, "
            "or replace it with --overwrite"
        )
    write_json(path, entries)
    print(f"{path}: {len(common)} checkpoint(s) of each of {', '.join(names)}")


def _finished_runs(dataset: str, config: dict) -> dict[tuple[int, bool], set[int]]:
    """(seed, uniform) -> the iterations of its checkpoints, of all finished runs of ``config``."""
    runs = {}
    for folder in sorted(Path("models", dataset).glob("*")):
        match = re.search(r"seed=(\d+),(normal|uniform)$", folder.name)
        run = match and (int(match[1]), match[2] == "uniform")
        if run is None or folder != run_folder(dataset, config, *run):
            continue  # of another config
        record = read_run(folder)
        if record and not record.get("finished"):
            note(f"{folder} is not finished: left out")
            continue
        steps = [re.fullmatch(r"model(\d+)", path.name) for path in folder.iterdir()]
        runs[run] = {int(step[1]) for step in steps if step}
    return runs


def _name_runs(dataset: str, runs: list[tuple[int, bool]]) -> dict[str, tuple[int, bool]]:
    """name -> (seed, uniform), the gold run first and the uniform one last.

    Raises InputError when there is no uniform run, or fewer than two normal ones.
    """

    def ordered(uniform: bool, paper: tuple[int, ...]) -> list[tuple[int, bool]]:
        seeds = sorted(seed for seed, kind in runs if kind == uniform)
        return [(seed, uniform) for seed in sorted(seeds, key=lambda s: [s != p for p in paper])]

    normal, uniform = ordered(False, PAPER_SEEDS), ordered(True, (PAPER_UNIFORM_SEED,))
    if len(normal) < 2 or not uniform:
        raise InputError(
            f"models/{dataset} holds {len(normal)} finished normal run(s) and {len(uniform)} "
            "uniform one(s) of this config, but two and one are needed: "
            f"DATASETS={dataset} bash train_runs.sh"
        )
    for seed, _ in uniform[1:]:
        note(f"a second uniform run, of seed {seed}, is left out")
    letters = zip(string.ascii_uppercase, normal, strict=False)
    return {**{f"normal_{letter}": run for letter, run in letters}, UNIFORM: uniform[0]}

"""Model configs and log configs: reading, checking, and writing them from finished runs.

A log config (configs/{dataset}_log.json) lists the checkpoints that eval_dump.py evaluates, and
gives each run its name: normal_A is the gold run, normal_B, ... are compared with it, uniform gives
β^uf.
"""

import difflib
import os
import re
import string
import sys
from collections.abc import Iterable
from pathlib import Path

from attention_dynamics.cli import LARGEST_SEED, InputError
from attention_dynamics.names import PAPER_SEEDS, PAPER_UNIFORM_SEED, UNIFORM
from attention_dynamics.runs.paths import log_config_path, run_folder
from attention_dynamics.runs.records import is_unfinished
from attention_dynamics.storage.files import read_json, write_json


def read_config(path: str | os.PathLike, required: tuple[str, ...]) -> dict:
    """A model config: the required keys, each a positive integer; ``dropout`` from 0 to below 1.

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
                f"config {path}: {key} must be a positive integer (at most 1e6), not {number!r}"
            )
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


def absent_data_error(
    dataset: str, path: Path, there: Iterable[str], public: Iterable[str], own: str
) -> InputError:
    """The error that a dataset does not exist, with the nearest name and the command to make it.

    Args:
        dataset: its name.
        path: the file that does not exist.
        there: the names of the existing datasets.
        public: the names of those that prepare_data.py reads from --source.
        own: its options for any other.
    """
    there = sorted(there)
    near = {name.lower(): name for name in [*there, *public]}
    meant = difflib.get_close_matches(dataset.lower(), near, n=1)
    ways = {"toy": "", **dict.fromkeys(public, " --source PATH")}
    hints = [
        f"no dataset {dataset}: {path} does not exist",
        f"data/ holds {', '.join(there)}" if there else "data/ holds no dataset yet",
        *(f"did you mean {near[name]}?" for name in meant if near[name] != dataset),
        f"make it with: python prepare_data.py --dataset {dataset}{ways.get(dataset, f' {own}')} "
        "(see its --help)",
    ]
    return InputError("; ".join(hints))


def make_log_config(dataset: str, config: dict, with_grad: bool, overwrite: bool) -> None:
    """Write the log config of ``dataset`` from the finished runs of ``config`` in models/.

    It lists the checkpoints that all of these runs have. Prints its path and what it holds; a run
    that is left out is named on stderr.

    Args:
        dataset: its name.
        config: of the model.
        with_grad: whether to ask for Δ of the gold run (translation; classification always has it).
        overwrite: whether to replace a log config of another content.

    Raises InputError when a run that the analysis needs is missing, when the runs have no
    checkpoint in common, or when another log config is there and may not be replaced.
    """
    path = log_config_path(dataset)
    names = name_runs(dataset, finished_runs(dataset, config))
    iterations = sorted(set.intersection(*(set(found) for _, _, found in names.values())))
    if not iterations:
        raise InputError(
            f"the finished runs of {dataset} in models/ have no checkpoint in common: train them "
            "with the same --save_every and --custom_saves"
        )
    for name, (seed, _, found) in names.items():
        left_out = len(set().union(*(other for _, _, other in names.values())) - set(found))
        if left_out:
            print(
                f"note: {name} (seed {seed}) lacks {left_out} checkpoint(s) that other runs have; "
                "they are left out",
                file=sys.stderr,
            )
    entries = []
    for name, (seed, uniform, _) in names.items():
        grad = {"calculate_grad": name == "normal_A"} if with_grad else {}
        described = {"seed": seed, "uniform": uniform, **grad}
        entries += [{"name": name, "iteration": t, **described} for t in iterations]
    if path.exists() and not overwrite and read_json(path, "log config") != entries:
        raise InputError(
            f"{path} exists and lists other checkpoints: leave --make_log_config away to use it, "
            "or replace it with --overwrite"
        )
    write_json(path, entries)
    print(f"{path}: {len(names)} runs ({', '.join(names)}), {len(iterations)} checkpoints of each")


def finished_runs(dataset: str, config: dict) -> dict[tuple[int, bool], list[int]]:
    """(seed, uniform) -> the iterations of its checkpoints, of all finished runs of ``config``."""
    runs = {}
    for folder in sorted(Path("models", dataset).glob("*")):
        match = re.search(r"seed=(\d+),(normal|uniform)$", folder.name)
        if not match:
            continue
        seed, uniform = int(match[1]), match[2] == "uniform"
        if folder != run_folder(dataset, config, seed, uniform):
            continue  # of another config
        if is_unfinished(folder):
            print(f"note: {folder} is not finished: left out", file=sys.stderr)
            continue
        steps = [re.fullmatch(r"model(\d+)", path.name) for path in folder.iterdir()]
        runs[seed, uniform] = sorted(int(step[1]) for step in steps if step)
    return runs


def name_runs(dataset: str, runs: dict[tuple[int, bool], list[int]]) -> dict[str, tuple]:
    """name -> (seed, uniform, iterations), the gold run first and the uniform one last.

    Raises InputError when there is no uniform run, or fewer than two normal ones.
    """
    normal = sorted(seed for seed, uniform in runs if not uniform)
    normal = [seed for seed in PAPER_SEEDS if seed in normal] + [
        seed for seed in normal if seed not in PAPER_SEEDS
    ]
    uniform = sorted(
        (seed for seed, is_uniform in runs if is_uniform),
        key=lambda seed: (seed != PAPER_UNIFORM_SEED, seed),
    )
    if len(normal) < 2 or not uniform:
        raise InputError(
            f"models/{dataset} holds {len(normal)} finished normal run(s) and {len(uniform)} "
            "uniform one(s) of this config, but two and one are needed: "
            f"DATASETS={dataset} bash train_runs.sh"
        )
    if len(normal) > len(string.ascii_uppercase):
        raise InputError(
            f"models/{dataset} holds {len(normal)} normal runs: names go from normal_A to normal_Z"
        )
    for seed in uniform[1:]:
        print(f"note: a second uniform run, of seed {seed}, is left out", file=sys.stderr)
    names = {
        f"normal_{letter}": (seed, False, runs[seed, False])
        for letter, seed in zip(string.ascii_uppercase, normal, strict=False)
    }
    return {**names, UNIFORM: (uniform[0], True, runs[uniform[0], True])}

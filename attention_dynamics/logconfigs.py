"""Log configs made from the runs that are there, so that own data need no file written by hand.

A log config (configs/{dataset}_log.json) lists the checkpoints that eval_dump looks at, and gives
each run its name: normal_A is the gold run, normal_B, ... are compared with it, uniform gives β^uf.
"""

import re
import string
import sys
from pathlib import Path

from attention_dynamics.errors import InputError
from attention_dynamics.files import read_json, write_json
from attention_dynamics.runs import log_config_path, read_run, run_folder
from attention_dynamics.statistics import UNIFORM

# The paper's seeds take the paper's names; others follow, rising.
PAPER_SEEDS = (20, 13, 14, 15, 16, 17)
PAPER_UNIFORM_SEED = 12


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
        if (folder / "run.json").exists() and not read_run(folder).get("finished"):
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

"""A copy of the experiments without data, and Snakemake in it, in processes of their own."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from conftest import ROOT, SMALL_MODEL

from attention_dynamics.storage.files import write_json

FOLDERS = ("classification", "translation", "SequenceCopying", "papa")
MADE = ("data", "models", "outputs", "results", "figures", "logs", "multihead_runs", "__pycache__")
# Model configs that train in a blink.
SIZES = {
    "classification": SMALL_MODEL,
    "translation": {"hidden_dim": 8, "dropout": 0.3, "num_layers": 1, "batch_size": 8},
}
# Stands in for Python: Snakemake makes a dry run.
DRY_RUN = f"""#!/usr/bin/env bash
[[ $1 != -m ]] || set -- -m snakemake -n -p "${{@:3}}"
exec {sys.executable} "$@"
"""


def write_program(path: Path, text: str) -> Path:
    """Write an executable file."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_models_small(root: Path) -> None:
    """Give the copy ``root`` of the repository small model configs."""
    for folder, sizes in SIZES.items():
        write_json(root / folder / "configs/model.json", sizes)


def copy_repository(root: Path) -> Path:
    """Copy the scripts, batch files and workflow to the new directory ``root``."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns(*MADE))
    shutil.copytree(ROOT / "workflow", root / "workflow")
    for name in ("batch.sh", "run.sh"):
        shutil.copy(ROOT / name, root)
    return root


def environment(**more: str) -> dict[str, str]:
    names = ("DATASETS", "JOBS", "PYTHON", "HEADS", "SEEDS", "CACHE")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return {**inherited, "PYTHONPATH": str(ROOT), **more}


def start(root: Path, *args: str, **more: str) -> subprocess.Popen:
    """Snakemake in ``root``, in a process group of its own; its output is in snakemake.txt."""
    with open(root / "snakemake.txt", "w") as printed:
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *args],
            cwd=root,
            env=environment(**more),
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def snakemake(root: Path, *args: str, code: int = 0, **more: str) -> str:
    """What Snakemake prints; AssertionError unless it exits with ``code``."""
    process = start(root, *args, **more)
    process.wait(900)
    printed = (root / "snakemake.txt").read_text()
    assert process.returncode == code, printed
    return printed


def job_counts(printed: str) -> Counter[str]:
    """Rule -> number of jobs, as a dry run prints them."""
    table = printed.rpartition("Job stats:")[2].partition("\n\n")[0]
    counts = {rule: int(number) for rule, number in re.findall(r"^(\w+) +(\d+)$", table, re.M)}
    assert counts.pop("total") == sum(counts.values())
    return Counter(counts)


def commands(printed: str) -> list[str]:
    """The commands that a dry run prints, from the name of the script on, spaces normalized."""
    found = re.findall(rf"Shell command: .* {re.escape(sys.executable)} (.*)", printed)
    return [" ".join(command.split()) for command in found]

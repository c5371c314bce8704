"""Paths of runs, checkpoints and outputs: one function per path, for writer and reader."""

import re
from pathlib import Path

from attention_dynamics.cli import InputError


def check_name(name: str, what: str = "dataset") -> None:
    """Raise InputError unless ``name`` can be part of a file name (``what`` it names)."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise InputError(
            f"{what} {name[:200]!r} must have a plain name: letters, digits and _ . - (at most 100)"
        )


def run_folder(dataset: str, config: dict, seed: int, uniform: bool) -> Path:
    """The folder of one run, relative to the experiment's, with the name of the published code."""
    dropout = f"dropout={config['dropout']:f}," if "dropout" in config else ""
    name = f"h_dim={config['hidden_dim']},{dropout}b_size={config['batch_size']},seed={seed}"
    return Path("models", dataset, f"{name},{'uniform' if uniform else 'normal'}")


def checkpoint_path(folder: Path, step: int) -> Path:
    """The checkpoint in ``folder`` with the weights before the update of ``step``."""
    return folder / f"model{step}"


def logs_path(dataset: str) -> Path:
    """The logs that eval_dump.py writes."""
    return Path("outputs") / f"{dataset}_logs.pkl"


def embedding_beta_path(dataset: str, embed_dim: int) -> Path:
    """The embedding baseline of classification, β^px."""
    return Path("outputs") / f"{dataset}embedding{embed_dim}beta.pkl"


def logistic_beta_path(dataset: str) -> Path:
    """The logistic-regression baseline β^lr."""
    return Path("outputs") / f"{dataset}_logistic_beta.pkl"


def translation_beta_path(dataset: str, embed_dim: int) -> Path:
    """The embedding baseline of translation, β^px."""
    return Path("outputs") / f"{dataset}embedding{embed_dim}translation.pkl"


def ibm1_beta_path(dataset: str) -> Path:
    """The table of IBM Model 1."""
    return Path("outputs") / f"{dataset}_ibm1_beta.pkl"


def log_config_path(dataset: str) -> Path:
    """The list of checkpoints that eval_dump reads."""
    return Path("configs") / f"{dataset}_log.json"


def record_path(folder: Path) -> Path:
    """The record of a run, which exists if and only if the run is finished."""
    return folder / "run.json"


def unfinished_path(folder: Path) -> Path:
    """The record of a run that has begun and is not finished."""
    return folder / "unfinished.json"


def state_path(folder: Path) -> Path:
    """The resume state of an unfinished run."""
    return folder / "state"

"""What has been measured of a data set: the logs, and the baselines laid out beside them."""

from dataclasses import dataclass, field

import numpy as np

from attention_dynamics.errors import InputError
from attention_dynamics.logs import Logs, load_logs
from attention_dynamics.pickles import load_pickle
from attention_dynamics.ragged import Ragged
from attention_dynamics.runs import (
    embedding_beta_path,
    logistic_beta_path,
    logs_path,
    read_output_record,
)
from attention_dynamics.statistics import summarise

# The splits of the logs, and the accuracy measured on each.
ACCURACIES = {"val": "test_acc", "train": "train_acc"}


@dataclass
class Measured:
    """Logs and baselines of one data set.

    Attributes:
        logs: as dumped by eval_dump.py.
        beta_sign: (scores,) +1 for positive, -1 for negative examples: turns β, a vote for label 1,
            into a vote for the correct label.
        baselines: "px", "logistic" -> (scores,), votes for the correct label.
        missing: a line for each baseline that is not there, with the command that makes it.
        data: checksum of the data all of this was made from; None when the logs do not say.
    """

    logs: Logs
    beta_sign: np.ndarray
    baselines: dict[str, np.ndarray] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    data: str | None = None


def summarise_measured(measured: Measured, metric: str, split: str, seed: int) -> dict:
    """``statistics.summarise`` of one split, its gold run also chosen on the other split."""
    other = "train" if split == "val" else "val"
    return summarise(
        measured.logs,
        metric,
        split,
        ACCURACIES[split],
        ACCURACIES[other],
        measured.baselines,
        measured.beta_sign,
        seed,
    )


def load_measured(dataset: str, embed_dim: int = 256) -> Measured:
    """The logs of ``dataset`` and those of its baselines that exist.

    Raises InputError when the logs are missing or a baseline belongs to another vocabulary.
    """
    path = logs_path(dataset)
    if not path.exists():
        raise InputError(
            f"{path} does not exist; make it with: python eval_dump.py --dataset {dataset}"
        )
    logs = load_logs(path)
    if logs.dataset != dataset:
        raise InputError(
            f"{path} holds the logs of {logs.dataset}; dump {dataset} with eval_dump.py"
        )
    if isinstance(logs.trg, Ragged) or not np.isin(logs.trg, (0, 1)).all():
        raise InputError(f"logs {path} are damaged: labels must be 0 or 1")
    for (name, iteration, kind), values in logs.arrays.items():
        if not np.isfinite(values).all():
            raise InputError(
                f"logs {path} hold scores that are not finite: {kind} of {name} at iteration "
                f"{iteration}; train that run again, then dump again"
            )
    sign = np.repeat(2 * np.asarray(logs.trg) - 1, logs.src.lengths).astype(np.float32)
    measured = Measured(logs, sign, data=_data_of(path))
    sources = {
        "px": (embedding_beta_path(dataset, embed_dim), "embedding_beta.py"),
        "logistic": (logistic_beta_path(dataset), "logistic_beta.py"),
    }
    for name, (file, script) in sources.items():
        if not file.exists():
            measured.missing.append(
                f"{file} does not exist, so agr_{name} is left out; "
                f"make it with: python {script} --dataset {dataset}"
            )
            continue
        beta = load_pickle(file, "baseline")
        if not isinstance(beta, np.ndarray) or beta.dtype.kind != "f":
            raise InputError(f"baseline {file} holds no array of numbers: run {script} again")
        beta = beta.ravel()
        if not np.isfinite(beta).all():
            raise InputError(
                f"baseline {file} holds numbers that are not finite: run {script} again"
            )
        made_from = _data_of(file)
        if made_from and measured.data and made_from != measured.data:
            raise InputError(
                f"baseline {file} was made from other data than the logs {path}: make both "
                f"again, with {script} and eval_dump.py --dataset {dataset}"
            )
        if len(beta) <= logs.src.values.max():
            raise InputError(
                f"baseline {file} holds {len(beta)} values of type {beta.dtype}, but the logs use "
                f"word indices up to {logs.src.values.max()}: it was made from other data; "
                f"make it again with: python {script} --dataset {dataset}"
            )
        measured.baselines[name] = beta[logs.src.values] * sign
    return measured


def _data_of(path) -> str | None:
    """The checksum of the data that an output was made from; None when it has no record."""
    settings = read_output_record(path).get("settings")
    return settings.get("data") if isinstance(settings, dict) else None

"""What has been measured of a data set: the logs, and the baselines laid out beside them."""

from dataclasses import dataclass, field

import numpy as np

from attention_dynamics.errors import InputError
from attention_dynamics.logs import Logs, load_logs
from attention_dynamics.pickles import load_pickle
from attention_dynamics.runs import embedding_beta_path, logistic_beta_path, logs_path

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
    """

    logs: Logs
    beta_sign: np.ndarray
    baselines: dict[str, np.ndarray] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


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
    sign = np.repeat(2 * np.asarray(logs.trg) - 1, logs.src.lengths).astype(np.float32)
    measured = Measured(logs, sign)
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
        beta = np.asarray(load_pickle(file, "baseline")).ravel()
        if beta.dtype.kind != "f" or len(beta) <= logs.src.values.max():
            raise InputError(
                f"baseline {file} holds {len(beta)} values of type {beta.dtype}, but the logs use "
                f"word indices up to {logs.src.values.max()}: it was made from other data; "
                f"make it again with: python {script} --dataset {dataset}"
            )
        measured.baselines[name] = beta[logs.src.values] * sign
    return measured

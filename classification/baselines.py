"""The logs of a dataset, and its baselines β^px and β^lr as votes for the correct label."""

import functools

import numpy as np

from attention_dynamics.analysis.inputs import AnalysisInputs, Baseline, number_array
from attention_dynamics.analysis.inputs import load_inputs as load
from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.runs.outputs import read_output_record
from attention_dynamics.runs.paths import embedding_beta_path, logistic_beta_path


def load_inputs(dataset: str, embed_dim: int = 256) -> AnalysisInputs:
    """The logs of ``dataset``, and β^px and β^lr where they exist, as votes for the correct label.

    β^lr with another regularization strength of similar accuracy, such as 10, is "logistic_C10".

    Raises InputError when the logs are missing or a baseline belongs to another vocabulary.
    """
    px, lr = embedding_beta_path(dataset, embed_dim), logistic_beta_path(dataset)
    baselines = {
        "px": Baseline(
            px, f"embedding_beta.py --embed_dim {embed_dim}", functools.partial(_votes, ndim=1)
        ),
        "logistic": Baseline(lr, "logistic_beta.py", functools.partial(_votes, ndim=2)),
    }
    _, *others = read_output_record(lr).get("results", {}).get("C", [None])
    for row, strength in enumerate(others, 1):
        lay_out = functools.partial(_votes, ndim=2, row=row)
        baselines[f"logistic_C{strength:g}"] = Baseline(lr, "logistic_beta.py", lay_out)
    inputs = load(dataset, baselines, _check)
    inputs.beta_sign = beta_sign(inputs.logs)
    return inputs


def beta_sign(logs: Logs) -> np.ndarray:
    """(scores,) +1 for positive, -1 for negative examples: makes β a vote for the correct label."""
    return np.repeat(2 * np.asarray(logs.trg) - 1, logs.src.lengths).astype(np.float32)


def _check(logs: Logs) -> None:
    if isinstance(logs.trg, Ragged) or not np.isin(logs.trg, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")


def _votes(content: object, logs: Logs, ndim: int, row: int = 0) -> np.ndarray:
    beta = np.atleast_2d(number_array(content, ndim))[row]
    if len(beta) <= logs.src.values.max():
        raise ValueError(
            f"holds {len(beta)} values, but the logs use word indices up to "
            f"{logs.src.values.max()}; it was made from other data"
        )
    return beta[logs.src.values] * beta_sign(logs)

"""The logs of a dataset, and its baselines β^px and β^ibm1 in the layout of the logs."""

import numpy as np
from data import token_pairs
from scipy.sparse import csr_array

from attention_dynamics.analysis.inputs import AnalysisInputs, Baseline, number_array
from attention_dynamics.analysis.inputs import load_inputs as load
from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.runs.paths import ibm1_beta_path, translation_beta_path


def load_inputs(dataset: str, embed_dim: int = 256) -> AnalysisInputs:
    """The logs of ``dataset``, and β^px and β^ibm1 where they exist.

    Raises InputError when the logs are missing or a baseline belongs to another vocabulary.
    """
    px = translation_beta_path(dataset, embed_dim)
    baselines = {
        "px": Baseline(px, f"embedding_beta.py --embed_dim {embed_dim}", of_matrix),
        "ibm1": Baseline(ibm1_beta_path(dataset), "ibm1_beta.py", _of_table),
    }
    return load(dataset, baselines, _check)


def _check(logs: Logs) -> None:
    if not isinstance(logs.trg, Ragged):
        raise ValueError("targets must be sentences")


def of_matrix(content: object, logs: Logs) -> np.ndarray:
    """(scores,) of a table (vocab, vocab), as the arrays of the logs; ValueError if it is none."""
    beta = number_array(content, 2)
    _check_vocabulary(beta.shape, logs)
    return beta[token_pairs(logs.src, logs.trg)[:2]]


def _of_table(content: object, logs: Logs) -> np.ndarray:
    try:
        parts = (content["data"], content["indices"], content["indptr"])
        table = csr_array(parts, content["shape"])
        table.check_format()
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"holds no sparse table: {error}") from None
    _check_vocabulary(table.shape, logs)
    # A pair of pieces that no training sentence holds has the probability 0.
    src, trg, _ = token_pairs(logs.src, logs.trg)
    return np.asarray(table[src, trg], dtype=np.float32)


def _check_vocabulary(shape: tuple[int, ...], logs: Logs) -> None:
    highest = max(int(logs.src.values.max()), int(logs.trg.values.max()))
    if min(shape) <= highest:
        raise ValueError(
            f"has the shape {tuple(shape)}, but the logs use pieces up to {highest}; it was made "
            "from other data"
        )

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
        "px": Baseline(px, "embedding_beta.py", of_matrix),
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
    keys = ("data", "indices", "indptr", "shape")
    if not isinstance(content, dict) or not set(keys) <= content.keys():
        raise ValueError("holds no sparse table")
    data, indices, indptr, shape = (content[key] for key in keys)
    if not all(
        isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind == "i"
        for part in (indices, indptr)
    ):
        raise ValueError("holds no sparse table: its indices are not integer arrays")
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"holds no square table: its shape is {shape}")
    data = number_array(data, 1)
    if ((data < 0) | (data > 1 + 1e-6)).any():
        raise ValueError("holds numbers that are no probabilities")
    try:
        table = csr_array((data, indices, indptr), shape)
        table.check_format()
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"holds no sparse table: {error}") from None
    if not table.has_canonical_format:
        raise ValueError("holds no sparse table: its columns are not ascending in each row")
    _check_vocabulary(table.shape, logs)
    # A pair of pieces that no training sentence holds has the probability 0.
    src, trg, _ = token_pairs(logs.src, logs.trg)
    rows = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    used = rows * table.shape[1] + table.indices  # ascending
    wanted = src.astype(np.int64) * table.shape[1] + trg
    if not len(used):
        raise ValueError("holds an empty table")
    place = np.searchsorted(used, wanted).clip(max=len(used) - 1)
    return np.where(used[place] == wanted, table.data[place], 0).astype(np.float32)


def _check_vocabulary(shape: tuple[int, ...], logs: Logs) -> None:
    highest = max(int(logs.src.values.max()), int(logs.trg.values.max()))
    if min(shape) <= highest:
        raise ValueError(
            f"has the shape {tuple(shape)}, but the logs use pieces up to {highest}; it was made "
            "from other data"
        )

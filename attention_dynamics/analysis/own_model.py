"""Logs for a model of your own: create them, add checkpoints, save them (docs/own-model.md).

::

    logs = create_logs("mine", src_ids, labels, num_val=400)
    add_checkpoint(logs, "normal_A", 0, alpha, beta, grad, test_acc=0.51, train_acc=0.50)
    ...
    save(logs)

The file is that of eval_dump.py, so collect_*_stats.py and plot_dynamics.py accept it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attention_dynamics.analysis.logs import Logs, check_logs, save_logs, wrong_sum
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.runs.paths import check_name, logs_path

Scores = Sequence[np.ndarray]


def create_logs(
    dataset: str,
    src: Sequence[Sequence[int]],
    trg: Sequence,
    num_val: int,
    index: Sequence[int] | None = None,
) -> Logs:
    """Logs without checkpoints.

    Args:
        dataset: name; the file will be outputs/{dataset}_logs.pkl.
        src: token ids (src_len,) of each example, those of the split "val" first, then "train".
        trg: labels (examples,), 0 or 1; or the target token ids (trg_len,) of each example, <s> and
            </s> included.
        num_val: number of examples in the split "val".
        index: position of each example in its data file; by default 0, 1, ... in each split.

    Raises InputError when the numbers of examples do not fit or an example is empty.
    """
    check_name(dataset)
    splits = {"val": num_val, "train": len(src) - num_val}
    try:
        if num_val < 1:
            raise ValueError(f"num_val is {num_val} (expected at least 1)")
        if index is None:
            index = np.concatenate([np.arange(size) for size in splits.values()])
        targets = np.asarray(trg) if np.ndim(trg[0]) == 0 else Ragged.from_rows(list(trg))
        logs = Logs(dataset, Ragged.from_rows(list(src)), targets, splits, np.asarray(index))
        check_logs(logs)
    except (IndexError, ValueError) as error:
        raise InputError(f"logs of {dataset}: {error}") from None
    return logs


def add_checkpoint(
    logs: Logs,
    run: str,
    iteration: int,
    alpha: Scores,
    beta: Scores,
    grad: Scores | None = None,
    **performances: float,
) -> None:
    """Add the scores of one checkpoint; docs/own-model.md says what they must be.

    Args:
        logs: of :func:`create_logs`.
        run: normal_A (the gold run), normal_B, ... (compared with it) or uniform (gives β^uf).
        iteration: number of updates before the checkpoint.
        alpha, beta, grad: one array per example, (src_len,) or (trg_len - 1, src_len). Each row of
            alpha sums to 1; grad (Δ) may be left out.
        performances: test_acc and train_acc for labels; val_acc and train_acc (and val_bleu,
            train_bleu) in percent for targets.

    Raises InputError when scores do not fit the examples, are not finite, when a row of alpha does
    not sum to 1, or when the checkpoint was added before.
    """
    where = f"logs of {logs.dataset}: {run} at iteration {iteration}"
    if (run, iteration, "alpha") in logs.arrays:
        raise InputError(f"{where} was added before")
    given = {"alpha": alpha, "beta": beta, "grad": grad}
    arrays = {
        kind: _flat(logs, scores, f"{where}: {kind}")
        for kind, scores in given.items()
        if scores is not None
    }
    if wrong := wrong_sum(logs, arrays["alpha"]):
        row, total = wrong
        raise InputError(
            f"{where}: alpha sums to {total:.6f} in example {logs.row_example[row]} (expected 1); "
            "leave padding out of the softmax"
        )
    for name, value in performances.items():
        if not np.isfinite(value):
            raise InputError(f"{where}: {name} is {value}")
        logs.metas[run, iteration, name] = float(value)
    logs.arrays |= {(run, iteration, kind): values for kind, values in arrays.items()}


def save(logs: Logs) -> Path:
    """Write the logs to outputs/{dataset}_logs.pkl; returns the path.

    Raises InputError when a run has no iteration 0.
    """
    for run in logs.names():
        if 0 not in logs.iterations(run):
            raise InputError(
                f"logs of {logs.dataset}: {run} has no iteration 0 (expected the untrained model "
                f"first, got {logs.iterations(run)[:3]})"
            )
    path = logs_path(logs.dataset)
    save_logs(path, logs)
    return path


def _flat(logs: Logs, scores: Scores, what: str) -> np.ndarray:
    """``(scores,)`` float32, checked against the examples of the logs."""
    shapes = [(n,) for n in logs.src.lengths.tolist()]
    if isinstance(logs.trg, Ragged):
        shapes = [(n - 1, *s) for n, s in zip(logs.trg.lengths.tolist(), shapes, strict=True)]
    if len(scores) != len(shapes):
        raise InputError(f"{what} has {len(scores)} arrays (expected {len(shapes)}, as examples)")
    for number, (values, shape) in enumerate(zip(scores, shapes, strict=True)):
        if np.shape(values) != shape:
            raise InputError(
                f"{what} of example {number} has shape {np.shape(values)} (expected {shape})"
            )
    flat = np.concatenate([np.ravel(values) for values in scores])
    if not np.isfinite(flat).all():
        raise InputError(f"{what} holds NaN or infinite values")
    return flat.astype(np.float32)

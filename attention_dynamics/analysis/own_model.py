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

from attention_dynamics.analysis.logs import Logs, save_logs, wrong_sum
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.runs.paths import check_name, logs_path

Scores = np.ndarray | Sequence[np.ndarray]


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
    if len(src) != len(trg) or not 0 < num_val <= len(src):
        raise InputError(
            f"logs of {dataset}: {len(src)} sources, {len(trg)} targets and num_val = {num_val} do "
            "not fit (expected as many targets as sources, and 1 <= num_val <= that number)"
        )
    for number, ids in enumerate(src):
        if len(ids) == 0:
            raise InputError(f"logs of {dataset}: example {number} has no source tokens")
    num_train = len(src) - num_val
    is_label = np.ndim(trg[0]) == 0
    return Logs(
        dataset=dataset,
        src=Ragged.from_rows([np.asarray(ids, dtype=np.int64) for ids in src]),
        trg=np.asarray(trg, dtype=np.int64) if is_label else Ragged.from_rows(list(trg)),
        splits={"val": num_val, "train": num_train},
        index=np.asarray([*range(num_val), *range(num_train)] if index is None else index),
    )


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
        alpha, beta, grad: one array per example, (src_len,) or (trg_len - 1, src_len); or all of
            them one after another in one array. Each row of alpha sums to 1; grad (Δ) may be left
            out.
        performances: test_acc and train_acc for labels; val_acc and train_acc (and val_bleu,
            train_bleu) in percent for targets.

    Raises InputError when scores do not fit the examples, are not finite, when a row of alpha does
    not sum to 1, or when the checkpoint was added before.
    """
    where = f"{run} at iteration {iteration}"
    if (run, iteration, "alpha") in logs.arrays:
        raise InputError(f"logs of {logs.dataset}: {where} was added before")
    arrays = {
        kind: _flat(logs, scores, f"{kind} of {where}")
        for kind, scores in (("alpha", alpha), ("beta", beta), ("grad", grad))
        if scores is not None
    }
    if wrong := wrong_sum(logs, arrays["alpha"]):
        raise InputError(
            f"logs of {logs.dataset}: alpha of {where} sums to {wrong[1]:.6f} in example "
            f"{logs.row_example[wrong[0]]} (expected 1); leave padding out of the softmax"
        )
    for kind, values in arrays.items():
        logs.arrays[run, iteration, kind] = values
    for name, value in performances.items():
        if not np.isfinite(value):
            raise InputError(f"logs of {logs.dataset}: {name} of {where} is {value}")
        logs.metas[run, iteration, name] = float(value)


def save(logs: Logs, path: Path | None = None) -> Path:
    """Write the logs to outputs/{dataset}_logs.pkl, or to ``path``; returns the path.

    Raises InputError when a run has no iteration 0.
    """
    for run in logs.names():
        if 0 not in logs.iterations(run):
            raise InputError(
                f"logs of {logs.dataset}: {run} has no iteration 0 (expected the untrained model "
                f"first, got {logs.iterations(run)[:3]})"
            )
    path = logs_path(logs.dataset) if path is None else Path(path)
    save_logs(path, logs)
    return path


def _flat(logs: Logs, scores: Scores, what: str) -> np.ndarray:
    """``(scores,)`` float32, checked against the examples of the logs."""
    what = f"logs of {logs.dataset}: {what}"
    if not (isinstance(scores, np.ndarray) and scores.ndim == 1 and scores.dtype.kind == "f"):
        if len(scores) != len(logs.src):
            raise InputError(
                f"{what} has {len(scores)} arrays (expected one for each of the {len(logs.src)} "
                "examples)"
            )
        for number, values in enumerate(scores):
            expected = (int(logs.src.lengths[number]),)
            if isinstance(logs.trg, Ragged):
                expected = (int(logs.trg.lengths[number]) - 1, *expected)
            if np.shape(values) != expected:
                raise InputError(
                    f"{what} of example {number} has shape {np.shape(values)} (expected {expected})"
                )
        scores = np.concatenate([np.ravel(values) for values in scores])
    if len(scores) != logs.num_scores:
        raise InputError(f"{what} has {len(scores)} values (expected {logs.num_scores})")
    if not np.isfinite(scores).all():
        raise InputError(f"{what} holds NaN or infinite values")
    return scores.astype(np.float32)

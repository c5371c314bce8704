"""The paper's summary statistics: agr_*, xi_*, baseline, and curves over training (A.1).

Shared by classification and translation. α_A* is the attention of the gold run ``normal_A`` at its
best iteration; β^uf the KTIW of the run ``uniform``; ``normal_B``, ... the runs compared with the
gold one.
"""

import math

import numpy as np

from attention_dynamics.analysis.agreement import (
    agreement,
    bootstrap_interval,
    expected_by_chance,
    shuffled,
)
from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.names import GOLD, UNIFORM


def summarise(
    logs: Logs,
    metric: str,
    split: str,
    perf: str,
    heldout_perf: str | None,
    baselines: dict[str, np.ndarray],
    beta_sign: np.ndarray | None = None,
    seed: int = 0,
) -> dict:
    """All numbers of one row of the paper's table.

    Args:
        logs: of one data set.
        metric: one of ``agreement.METRICS``.
        split: "val" or "train", the examples compared.
        perf: the accuracy in ``logs.metas`` that picks the gold iteration and that ξ is read from.
        heldout_perf: the accuracy on the other split, for the held-out choice of the gold iteration
            (departure 10); None when it was not dumped.
        baselines: result name ("px", "logistic", ...) -> scores laid out as the arrays of ``logs``.
        beta_sign: ``(scores,)`` +1 or -1 that turns β into a vote for the correct label; None when
            it is one already.
        seed: of the shuffles and of the bootstrap.

    Returns:
        The published keys ``agr_*``, ``xi_*``, ``best_perf``, ``baseline``, ``alpha_corrs``
        (iterations,), ``alpha_perfs`` (iterations,), ``iterations``; and beside them
        ``gold_iteration``, ``agr_*_interval`` (bootstrap 95% over examples, at the iteration of the
        maximum), ``agr_*_iteration``, ``curve_*`` (the agreement at each iteration of the rival),
        ``alpha_corrs_std`` and ``alpha_perfs_std`` (over runs), ``alpha_corrs_interval``
        (iterations, 2), ``baseline_exact`` (the expectation of ``baseline``), ``heldout`` (the
        agr_* with the held-out gold iteration).
    """
    compared = sorted(n for n in logs.names() if n.startswith("normal_") and n != GOLD)
    for name in (GOLD, UNIFORM, *(compared or ["normal_B"])):
        if name not in logs.names():
            raise InputError(
                f"the logs of {logs.dataset} hold no run {name}: add it to the log config, "
                "train it, and dump again"
            )
    iterations = sorted(set.intersection(*(set(logs.iterations(name)) for name in compared)))
    if not iterations:
        raise InputError(
            f"the logs of {logs.dataset} hold no iteration that all of {', '.join(compared)} have"
        )
    signs = 1 if beta_sign is None else beta_sign
    rows = logs.rows(split)
    example = logs.row_example[rows.start : rows.stop]

    def scores(name: str, iteration: int, kind: str) -> Ragged:
        values = logs.arrays[name, iteration, kind]
        return logs.cut(values * signs if kind == "beta" else values, split)

    gold_iteration = _best_iteration(logs, perf)
    gold = scores(GOLD, gold_iteration, "alpha")

    # A(α_A*, α_run,t): (runs, iterations, rows)
    same = np.array(
        [[agreement(metric, gold, scores(run, t, "alpha")) for t in iterations] for run in compared]
    )
    by_run = _mean(same)
    perfs = np.array([[_perf(logs, run, t, perf) for t in iterations] for run in compared])
    chance, exact = [], []
    for number, run in enumerate(compared):
        for t in iterations:
            alpha = scores(run, t, "alpha")
            chance.append(agreement(metric, gold, shuffled(alpha, (seed, number, t))))
            exact.append(expected_by_chance(metric, alpha))
    result = {
        "gold_iteration": gold_iteration,
        "best_perf": _perf(logs, GOLD, gold_iteration, perf),
        "baseline": float(_mean(np.array(chance)).mean()),
        "baseline_exact": float(_mean(np.array(exact)).mean()),
        "iterations": iterations,
        "alpha_corrs": by_run.mean(axis=0),
        "alpha_corrs_std": _std(by_run),
        "alpha_corrs_interval": np.array(
            [
                bootstrap_interval(_mean_over_runs(same[:, t]), example, seed)
                for t in range(len(iterations))
            ]
        ),
        "alpha_perfs": perfs.mean(axis=0),
        "alpha_perfs_std": _std(perfs),
    }
    rivals = _rivals(logs, scores, split, compared[0], baselines)
    for name, pairs in rivals(gold_iteration).items():
        per_row = {t: agreement(metric, first, second) for t, (first, second) in pairs.items()}
        curve = {t: float(_mean(values)) for t, values in per_row.items()}
        best = max(curve, key=lambda t: (not np.isnan(curve[t]), curve[t]))
        result[f"agr_{name}"] = curve[best]
        result[f"agr_{name}_interval"] = bootstrap_interval(per_row[best], example, seed)
        result[f"agr_{name}_iteration"] = best
        result[f"curve_{name}"] = curve
        result[f"xi_{name}"] = _first_above(result, curve[best])
    if heldout_perf is not None and (GOLD, gold_iteration, heldout_perf) in logs.metas:
        heldout_iteration = _best_iteration(logs, heldout_perf)
        result["heldout"] = {
            "gold_iteration": heldout_iteration,
            "best_perf": _perf(logs, GOLD, heldout_iteration, perf),
            **{
                # What does not depend on the gold iteration is not computed again.
                f"agr_{name}": result[f"agr_{name}"]
                if name in baselines or heldout_iteration == gold_iteration
                else _highest(_mean(agreement(metric, *pair)) for pair in pairs.values())
                for name, pairs in rivals(heldout_iteration).items()
            },
        }
    return result


def _rivals(logs: Logs, scores, split: str, other_run: str, baselines: dict):
    """A function: gold iteration -> {result name: {iteration: the two score vectors compared}}."""

    def rivals(gold_iteration: int) -> dict[str, dict[int, tuple[Ragged, Ragged]]]:
        alpha = scores(GOLD, gold_iteration, "alpha")
        uniform = {t: scores(UNIFORM, t, "beta") for t in logs.iterations(UNIFORM)}
        pairs = {
            "unif": {t: (alpha, beta) for t, beta in uniform.items()},
            "normal": {
                t: (alpha, scores(other_run, t, "beta")) for t in logs.iterations(other_run)
            },
        }
        if (GOLD, gold_iteration, "grad") in logs.arrays:
            grad = scores(GOLD, gold_iteration, "grad")
            if not np.isnan(grad.values).all():
                pairs["grad"] = {t: (grad, beta) for t, beta in uniform.items()}
        for name, values in baselines.items():
            cut = logs.cut(values, split)
            pairs[name] = {t: (cut, beta) for t, beta in uniform.items()}
        return pairs

    return rivals


def _best_iteration(logs: Logs, perf: str) -> int:
    """The iteration of the gold run with the best ``perf`` (the first of equals)."""
    return max(logs.iterations(GOLD), key=lambda t: _perf(logs, GOLD, t, perf))


def _perf(logs: Logs, name: str, iteration: int, perf: str) -> float:
    value = logs.metas.get((name, iteration, perf))
    if value is None:
        options = {
            "val_bleu": " --eval_bleu all",
            "train_bleu": " --eval_bleu all --include_train_subset",
        }
        raise InputError(
            f"the logs of {logs.dataset} hold no {perf} of {name} at iteration {iteration}: "
            f"dump them again with eval_dump.py{options.get(perf, '')}"
        )
    if not math.isfinite(value):
        raise InputError(
            f"the logs of {logs.dataset} say that {perf} of {name} at iteration {iteration} is "
            f"{value}: train that run again, then dump again"
        )
    return float(value)


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis without NaN; NaN where nothing is defined."""
    defined = ~np.isnan(values)
    counts = defined.sum(axis=-1)
    sums = np.where(defined, values, 0).sum(axis=-1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _highest(values) -> float:
    """The largest that is defined; NaN when none is."""
    return float(np.fmax.reduce(list(values)))


def _mean_over_runs(values: np.ndarray) -> np.ndarray:
    return _mean(values.T)


def _std(by_run: np.ndarray) -> np.ndarray:
    """Sample standard deviation over runs, axis 0 (0 for a single run)."""
    return by_run.std(axis=0, ddof=1) if len(by_run) > 1 else np.zeros(by_run.shape[1])


def _first_above(result: dict, level: float) -> float | None:
    """ξ: alpha_perfs where alpha_corrs first exceeds ``level``; None if it never does."""
    for corr, perf in zip(result["alpha_corrs"], result["alpha_perfs"], strict=True):
        if corr > level:
            return float(perf)
    return None

"""The paper's statistics: agr_*, xi_*, baseline, curves (docs/method.md, section 1.3).

Shared by classification and translation. α_A* is the attention of the gold run ``normal_A`` at its
best iteration, β^uf the KTIW of the run ``uniform``; ``normal_B``, ... are compared with the gold
run.
"""

import math

import numpy as np

from attention_dynamics.analysis.agreement import agreement, expected_by_chance, shuffled
from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.names import GOLD, UNIFORM


def summarize(
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
        logs: of one dataset.
        metric: one of ``names.METRICS``.
        split: "val" or "train", the examples compared.
        perf: the performance in ``logs.metas`` that selects the gold iteration and gives ξ.
        heldout_perf: the performance on the other split, for the held-out choice of the gold
            iteration (departure 10); None if it was not dumped.
        baselines, beta_sign: as in ``inputs.AnalysisInputs``.
        seed: random seed of shuffles and bootstrap.

    Returns:
        The published keys ``agr_*``, ``xi_*``, ``best_perf``, ``baseline``, ``alpha_corrs``
        (iterations,), ``alpha_perfs`` (iterations,), ``iterations``, and in addition:

        - ``gold_iteration``, ``agr_*_iteration``; ``curve_*``: agreement at each iteration
        - ``agr_*_interval``: 95% bootstrap interval over examples; the choice of the maximum over
          checkpoints is repeated in each resample, the gold iteration is given
        - ``xi_*_bracket``: performance at the last checkpoint not above ``agr_*``, and at the first
          one above it (= ``xi_*``); None where there is no such checkpoint
        - ``alpha_corrs_std``, ``alpha_perfs_std``: standard deviation over runs
        - ``alpha_corrs_interval`` (iterations, 2): 95% bootstrap interval of the mean over runs and
          examples, both resampled; ``interval_note``: the caveat if there are fewer than five runs,
          else None; ``num_runs``: the runs compared
        - ``baseline_exact``: the expectation of ``baseline``
        - ``heldout``: the ``agr_*`` with the held-out gold iteration

    Raises InputError if the logs lack a run, an iteration or a performance.
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

    # (runs, iterations, rows): A(α_A*, α_run,t), that of shuffled α, and its expectation.
    same, chance, exact = (np.empty((len(compared), len(iterations), len(gold))) for _ in range(3))
    for i, run in enumerate(compared):
        for j, t in enumerate(iterations):
            alpha = scores(run, t, "alpha")
            same[i, j] = agreement(metric, gold, alpha)
            chance[i, j] = agreement(metric, gold, shuffled(alpha, (seed, i, t)))
            exact[i, j] = expected_by_chance(metric, alpha)
    by_run, note = _mean(same), None
    if len(compared) < 5:
        note = f"only {len(compared)} runs: the interval is rough"
    if len(compared) == 1:
        note = "one run: the interval covers examples only"
    perfs = np.array([[_perf(logs, run, t, perf) for t in iterations] for run in compared])
    result = {
        "gold_iteration": gold_iteration,
        "best_perf": _perf(logs, GOLD, gold_iteration, perf),
        "baseline": float(_mean(chance).mean()),
        "baseline_exact": float(_mean(exact).mean()),
        "iterations": iterations,
        "alpha_corrs": by_run.mean(axis=0),
        "alpha_corrs_std": _std(by_run),
        "alpha_corrs_interval": two_way_interval(same, example, seed),
        "num_runs": len(compared),
        "interval_note": note,
        "alpha_perfs": perfs.mean(axis=0),
        "alpha_perfs_std": _std(perfs),
    }

    def rivals(gold_iteration: int) -> dict[str, dict[int, tuple[Ragged, Ragged]]]:
        """Result name -> {iteration: the two score vectors that are compared}."""
        uniform = {t: scores(UNIFORM, t, "beta") for t in logs.iterations(UNIFORM)}
        firsts = {"unif": scores(GOLD, gold_iteration, "alpha")}
        if logs.has_scores(GOLD, gold_iteration, "grad", split):
            firsts["grad"] = scores(GOLD, gold_iteration, "grad")
        firsts |= {name: logs.cut(values, split) for name, values in baselines.items()}
        pairs = {name: {t: (first, uniform[t]) for t in uniform} for name, first in firsts.items()}
        other = compared[0]
        betas = {t: (firsts["unif"], scores(other, t, "beta")) for t in logs.iterations(other)}
        return {"unif": pairs.pop("unif"), "normal": betas, **pairs}

    for name, pairs in rivals(gold_iteration).items():
        per_row = {t: agreement(metric, *pair) for t, pair in pairs.items()}
        curve = {t: float(_mean(values)) for t, values in per_row.items()}
        best = max(curve, key=lambda t: (not np.isnan(curve[t]), curve[t]))
        result[f"agr_{name}"] = curve[best]
        result[f"agr_{name}_interval"] = maximum_interval([*per_row.values()], example, seed)
        result[f"agr_{name}_iteration"] = best
        result[f"curve_{name}"] = curve
        result[f"xi_{name}"], result[f"xi_{name}_bracket"] = _xi(result, curve[best])
    if heldout_perf is not None and (GOLD, gold_iteration, heldout_perf) in logs.metas:
        heldout_iteration = _best_iteration(logs, heldout_perf)
        result["heldout"] = {
            "gold_iteration": heldout_iteration,
            "best_perf": _perf(logs, GOLD, heldout_iteration, perf),
        }
        for name, pairs in rivals(heldout_iteration).items():
            curve = [_mean(agreement(metric, *pair)) for pair in pairs.values()]
            result["heldout"][f"agr_{name}"] = float(np.fmax.reduce(curve))
    return result


def _best_iteration(logs: Logs, perf: str) -> int:
    """The (first) iteration of the gold run with the best ``perf``."""
    return max(logs.iterations(GOLD), key=lambda t: _perf(logs, GOLD, t, perf))


def _perf(logs: Logs, name: str, iteration: int, perf: str) -> float:
    value = logs.metas.get((name, iteration, perf))
    where = f"{perf} of {name} at iteration {iteration}"
    if value is None:
        option = " --eval_bleu all" if perf.endswith("bleu") else ""
        option += " --include_train_subset" if perf == "train_bleu" else ""
        raise InputError(
            f"the logs of {logs.dataset} hold no {where}: dump them again with eval_dump.py{option}"
        )
    if not math.isfinite(value):
        raise InputError(
            f"the logs of {logs.dataset} hold {value} as {where}: retrain that run, then dump again"
        )
    return float(value)


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis without NaN; NaN where all values are."""
    counts = (~np.isnan(values)).sum(axis=-1)
    return np.where(counts > 0, np.nansum(values, axis=-1) / np.maximum(counts, 1), np.nan)


def _std(by_run: np.ndarray) -> np.ndarray:
    """Sample standard deviation over runs, axis 0 (0 for a single run)."""
    return by_run.std(axis=0, ddof=1) if len(by_run) > 1 else np.zeros(by_run.shape[1])


def crossing(alpha_corrs: np.ndarray, level: float) -> int | None:
    """The position of ξ: the first of ``alpha_corrs`` above ``level``; None if none is."""
    return next((place for place, corr in enumerate(alpha_corrs) if corr > level), None)


def _xi(result: dict, level: float) -> tuple[float | None, tuple[float | None, float | None]]:
    """ξ, and the performances at the checkpoints that it lies between."""
    perfs = [float(perf) for perf in result["alpha_perfs"]]
    first = crossing(result["alpha_corrs"], level)
    if first is None:
        return None, (perfs[-1], None)
    return perfs[first], (perfs[first - 1] if first else None, perfs[first])


# Own code because scipy.stats.bootstrap resamples one axis only. The examples are drawn once for
# all curves, as counts, so that each set of resampled means is one product of matrices.
_RESAMPLES = 1000


def two_way_interval(per_row: np.ndarray, example: np.ndarray, seed: int) -> np.ndarray:
    """``(iterations, 2)``: 95% percentile intervals of means over runs and examples.

    Each resample draws runs and examples with replacement. A single run leaves only the examples.
    ``per_row`` (runs, iterations, rows) are agreements, NaN is left out; the rows of an ``example``
    (rows,) stay together.
    """
    rng = np.random.default_rng(seed)
    runs = len(per_row)
    means = _resampled_means(per_row.reshape(-1, per_row.shape[-1]), example, rng)
    means = means.reshape(_RESAMPLES, runs, -1)
    drawn = rng.integers(0, runs, (_RESAMPLES, runs, 1))
    return _percentiles(np.take_along_axis(means, drawn, axis=1).mean(axis=1))


def maximum_interval(curve: list[np.ndarray], example: np.ndarray, seed: int) -> tuple:
    """(low, high): the 95% percentile interval of the maximum over iterations of a mean.

    Each resample of the examples chooses its own iteration. ``curve`` has agreements (rows,) for
    each iteration; ``example`` is as in :func:`two_way_interval`. (nan, nan) if no agreement is
    defined.
    """
    means = _resampled_means(np.array(curve), example, np.random.default_rng(seed))
    return tuple(_percentiles(np.fmax.reduce(means, axis=1)[:, None])[0].tolist())


def _resampled_means(
    per_row: np.ndarray, example: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """``(resamples, series)``: means of ``per_row`` (series, rows) over drawn examples."""
    _, group = np.unique(example, return_inverse=True)
    size = int(group.max()) + 1
    defined = ~np.isnan(per_row)
    sums = np.array([np.bincount(group, row, size) for row in np.where(defined, per_row, 0)]).T
    numbers = np.array([np.bincount(group, row, size) for row in defined]).T
    means = np.full((_RESAMPLES, len(per_row)), np.nan)
    for some in np.array_split(np.arange(_RESAMPLES), 20):  # bounds the memory
        drawn = rng.integers(0, size, (len(some), size))
        drawn += size * np.arange(len(some))[:, None]
        counts = np.bincount(drawn.ravel(), minlength=len(some) * size).reshape(-1, size)
        counts = counts.astype(np.float64)
        total = counts @ numbers
        means[some] = np.divide(counts @ sums, total, out=means[some], where=total > 0)
    return means


def _percentiles(means: np.ndarray) -> np.ndarray:
    """``(series, 2)``: the 2.5% and 97.5% percentiles of ``means`` (resamples, series)."""
    columns = (column[~np.isnan(column)] for column in means.T)
    nothing = (np.nan, np.nan)
    return np.array([np.percentile(c, [2.5, 97.5]) if len(c) else nothing for c in columns])

"""Scores of constant heads: the finished runs of a model on a task, by number of constant heads.

A directory written by papa_runs.sh is an *experiment*: ``constants/`` (run_papa_*_avgs_creator.py),
``sorted/`` (--sort_calculating) and ``results/``, where every directory with a run.json is a
finished run.
"""

import itertools
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from metrics import main_metric

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import read_json

EPOCHS = ("last", "best")
_RECORD = {
    "model": str, "task": str, "max_seq_length": int, "num_heads": int, "static_heads_num": int,
    "seed": int, "checksums": dict, "settings": dict,
}  # fmt: skip
# All other settings must be the same within an experiment.
_VARIED = ("static_heads_num", "seed", "checksums")


@dataclass
class Experiment:
    """The finished runs of one model on one task."""

    name: str  # of the directory, such as minilm_cola
    model: str
    task: str
    max_seq_length: int
    num_heads: int  # of all layers together
    metric: str  # as in eval_results.json without its eval_
    scores: dict[str, dict[int, dict[int, float]]]  # epoch ("last", "best") -> heads -> seed


def lower_is_better(metric: str) -> bool:
    """Whether a smaller value of ``metric`` is the better one."""
    return metric.removesuffix("_mm") in ("loss", "mse")


def load_experiments(folders: list[str], metric: str | None = None) -> list[Experiment]:
    """The experiments in ``folders``; see :func:`load_experiment`. Their names must differ."""
    experiments = [load_experiment(Path(folder), metric) for folder in folders]
    names = [experiment.name for experiment in experiments]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(
            f"--folders: two directories are called {twice[0]}; give each its own name, once"
        )
    return experiments


def load_experiment(folder: Path, metric: str | None = None) -> Experiment:
    """The experiment in ``folder``: all finished runs of ``folder/results/``.

    ``metric`` is the score to read instead of that of the task. Raises InputError when there is no
    finished run, when a file is corrupt, or when the runs are not comparable.
    """
    results = folder / "results"
    records = {path.parent: read_record(path) for path in sorted(results.glob("**/run.json"))}
    if not records:
        lack = "holds no finished run (run.json)" if results.is_dir() else "does not exist"
        raise InputError(f"{results} {lack}; train some with: bash papa_runs.sh MODEL TASK")
    first, runs = next(iter(records)), {}
    for run, record in records.items():
        _check_same(first, records[first], run, record)
        key = record["static_heads_num"], record["seed"]
        if key in runs:
            raise InputError(
                f"{runs[key]} and {run}: both have {key[0]} constant heads and seed {key[1]}; "
                "move one of them to another directory"
            )
        runs[key] = run
    record = records[first]
    if metric is None:  # a task with entities may have been scored without them
        results = _read_object(first / "eval_results.json", "results")
        metric = main_metric(record["task"], entity_level=True)
        metric = metric if f"eval_{metric}" in results else main_metric(record["task"])
    scores = {epoch: {} for epoch in EPOCHS}
    for (heads, seed), run in sorted(runs.items()):
        for epoch, value in _read_scores(run, metric).items():
            scores[epoch].setdefault(heads, {})[seed] = value
    described = {key: record[key] for key in ("model", "task", "max_seq_length", "num_heads")}
    return Experiment(folder.resolve().name, **described, metric=metric, scores=scores)


def read_record(path: Path) -> dict:
    """The record of a run; InputError when it is corrupt."""
    record = _read_object(path, "run record")
    for key, kind in _RECORD.items():
        if type(record.get(key)) is not kind:
            raise InputError(f"run record {path} has no {key} ({kind.__name__}); rerun it")
    return record


def _check_same(first: Path, first_record: dict, run: Path, record: dict) -> None:
    """Raise InputError for a run that is not comparable with the first one."""
    old, new = (
        {**one["settings"], **{f"checksum of {name}": of for name, of in one["checksums"].items()}}
        for one in (first_record, record)
    )
    for key in old:
        if key in new and key not in _VARIED and old[key] != new[key]:
            raise InputError(
                f"{run} is not comparable with {first}: {key} differs (expected {old[key]!r}, got "
                f"{new[key]!r}); keep them in different directories"
            )


def _read_scores(run: Path, metric: str) -> dict[str, float]:
    """The score after the last epoch, and the best one of the evaluations after each epoch."""
    key = f"eval_{metric}"
    path, history_path = run / "eval_results.json", run / "trainer_state.json"
    results = _read_object(path, "results")
    if key not in results:
        names = sorted(name.removeprefix("eval_") for name in results if name.startswith("eval_"))
        raise InputError(f"{path} has no {key}; give a --metric among {', '.join(names)}")
    history = _read_object(history_path, "training history").get("log_history")
    if not isinstance(history, list):
        raise InputError(f"{history_path} has no log_history; rerun it")
    values = [results[key], *(entry[key] for entry in history if key in entry)]
    for value in values:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise InputError(f"{run}: {key} is not a finite number (got {value!r}); rerun it")
    best = min if lower_is_better(metric) else max
    return {"last": values[0], "best": best(values)}


def _read_object(path: Path, what: str) -> dict:
    content = read_json(path, what)
    if not isinstance(content, dict):
        raise InputError(f"{what} {path}: not a JSON object; rerun it")
    return content


def mean_score(experiment: Experiment, epoch: str, heads: int) -> tuple[float, float | None]:
    """Mean and sample standard deviation over seeds (None for one seed) of the score."""
    values = [*experiment.scores[epoch][heads].values()]
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def relative_drop(experiment: Experiment, epoch: str, heads: int) -> tuple | None:
    """The relative loss of quality against the model without constant heads.

    (score(0) - score(heads)) / score(0), with the opposite sign for metrics of which lower is
    better (loss, mse); score(0) is the mean over seeds. Mean and standard deviation over seeds
    (None for one seed). None when score(0) was not measured or is not positive.
    """
    if 0 not in experiment.scores[epoch]:
        return None
    full, _ = mean_score(experiment, epoch, 0)
    if full <= 0:
        return None
    mean, std = mean_score(experiment, epoch, heads)
    sign = -1 if lower_is_better(experiment.metric) else 1
    return sign * (full - mean) / full, None if std is None else std / full


def score_rows(experiment: Experiment) -> list[dict]:
    """A row per number of constant heads and epoch: mean and spread of score and drop."""
    rows = []
    for heads, epoch in itertools.product(sorted(experiment.scores["last"]), EPOCHS):
        row = {"heads": heads, "share": heads / experiment.num_heads}
        row |= {"seeds": len(experiment.scores[epoch][heads]), "epoch": epoch}
        row["score"], row["score_std"] = mean_score(experiment, epoch, heads)
        drop = relative_drop(experiment, epoch, heads)
        row["drop"], row["drop_std"] = drop or (None, None)
        rows.append(row)
    return rows

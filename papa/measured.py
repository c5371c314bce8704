"""What the runs of one model on one task have measured: score by number of constant heads.

A folder as papa_runs.sh makes it is an *experiment*: ``constants/`` (run_papa_*_avgs_creator.py),
``sorted/`` (--sort_calculating) and ``results/``, where a folder with a run.json is a finished run.
"""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from tasks import main_metric

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import read_json

EPOCHS = ("last", "best")

_RECORD = {
    "model": str,
    "task": str,
    "max_seq_length": int,
    "num_heads": int,
    "static_heads_num": int,
    "seed": int,
    "checksums": dict,
    "settings": dict,
}
# All settings but these must be the same within an experiment.
_VARIED = ("static_heads_num", "seed", "checksums")


@dataclass
class Experiment:
    """The finished runs of one model on one task.

    Attributes:
        name: of the folder, such as minilm_cola.
        model, task, max_seq_length: of all runs.
        num_heads: of the model, all layers together.
        metric: the score, as eval_results.json calls it without its eval_.
        scores: "last" or "best" (epoch) -> number of constant heads -> seed -> score.
    """

    name: str
    model: str
    task: str
    max_seq_length: int
    num_heads: int
    metric: str
    scores: dict[str, dict[int, dict[int, float]]]

    @property
    def heads(self) -> list[int]:
        """The measured numbers of constant heads, rising."""
        return sorted(self.scores["last"])


def load_experiments(folders: list[str], metric: str | None = None) -> list[Experiment]:
    """The experiments in ``folders``; see :func:`load_experiment`. Their names must differ."""
    experiments = [load_experiment(Path(folder), metric) for folder in folders]
    names = [experiment.name for experiment in experiments]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"two of the folders are called {twice[0]}: give each its own name, once")
    return experiments


def load_experiment(folder: Path, metric: str | None = None) -> Experiment:
    """The experiment in ``folder``: all finished runs of ``folder/results/``.

    Args:
        folder: of one model and task.
        metric: the score to read instead of the task's own (tasks.main_metric).

    Raises InputError when there is no finished run, when a file is missing or damaged, or when the
    runs do not belong together (another model, task, length, order, constants or data).
    """
    results = folder / "results"
    paths = sorted(results.glob("**/run.json"))
    if not paths:
        raise InputError(
            f"{results} holds no finished run (run.json); make some with: "
            "bash papa_runs.sh MODEL TASK"
        )
    records = {path.parent: _read_record(path) for path in paths}
    first, runs = next(iter(records)), {}
    for run, record in records.items():
        _check_same(first, records[first], run, record)
        key = record["static_heads_num"], record["seed"]
        if key in runs:
            raise InputError(
                f"{runs[key]} and {run} are both of {key[0]} constant heads and seed {key[1]}: "
                "move one of them away"
            )
        runs[key] = run
    record = records[first]
    metric = metric or _metric_of(record["task"], first)
    scores = {epoch: {} for epoch in EPOCHS}
    for (heads, seed), run in sorted(runs.items()):
        for epoch, value in _scores(run, metric).items():
            scores[epoch].setdefault(heads, {})[seed] = value
    described = {key: record[key] for key in ("model", "task", "max_seq_length", "num_heads")}
    name = folder.resolve().name
    return Experiment(name, **described, metric=metric, scores=scores)


def _read_record(path: Path) -> dict:
    record = read_json(path, "run record")
    for key, kind in _RECORD.items():
        if not isinstance(record, dict) or type(record.get(key)) is not kind:
            raise InputError(f"run record {path} has no {key} ({kind.__name__}); run it again")
    if not 0 <= record["static_heads_num"] <= record["num_heads"]:
        raise InputError(
            f"run record {path} says {record['static_heads_num']} constant heads of "
            f"{record['num_heads']}; run it again"
        )
    return record


def _check_same(first: Path, first_record: dict, run: Path, record: dict) -> None:
    """Refuse a run that is not comparable with the first one."""
    old, new = (
        {
            **{key: value for key, value in one["settings"].items() if key not in _VARIED},
            **{f"checksum of {name}": value for name, value in one["checksums"].items()},
        }
        for one in (first_record, record)
    )
    for key in old:
        if key in new and old[key] != new[key]:
            raise InputError(
                f"{first} and {run} do not belong together: {key} is {old[key]!r} in the first, "
                f"{new[key]!r} in the second; keep them in folders of their own"
            )


def _metric_of(task: str, run: Path) -> str:
    """The score of ``task``, by the name that it has in ``run``."""
    there = _read_object(run / "eval_results.json")
    entity_level = main_metric(task, entity_level=True)
    return entity_level if f"eval_{entity_level}" in there else main_metric(task)


def _scores(run: Path, metric: str) -> dict[str, float]:
    """The score of the last epoch, and that of the best of the evaluations after each epoch."""
    key = f"eval_{metric}"
    path = run / "eval_results.json"
    there = _read_object(path)
    if key not in there:
        names = sorted(name.removeprefix("eval_") for name in there if name.startswith("eval_"))
        raise InputError(f"{path} has no {key}; choose by --metric among {', '.join(names)}")
    last = _finite(there[key], path, key)

    path = run / "trainer_state.json"
    history = _read_object(path).get("log_history")
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise InputError(f"{path} has no log_history; run it again")
    epochs = [_finite(entry[key], path, key) for entry in history if key in entry]
    return {"last": last, "best": max([last, *epochs])}


def _read_object(path: Path) -> dict:
    content = read_json(path, "results")
    if not isinstance(content, dict):
        raise InputError(f"results {path} are no JSON object; run it again")
    return content


def _finite(number: object, path: Path, key: str) -> float:
    if type(number) not in (int, float) or not math.isfinite(number):
        raise InputError(f"{path}: {key} is {number!r}, not a finite number")
    return float(number)


def score(experiment: Experiment, epoch: str, heads: int) -> tuple[float, float | None]:
    """Mean and sample standard deviation over seeds (None for one seed) of the score."""
    values = [*experiment.scores[epoch][heads].values()]
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def relative_drop(experiment: Experiment, epoch: str, heads: int) -> tuple | None:
    """By how much the score falls short of that with no constant head, as a share of the latter.

    (score(0) - score(heads)) / score(0), score(0) being the mean over seeds: mean and standard
    deviation over seeds (None for one seed). None when score(0) was not measured or is not
    positive: there is nothing to lose.
    """
    if 0 not in experiment.scores[epoch]:
        return None
    full, _ = score(experiment, epoch, 0)
    if full <= 0:
        return None
    mean, std = score(experiment, epoch, heads)
    return (full - mean) / full, None if std is None else std / full


def score_rows(experiment: Experiment) -> list[dict]:
    """A row for each number of constant heads and epoch: mean and spread of score and drop."""
    rows = []
    for heads in experiment.heads:
        for epoch in EPOCHS:
            mean, std = score(experiment, epoch, heads)
            drop, drop_std = relative_drop(experiment, epoch, heads) or (None, None)
            rows.append(
                {
                    "heads": heads,
                    "share": heads / experiment.num_heads,
                    "seeds": len(experiment.scores[epoch][heads]),
                    "epoch": epoch,
                    "score": mean,
                    "score_std": std,
                    "drop": drop,
                    "drop_std": drop_std,
                }
            )
    return rows

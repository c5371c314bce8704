"""Find and read result files, figures and records, and the authors' own numbers (papers.json).

All paths are relative to the root of the repository, which must be the working directory.
"""

import functools
import json
from importlib import resources
from pathlib import Path

import numpy as np

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import read_json
from attention_dynamics.storage.pickles import load_pickle

# Experiment -> patterns of its result files and records in its folder, and of the result files and
# figures that come with the repository in results/.
_PATTERNS = {
    "classification": {
        "results": ("results/*.pkl",),
        "records": ("models/*/*/run.json", "outputs/*.json"),
        "shipped": ("classification.pkl",),
        "figures": ("Furd_*.svg",),
    },
    "translation": {
        "results": ("results/*.pkl",),
        "records": ("models/*/*/run.json", "outputs/*.json"),
        "shipped": ("translation.pkl",),
        "figures": ("Multi30k_*.svg",),
    },
    "SequenceCopying": {
        "results": ("logs/*.json", "re_*headcomb.json"),
        "records": ("logs/*.json", "re_*headcomb.json"),
        "shipped": ("copying.json", "multihead.json"),
        "figures": ("copying.svg", "multihead.svg"),
    },
    "papa": {
        "results": ("results/*.json",),
        "records": ("outputs/*/sorted/run.json", "outputs/*/results/*/run.json"),
        "shipped": ("papa.json",),
        "figures": ("papa_*.svg",),
    },
}
EXPERIMENTS = tuple(_PATTERNS)
SHIPPED = Path("results")


def check_root() -> None:
    """Raise InputError unless the working directory holds the experiments' folders."""
    if not any(Path(experiment).is_dir() for experiment in EXPERIMENTS):
        raise InputError(
            f"{Path.cwd()}: is not the root of the repository (expected a folder "
            f"{' or '.join(EXPERIMENTS)}); go to the root of the repository"
        )


def _found(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def result_files(experiment: str) -> list[Path]:
    """The result files of an experiment: those made here, then those in results/."""
    patterns = _PATTERNS[experiment]
    made_here = _found(Path(experiment), patterns["results"])
    return made_here + _found(SHIPPED, patterns["shipped"])


def figure_files(experiment: str) -> list[Path]:
    """The svg figures of an experiment: those drawn here, then those in results/."""
    drawn_here = _found(Path(experiment), ("figures/*.svg",))
    return drawn_here + _found(SHIPPED, _PATTERNS[experiment]["figures"])


def page_files(experiment: str) -> list[Path]:
    """The pages with a slider of an experiment."""
    return _found(Path(experiment), ("figures/*_tokens.html", "figures/*_matrices.html"))


def record_files(experiment: str) -> list[Path]:
    """The records of the runs and outputs of an experiment."""
    return _found(Path(experiment), _PATTERNS[experiment]["records"])


def read_object(path: Path, what: str) -> dict:
    """The JSON object in a file; InputError when it is malformed or not an object."""
    content = read_json(path, what)
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise InputError(f"{what} {path}: malformed (expected a JSON object, got a {kind})")
    return content


def read_results(path: Path) -> dict[tuple[str, str, str, str], dict]:
    """The results of a collect script: {(dataset, metric, split, performance): statistics}.

    Results of the published code are accepted: they have fewer statistics, and no intervals.

    Raises InputError when the file is corrupt or contains something else.
    """
    results = load_pickle(path, "results")
    if not isinstance(results, dict) or not results or not all(map(_is_result, results.items())):
        raise InputError(
            f"results {path}: not written by a collect script; run the collect script again"
        )
    return results


def _is_result(item: tuple[object, object]) -> bool:
    """Whether an item of a results file has the keys that every version of it has."""
    key, result = item
    if not isinstance(key, tuple) or len(key) != 4 or not isinstance(result, dict):
        return False
    numbers = [result.get(name) for name in ("agr_unif", "baseline", "best_perf")]
    curves = [result.get(name) for name in ("iterations", "alpha_corrs", "alpha_perfs")]
    return (
        all(isinstance(part, str) for part in key)
        and all(isinstance(n, int | float | np.number) for n in numbers)
        and all(isinstance(curve, list | tuple | np.ndarray) for curve in curves)
        and len({len(curve) for curve in curves}) == 1
    )


@functools.cache
def read_papers() -> dict:
    """The authors' numbers and findings, each with its source (papers.json)."""
    file = resources.files("attention_dynamics.reporting").joinpath("papers.json")
    return json.loads(file.read_text(encoding="utf-8"))


def authors_value(key: tuple, statistic: str) -> float | None:
    """The authors' value of a statistic of the result ``key``; None when it is not known.

    Agreements do not depend on the performance, so one value serves accuracy and BLEU.
    """
    run = _authors_run(key)
    return {**run.get("agreements", {}), **run.get("performances", {}).get(key[3], {})}.get(
        statistic
    )


def authors_curve(key: tuple) -> dict[int, float]:
    """The authors' agreement of α with the gold run: iteration -> value; empty when not known."""
    return {int(step): value for step, value in _authors_run(key).get("curve", {}).items()}


def _authors_run(key: tuple) -> dict:
    dataset, metric, split, _ = key
    for run in read_papers()["runs"]:
        if (run["dataset"], run["metric"], run["split"]) == (dataset, metric, split):
            return run
    return {}

"""Find result files, figures and records; the authors' own numbers (papers.json).

All paths are relative to the root of the repository, which must be the working directory.
"""

import functools
import json
from importlib import resources
from pathlib import Path

from attention_dynamics.cli import InputError

SHIPPED = Path("results")  # what comes with the repository
# Experiment -> its results: those made here, then those in results/.
_RESULTS = {
    "classification": ("classification/results/*.pkl", "results/classification.pkl"),
    "translation": ("translation/results/*.pkl", "results/translation.pkl"),
    "SequenceCopying": (
        "SequenceCopying/logs/*.json", "SequenceCopying/re_*headcomb.json",
        "results/copying.json", "results/multihead.json",
    ),
    "papa": ("papa/results/*.json", "results/papa.json"),
}  # fmt: skip
# Experiment -> its figures in results/.
_FIGURES = {
    "classification": ("results/Furd_*.svg",),
    "translation": ("results/Multi30k_*.svg",),
    "SequenceCopying": ("results/copying.svg", "results/multihead.svg"),
    "papa": ("results/papa_*.svg",),
}
EXPERIMENTS = tuple(_RESULTS)
# Records of runs and outputs in the folder of an experiment.
RECORDS = (
    "models/*/*/run.json", "outputs/*.json", "logs/*.json", "re_*headcomb.json",
    "outputs/*/sorted/run.json", "outputs/*/results/*/run.json",
)  # fmt: skip


def check_root() -> None:
    """Raise InputError unless the working directory holds the experiments' folders."""
    if not any(Path(experiment).is_dir() for experiment in EXPERIMENTS):
        raise InputError(
            f"{Path.cwd()} is not the root of the repository (expected a folder "
            f"{' or '.join(EXPERIMENTS)}); go to the root of the repository"
        )


def find(experiment: str, kind: str) -> list[Path]:
    """The files of an experiment: "results", "records", "figures", or "pages" with a slider."""
    patterns = {
        "results": _RESULTS[experiment],
        "records": [f"{experiment}/{pattern}" for pattern in RECORDS],
        "figures": (f"{experiment}/figures/*.svg", *_FIGURES[experiment]),
        "pages": [f"{experiment}/figures/*.html"],
    }[kind]
    return [path for pattern in patterns for path in sorted(Path().glob(pattern))]


@functools.cache
def read_papers() -> dict:
    """The authors' numbers and findings, each with its source (papers.json)."""
    file = resources.files("attention_dynamics.reporting").joinpath("papers.json")
    return json.loads(file.read_text(encoding="utf-8"))


def authors_numbers(key: tuple) -> dict:
    """The authors' {statistic: value} of the result ``key``, and "curve"; empty when not known.

    "curve" is {iteration: agreement of α with the gold run}. Agreements do not depend on the
    performance, so one value serves accuracy and BLEU.
    """
    for run in read_papers()["runs"]:
        if (run["dataset"], run["metric"], run["split"]) == key[:3]:
            curve = {int(step): value for step, value in run["curve"].items()}
            return {**run["agreements"], **run["performances"].get(key[3], {}), "curve": curve}
    return {}

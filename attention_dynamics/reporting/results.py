"""Find and read result files, figures and records, and the authors' own numbers (papers.json).

All paths are relative to the root of the repository, which must be the working directory.
"""

import functools
import json
from importlib import resources
from pathlib import Path

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import read_json
from attention_dynamics.storage.pickles import load_pickle

SHIPPED = Path("results")  # what comes with the repository
# Experiment -> kind of files -> patterns: those made here, then those in results/.
_PATTERNS = {
    "classification": {
        "results": ("classification/results/*.pkl", "results/classification.pkl"),
        "records": ("classification/models/*/*/run.json", "classification/outputs/*.json"),
        "figures": ("classification/figures/*.svg", "results/Furd_*.svg"),
        "pages": ("classification/figures/*_tokens.html",),
    },
    "translation": {
        "results": ("translation/results/*.pkl", "results/translation.pkl"),
        "records": ("translation/models/*/*/run.json", "translation/outputs/*.json"),
        "figures": ("translation/figures/*.svg", "results/Multi30k_*.svg"),
        "pages": ("translation/figures/*_matrices.html",),
    },
    "SequenceCopying": {
        "results": ("SequenceCopying/logs/*.json", "SequenceCopying/re_*headcomb.json",
                    "results/copying.json", "results/multihead.json"),
        "records": ("SequenceCopying/logs/*.json", "SequenceCopying/re_*headcomb.json"),
        "figures": ("SequenceCopying/figures/*.svg", "results/copying.svg",
                    "results/multihead.svg"),
    },
    "papa": {
        "results": ("papa/results/*.json", "results/papa.json"),
        "records": ("papa/outputs/*/sorted/run.json", "papa/outputs/*/results/*/run.json"),
        "figures": ("papa/figures/*.svg", "results/papa_*.svg"),
    },
}  # fmt: skip
EXPERIMENTS = tuple(_PATTERNS)


def check_root() -> None:
    """Raise InputError unless the working directory holds the experiments' folders."""
    if not any(Path(experiment).is_dir() for experiment in EXPERIMENTS):
        raise InputError(
            f"{Path.cwd()}: is not the root of the repository (expected a folder "
            f"{' or '.join(EXPERIMENTS)}); go to the root of the repository"
        )


def find(experiment: str, kind: str) -> list[Path]:
    """The files of an experiment: "results", "records", "figures", or "pages" with a slider."""
    patterns = _PATTERNS[experiment].get(kind, ())
    return [path for pattern in patterns for path in sorted(Path().glob(pattern))]


def read_object(path: Path, what: str) -> dict:
    """The JSON object in a file; InputError when it is malformed or not an object."""
    content = read_json(path, what)
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise InputError(f"{what} {path}: malformed (expected a JSON object, got a {kind})")
    return content


def read_results(path: Path) -> dict[tuple[str, str, str, str], dict]:
    """The results of a collect script: {(dataset, metric, split, performance): statistics}.

    Results of the published code have fewer statistics, and no intervals.
    Raises InputError when the file is corrupt or contains something else.
    """
    results = load_pickle(path, "results")
    if not isinstance(results, dict) or not all(
        isinstance(key, tuple) and len(key) == 4 and {"agr_unif", "alpha_corrs"} <= {*result}
        for key, result in results.items()
    ):
        raise InputError(
            f"results {path}: not written by a collect script; run the collect script again"
        )
    return results


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

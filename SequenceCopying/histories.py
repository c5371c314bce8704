"""Histories of evaluations: how they are stored, checked and summarised."""

import itertools
import math
from pathlib import Path

from models import MEASURES
from scipy.stats import binomtest, fisher_exact
from training import LEARNED, History, Settings, add_steps, learned

from attention_dynamics.cli import InputError
from attention_dynamics.runs.outputs import read_output_record
from attention_dynamics.storage.pickles import load_pickle


def default_name(settings: Settings) -> str:
    """The default name of an output, as in the published code."""
    bi = "bi" if settings.bi else ""
    no_rep = "no_rep" if settings.no_rep else ""
    uniform = "invasive_uniform" if settings.invasive_uniform else ""
    return (
        f"vocab{settings.num_vocab}seq_length{settings.seq_length}{bi}bsize{settings.bsize}"
        f"{no_rep}{uniform}"
    )


def histories_path(name: str) -> Path:
    """The path of the histories called ``name``."""
    return Path("logs") / f"{name}.pkl"


def load_histories(path: Path) -> list[History]:
    """The histories of each seed at ``path``; raises InputError if it is not such a file.

    Entries written by earlier versions have no "step": it is computed from the record.
    """
    if not path.exists():
        raise InputError(f"{path}: does not exist; make it with seq2seq.py (see copying_runs.sh)")
    content = load_pickle(path, "histories")
    valid = isinstance(content, list) and all(
        isinstance(history, list)
        and history
        and all(is_evaluation(entry, MEASURES) for entry in history)
        for history in content
    )
    if not valid or not content:
        raise InputError(
            f"{path}: holds no histories of evaluations; make it again with seq2seq.py --overwrite"
        )
    every = recorded_settings(path).get("save_every")
    every = every if type(every) is int else Settings.save_every
    return [add_steps(history, every, MEASURES) for history in content]


def is_evaluation(entry: object, measures: tuple[str, ...]) -> bool:
    """Whether ``entry`` has all ``measures``: a loss of at least 0, accuracies from 0 to 1."""
    return (
        isinstance(entry, dict)
        and type(entry.get("step", 0)) is int
        and all(
            type(value) is float and 0 <= value <= (math.inf if name == "loss" else 1)
            for name, value in ((name, entry.get(name)) for name in measures)
        )
    )


def recorded_settings(path: Path) -> dict:
    """The settings in the record beside an output; empty if there are none."""
    settings = read_output_record(path).get("settings")
    return settings if isinstance(settings, dict) else {}


def title_of(path: Path, name: str) -> str:
    """The task of the histories in words, from their record; their ``name`` if it has none."""
    task = recorded_settings(path)
    length, vocab = task.get("seq_length"), task.get("num_vocab")
    if type(length) is not int or type(vocab) is not int:
        return name
    return f"{length} tokens of {vocab}" + ", without repetition" * (task.get("no_rep") is True)


def proportion_row(name: str, label: str, outcomes: list[bool]) -> dict:
    """A row of a table: the count of true ``outcomes``, their share and its 95% interval."""
    count = sum(outcomes)
    interval = binomtest(count, len(outcomes)).proportion_ci(method="wilson")
    return {
        "setting": name,
        label: count,
        "of": len(outcomes),
        "share": count / len(outcomes),
        "low": float(interval.low),
        "high": float(interval.high),
    }


def success_row(name: str, histories: list[History]) -> dict:
    """The number of seeds of a setting that reach the accuracy LEARNED."""
    row = proportion_row(name, f"reach {LEARNED}", [learned(history) for history in histories])
    mean = sum(history[-1]["acc"] for history in histories) / len(histories)
    return {**row, "mean acc at the end": mean}


def fisher_rows(rows: list[dict], label: str) -> list[dict]:
    """Fisher's exact test (two-sided) for every pair of rows of :func:`proportion_row`.

    Args:
        rows: at least two rows.
        label: key of the counts.
    """
    return [
        {
            "first": first["setting"],
            "second": second["setting"],
            "p": float(
                fisher_exact(
                    [[row[label], row["of"] - row[label]] for row in (first, second)]
                ).pvalue
            ),
        }
        for first, second in itertools.combinations(rows, 2)
    ]

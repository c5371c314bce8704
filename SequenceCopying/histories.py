"""Histories of evaluations: how they are stored, checked and summarized."""

import itertools
from collections.abc import Callable
from pathlib import Path

from models import MEASURES
from scipy.stats import binomtest, fisher_exact
from training import LEARNED, History, Settings, add_steps, learned

from attention_dynamics.cli import InputError
from attention_dynamics.runs.outputs import read_output_record
from attention_dynamics.storage.pickles import load_pickle


def default_name(settings: Settings) -> str:
    """The default name of an output, as in the published code."""
    flags = {"no_rep": settings.no_rep, "invasive_uniform": settings.invasive_uniform}
    return (
        f"vocab{settings.num_vocab}seq_length{settings.seq_length}{'bi' * settings.bi}"
        f"bsize{settings.bsize}{''.join(name for name, is_set in flags.items() if is_set)}"
    )


def histories_path(name: str) -> Path:
    """The path of the histories called ``name``."""
    return Path("logs") / f"{name}.pkl"


def read_output(path: Path, script: str, parse: Callable):
    """``parse`` of the content of an output of ``script``.

    Raises InputError if there is no such file, or if ``parse`` finds no histories in it.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist; make it with {script}")
    content = load_pickle(path, "histories")
    try:
        parsed = parse(content)
        if not (parsed and all(parsed)):
            raise ValueError("empty")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{path} does not contain histories; make it again with {script} --overwrite"
        ) from None
    return parsed


def load_histories(path: Path) -> list[History]:
    """The histories of each seed at ``path``.

    Entries written by earlier versions have no "step": it is computed from the record.
    """
    every = recorded_settings(path).get("save_every", Settings.save_every)
    return read_output(
        path,
        "seq2seq.py",
        lambda content: [add_steps(history, every, MEASURES) for history in content],
    )


def recorded_settings(path: Path) -> dict:
    """The settings in the record beside an output; empty if there are none."""
    return read_output_record(path).get("settings") or {}


def title_of(path: Path, name: str) -> str:
    """The task of the histories in words, from their record; their ``name`` if it has none."""
    task = recorded_settings(path)
    if "seq_length" not in task:
        return name
    repetition = ", without repetition" if task["no_rep"] else ""
    return f"{task['seq_length']} tokens of {task['num_vocab']}{repetition}"


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
    """Fisher's exact test (two-sided) of the counts ``label`` of every pair of ``rows``."""
    tests = []
    for pair in itertools.combinations(rows, 2):
        p = fisher_exact([[row[label], row["of"] - row[label]] for row in pair]).pvalue
        tests.append({"first": pair[0]["setting"], "second": pair[1]["setting"], "p": float(p)})
    return tests

"""What runs leave behind: where it lies, whether it is whole, and how many of them learned."""

import math
import pickle
from pathlib import Path

from models import MEASURES
from scipy.stats import binomtest
from training import LEARNED, History, Settings, learned

from attention_dynamics.cli import InputError
from attention_dynamics.runs.outputs import output_is_current, read_output_record, record_output
from attention_dynamics.storage.files import atomic_write
from attention_dynamics.storage.pickles import load_pickle


def default_name(settings: Settings) -> str:
    """The name of the output of ``settings``, as the published code has it."""
    bi = "bi" if settings.bi else ""
    no_rep = "no_rep" if settings.no_rep else ""
    uniform = "invasive_uniform" if settings.invasive_uniform else ""
    return (
        f"vocab{settings.num_vocab}seq_length{settings.seq_length}{bi}bsize{settings.bsize}"
        f"{no_rep}{uniform}"
    )


def histories_path(name: str) -> Path:
    """Where the histories called ``name`` lie."""
    return Path("logs") / f"{name}.pkl"


def load_histories(path: Path) -> list[History]:
    """The histories of each seed at ``path``; InputError when it is missing or not such a file."""
    if not path.exists():
        raise InputError(f"{path} does not exist; make it with seq2seq.py (see copying_runs.sh)")
    content = load_pickle(path, "histories")
    whole = isinstance(content, list) and all(
        isinstance(history, list)
        and history
        and all(is_evaluation(entry, MEASURES) for entry in history)
        for history in content
    )
    if not whole or not content:
        raise InputError(
            f"{path} holds no histories of evaluations: make it again with seq2seq.py --overwrite"
        )
    return content


def is_evaluation(entry: object, measures: tuple[str, ...]) -> bool:
    """Whether ``entry`` has all ``measures``: a loss from 0 on, and accuracies from 0 to 1."""
    return isinstance(entry, dict) and all(
        type(value) is float and 0 <= value <= (math.inf if name == "loss" else 1)
        for name, value in ((name, entry.get(name)) for name in measures)
    )


def steps_of(path: Path, history: History) -> list[int]:
    """The step of each evaluation, from the record beside the histories (10 apart without one)."""
    settings = read_output_record(path).get("settings")
    every = settings.get("save_every") if isinstance(settings, dict) else None
    return [(every if type(every) is int else 10) * place for place in range(len(history))]


def title_of(path: Path, name: str) -> str:
    """The task of the histories in words, from the record beside them; else their ``name``."""
    settings = read_output_record(path).get("settings")
    task = settings if isinstance(settings, dict) else {}
    length, vocab = task.get("seq_length"), task.get("num_vocab")
    if type(length) is not int or type(vocab) is not int:
        return name
    return f"{length} tokens of {vocab}" + ", without repetition" * (task.get("no_rep") is True)


def write_output(path: Path, histories: object, settings: dict, results: dict) -> None:
    """Write the pickle ``path`` and its record, so that it is never there without one."""
    content = pickle.dumps(histories, protocol=5)
    record_output(path, settings, results, content)
    with atomic_write(path) as stream:
        stream.write(content)


def check_same(path: Path, settings: dict) -> None:
    """InputError unless ``path`` was made with ``settings`` and is whole."""
    if output_is_current(path, settings):
        return
    earlier = read_output_record(path).get("settings")
    earlier = earlier if isinstance(earlier, dict) else {}
    differing = [key for key in settings if earlier.get(key) != settings[key]]
    what = "; ".join(f"{key} was {earlier.get(key)!r}, is {settings[key]!r}" for key in differing)
    raise InputError(
        f"{path} exists and is of other settings ({what or 'its content has changed'}); "
        "--overwrite replaces it"
    )


def share_interval(count: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share, count / of, by Wilson's method."""
    interval = binomtest(count, of).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def share_row(name: str, what: str, outcomes: list[bool]) -> dict:
    """A row of a table: how many ``outcomes`` are true, their share and its interval."""
    count = sum(outcomes)
    low, high = share_interval(count, len(outcomes))
    return {
        "setting": name,
        what: count,
        "of": len(outcomes),
        "share": count / len(outcomes),
        "low": low,
        "high": high,
    }


def success_row(name: str, histories: list[History]) -> dict:
    """How many seeds of a setting reach the accuracy LEARNED by the end of their history."""
    row = share_row(name, f"reach {LEARNED}", [learned(history) for history in histories])
    mean = sum(history[-1]["acc"] for history in histories) / len(histories)
    return {**row, "mean acc at the end": mean}

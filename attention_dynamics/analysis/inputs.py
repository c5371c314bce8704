"""Inputs of the analysis of a dataset: its logs, and its baselines in the layout of the logs."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attention_dynamics.analysis.logs import Logs, load_logs
from attention_dynamics.analysis.statistics import summarize
from attention_dynamics.cli import InputError, add_options, count, seed
from attention_dynamics.names import Performance
from attention_dynamics.runs.outputs import read_output_record
from attention_dynamics.runs.paths import check_name, logs_path
from attention_dynamics.storage.files import sha256
from attention_dynamics.storage.pickles import load_pickle


class Baseline(NamedTuple):
    """A baseline β: its file, the script that makes it, and how it is laid out beside the logs.

    ``lay_out(content, logs)`` takes what the file holds and returns (scores,) as the arrays of the
    logs; it raises ValueError with the reason when the content does not fit.
    """

    file: Path
    script: str
    lay_out: Callable[[object, Logs], np.ndarray]


@dataclass
class AnalysisInputs:
    """Logs and baselines of one dataset.

    Attributes:
        logs: as dumped by eval_dump.py.
        baselines: name ("px", ...) -> (scores,), laid out as the arrays of the logs.
        missing: a line for each baseline that is not there, with the command that makes it.
        data: checksum of the data that the logs were made from; None if they have no record.
        beta_sign: (scores,) +1 or -1, which makes β a vote for the correct label; None if it
            already is one.
    """

    logs: Logs
    baselines: dict[str, np.ndarray] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    data: str | None = None
    beta_sign: np.ndarray | None = None

    def check_data(self, checksum: str) -> None:
        """Raise InputError if the logs were made from data with another checksum."""
        if self.data is not None and self.data != checksum:
            raise InputError(
                f"the logs of {self.logs.dataset} do not match the current data: "
                "prepare that data again, or train and dump again"
            )


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every analysis of logs and baselines has."""
    add_options(
        parser,
        embed_dim=(count, 256, "embedding size of the baseline to load"),
        seed=(seed, 0, "random seed (shuffles, bootstrap, examples shown)"),
    )


def summarize_inputs(
    inputs: AnalysisInputs, metric: str, split: str, performance: Performance, seed: int
) -> dict:
    """``statistics.summarize`` of one split; the other split gives the held-out gold iteration.

    Raises InputError if the logs do not have the split.
    """
    logs = inputs.logs
    if not logs.splits[split]:
        raise InputError(
            f"the logs of {logs.dataset} hold no {split} examples: dump them again with "
            "eval_dump.py --include_train_subset"
        )
    perf, _ = performance.splits[split]
    heldout_perf, _ = performance.splits["train" if split == "val" else "val"]
    return summarize(
        logs, metric, split, perf, heldout_perf, inputs.baselines, inputs.beta_sign, seed
    )


def load_inputs(dataset: str, baselines: dict[str, Baseline], check: Callable) -> AnalysisInputs:
    """The logs of ``dataset``, and those of its ``baselines`` (by name) that exist.

    ``check`` is called with the logs; it raises ValueError with the reason when they are not such
    as the experiment dumps.

    Raises InputError when the logs are missing, corrupt or not finite, or when a baseline is, or
    was made from other data.
    """
    check_name(dataset)
    path = logs_path(dataset)
    dump = f"python eval_dump.py --dataset {dataset}"
    if not path.exists():
        raise InputError(f"{path} does not exist; make it with: {dump}")
    logs = load_logs(path)
    if logs.dataset != dataset:
        raise InputError(f"{path} holds the logs of {logs.dataset}; make it with: {dump}")
    try:
        check(logs)
    except ValueError as error:
        raise InputError(f"logs {path} are corrupt: {error}") from None
    for name, iteration, kind in logs.arrays:
        for split in ("val", "train"):
            is_dumped = kind != "grad" or logs.has_scores(name, iteration, kind, split)
            scores = logs.scores(name, iteration, kind, split).values
            if is_dumped and not np.isfinite(scores).all():
                raise InputError(
                    f"logs {path} hold scores that are not finite: {kind} of {name} at iteration "
                    f"{iteration}; train that run again, then dump again"
                )
    inputs = AnalysisInputs(logs, data=_data_of(path, "eval_dump.py"))
    for name, (file, script, lay_out) in baselines.items():
        command = f"python {script} --dataset {dataset}"
        if not file.exists():
            absent = f"{file} does not exist, so agr_{name} is left out"
            inputs.missing.append(f"{absent}; make it with: {command}")
            continue
        made_from = _data_of(file, script)
        if made_from and inputs.data and made_from != inputs.data:
            raise InputError(
                f"baseline {file} was made from other data than the logs {path}: make both again, "
                f"with: {command} && {dump}"
            )
        try:
            values = lay_out(load_pickle(file, "baseline"), logs)
            if not np.isfinite(values).all():
                raise ValueError("holds numbers that are not finite")
        except ValueError as error:
            raise InputError(f"baseline {file} {error}: make it again with: {command}") from None
        inputs.baselines[name] = values
    return inputs


def number_array(content: object, ndim: int) -> np.ndarray:
    """``content`` if it is a float array of ``ndim`` dimensions; else ValueError."""
    if not isinstance(content, np.ndarray) or content.dtype.kind != "f" or content.ndim != ndim:
        raise ValueError("holds no array of numbers")
    return content


def _data_of(path: Path, script: str) -> str | None:
    """The checksum of the data that an output was made from; None when it has no record.

    Raises InputError when the output is not the file that its record describes.
    """
    record = read_output_record(path)
    if record and record.get("sha256") != sha256(path):
        raise InputError(
            f"{path} has changed since {script} wrote it ({path.with_suffix('.json').name} holds "
            "another checksum): make it again, or remove that record if the file is another one"
        )
    return record["settings"].get("data") if record else None

"""Dumps: scores and performance of every checkpoint of a log config, saved one by one.

The ``eval_dump.py`` scripts contribute the forward pass: what one checkpoint gives on the examples.
"""

import argparse
import random
import sys
from collections.abc import Callable, Sized
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from attention_dynamics.analysis.logs import Logs, logs_content, published_layout, wrong_sum
from attention_dynamics.cli import InputError, add_options
from attention_dynamics.device import add_device_options, peak_memory_mb
from attention_dynamics.runs.configs import make_log_config, read_log_config
from attention_dynamics.runs.outputs import Output, output
from attention_dynamics.runs.paths import checkpoint_path, log_config_path, logs_path, run_folder
from attention_dynamics.runs.records import check_trained_on

KINDS = ("alpha", "beta", "grad")
DEFAULT_CONFIG = "configs/model.json"

# (entry of the log config, path of the checkpoint) -> {"scores": {kind: (scores,) array}, "metas":
# {metric: number}}, and more that describes the checkpoint.
ScoreCheckpoint = Callable[[dict, Path], dict]


def add_dump_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``eval_dump.py`` has in every folder."""
    add_options(parser, config=(str, DEFAULT_CONFIG, "model config"))
    layout = "layout of the output (default: %(default)s)"
    parser.add_argument("--layout", choices=["ours", "published"], default="ours", help=layout)
    make = "first write the log config, from the finished runs in models/"
    parser.add_argument("--make_log_config", action="store_true", help=make)
    overwrite = "replace an output that is up to date"
    parser.add_argument("--overwrite", action="store_true", help=overwrite)
    add_device_options(parser)


def sample_train(train: Sized, size: int) -> list[int]:
    """Training examples evaluated in addition to the others (drawn as in the papers' code)."""
    return sorted(random.Random(1).sample(range(len(train)), min(size, len(train))))


def log_checkpoints(
    args: argparse.Namespace,
    config: dict,
    checksum: str,
    with_grad: bool,
    script: str,
    length_of: Callable[[int], str],
) -> tuple[list[dict], list[Path]]:
    """The entries of the log config, which ``--make_log_config`` writes first; their checkpoints.

    ``with_grad`` is whether a new log config asks for Δ of the gold run (translation);
    ``length_of`` returns the option of the training ``script`` for a run with a given last
    iteration. Raises InputError if a run was trained on data with another ``checksum``, or if
    checkpoints are missing, with the command that makes them.
    """
    if args.make_log_config:
        make_log_config(args.dataset, config, with_grad, args.overwrite)
    entries = read_log_config(log_config_path(args.dataset))
    number, lacking = 0, []
    for name in dict.fromkeys(entry["name"] for entry in entries):
        of_run = [entry for entry in entries if entry["name"] == name]
        seed, uniform = of_run[0]["seed"], of_run[0]["uniform"]
        folder = run_folder(args.dataset, config, seed, uniform)
        check_trained_on(folder, checksum)
        iterations = [entry["iteration"] for entry in of_run]
        if missing := [str(t) for t in iterations if not checkpoint_path(folder, t).exists()]:
            last = max(iterations)
            number += len(missing)
            lacking.append(
                f"{folder}/{{model{','.join(missing)}}}. Make them with: python {script} "
                f"--dataset {args.dataset} --seed {seed} {length_of(last)} --save_every {last + 1} "
                f"--custom_saves {','.join(map(str, iterations))}"
                + (" --uniform" if uniform else "")
                + (f" --config {args.config}" if args.config != DEFAULT_CONFIG else "")
                + (" --overwrite" if folder.exists() else "")
            )
    if lacking:
        more = f"; likewise {len(lacking) - 1} more run(s), with their seeds"
        raise InputError(
            f"{number} checkpoint(s) of {log_config_path(args.dataset)} are missing (to list, and "
            f"evaluate, the existing ones instead: python eval_dump.py --dataset {args.dataset} "
            f"--make_log_config --overwrite): {lacking[0]}{more if len(lacking) > 1 else ''}"
        )
    folders = (run_folder(args.dataset, config, e["seed"], e["uniform"]) for e in entries)
    paths = [checkpoint_path(f, e["iteration"]) for f, e in zip(folders, entries, strict=True)]
    return entries, paths


def dump_checkpoints(
    args: argparse.Namespace,
    settings: dict,
    checkpoints: list[tuple[dict, Path, dict]],
    prepare: Callable[[], tuple[Logs, ScoreCheckpoint, tuple]],
    summarize: Callable[[list[dict]], dict] = lambda _: {},
) -> dict | None:
    """Write outputs/{dataset}_logs.pkl; a dump that is up to date is left alone.

    The scores of each checkpoint are saved as a partial result, so an interrupted dump resumes.

    Args:
        args: options of ``eval_dump.py``.
        settings: everything that determines the dump.
        checkpoints: (entry of the log config, path, settings of its partial result).
        prepare: returns the logs without scores, the function that scores a checkpoint, and the
            sources and targets of the training set; called if needed.
        summarize: what the checkpoints gave, without their scores -> results for the record.

    Returns the results in the record; None if the dump was up to date. Raises InputError if scores
    are not finite, or if a row of α does not sum to 1.
    """
    path = logs_path(args.dataset)
    with output(path, settings, args.overwrite) as out:
        if out.is_current:
            count = len(checkpoints)
            print(f"{path} is up to date with its {count} checkpoint(s); --overwrite dumps again")
            return None
        logs, score_checkpoint, (src, trg) = prepare()
        results = summarize(_fill(logs, checkpoints, score_checkpoint, out))
        results = {"peak_memory_mb": peak_memory_mb(), **results}
        if args.layout == "ours":
            out.write(logs_content(logs), results)
        else:
            train_set = [(src[i].tolist(), trg[i].tolist()) for i in range(len(src))]
            out.write(published_layout(logs, train_set), results)
    print(
        f"{path}: {len(checkpoints)} checkpoint(s), {logs.splits['val']} val and "
        f"{logs.splits['train']} train examples, peak memory {results['peak_memory_mb']:.0f} MB"
    )
    return results


def _fill(
    logs: Logs, checkpoints: list, score_checkpoint: ScoreCheckpoint, out: Output
) -> list[dict]:
    """Add all checkpoints to the logs; what they gave, without the scores."""
    rest = []
    for entry, path, settings in tqdm(checkpoints, unit="checkpoint", disable=None):
        part = out.partial.get(settings)
        if part is None:
            part = score_checkpoint(entry, path)
            finite = all(np.isfinite(values).all() for values in part["scores"].values())
            if not finite or wrong_sum(logs, part["scores"]["alpha"]):
                raise InputError(
                    f"checkpoint {path} gives scores that are not finite, or α that does not sum "
                    "to 1: its training diverged, or the file was changed; train its run again "
                    "with --overwrite"
                )
            part["scores"] = {kind: torch.from_numpy(v) for kind, v in part["scores"].items()}
            out.partial.put(settings, part)
        run = entry["name"], entry["iteration"]
        # Interned: a pickle holds each string object once, and a resumed dump has the same bytes.
        for kind, values in part.pop("scores").items():
            logs.arrays[*run, sys.intern(kind)] = values.numpy()
        for metric, value in part["metas"].items():
            logs.metas[*run, sys.intern(metric)] = value
        rest.append(part)
    return rest

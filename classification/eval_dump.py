"""Dump α, β, Δ and accuracies of every checkpoint of a data set (method A.1).

    python eval_dump.py --dataset Furd

Reads configs/{dataset}_log.json (the checkpoints to look at), their files in models/, and the data.
--make_log_config first writes that list from the runs that are there (own data).
Writes outputs/{dataset}_logs.pkl: of the first test_set_size test examples ("val") and of as many
training examples ("train", always the same draw). The format is described in
attention_dynamics/analysis/logs.py; --layout published writes the dicts of the papers' code
instead.
outputs/{dataset}_logs.json says how the dump came about; a dump that is up to date is left alone.
What is dumped of each checkpoint is kept in outputs/{dataset}_logs.parts/ until all are: when it is
stopped, the same command goes on.
"""

import argparse
import functools
import sys
from pathlib import Path

import numpy as np
import torch
from data import Split, canonical_name, eval_batches, load_dataset, sample_train
from models import CONFIG_KEYS, AttentionClassifier, influence, projected_words
from tqdm import tqdm

from attention_dynamics.analysis.logs import Logs, published_layout, save_logs
from attention_dynamics.cli import InputError, count, run_script, script_parser
from attention_dynamics.device import add_device_options, peak_memory_mb, setup_device
from attention_dynamics.runs.checkpoints import checkpoints_of, load_checkpoint
from attention_dynamics.runs.configs import make_log_config, read_config, read_log_config
from attention_dynamics.runs.outputs import parts_of, record_output
from attention_dynamics.runs.paths import log_config_path, logs_path, run_folder
from attention_dynamics.runs.records import locked
from attention_dynamics.storage.files import sha256, write_pickle

DEFAULT_CONFIG = "configs/model.json"
KINDS = ("alpha", "beta", "grad")


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as Furd, SMS or toy")
    parser.add_argument(
        "--config", default=DEFAULT_CONFIG, help="model config (default: %(default)s)"
    )
    parser.add_argument(
        "--test_set_size",
        type=count,
        default=4000,
        help="test examples, and as many training examples, to dump (default: %(default)s)",
    )
    parser.add_argument(
        "--layout",
        choices=["ours", "published"],
        default="ours",
        help="layout of the output (default: %(default)s)",
    )
    parser.add_argument(
        "--make_log_config",
        action="store_true",
        help="first write the log config, from the finished runs in models/",
    )
    parser.add_argument("--overwrite", action="store_true", help="dump again what is up to date")
    add_device_options(parser)
    return parser.parse_args(argv)


def train_command(args, entry: dict, iterations: list[int]) -> str:
    """The command that makes the checkpoints of a run at ``iterations``."""
    return (
        f"python train_classifier.py --dataset {args.dataset} --seed {entry['seed']} "
        f"--steps {max(iterations) + 1} --custom_saves {','.join(map(str, iterations))}"
        + (" --uniform" if entry["uniform"] else "")
        + (f" --config {args.config}" if args.config != DEFAULT_CONFIG else "")
    )


def dump(model: AttentionClassifier, split, device) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """α, β, Δ, each (tokens,) float32 in ``split``'s order; whether each example is right."""
    found = {kind: np.empty(len(split.ids.values), np.float32) for kind in KINDS}
    correct = np.empty(len(split), dtype=bool)
    # Each word that occurs is multiplied by the input weights once.
    words = torch.from_numpy(np.unique(split.ids.values)).to(device)
    projected = projected_words(model, words)
    for examples in eval_batches(split):
        ids, lengths, labels = split.batch(examples)
        rows = torch.searchsorted(words, ids.to(device))
        reading, grad = influence(model, projected, rows, lengths, labels.to(device))
        correct[examples] = (reading.score.detach() > 0).cpu().numpy() == (labels == 1).numpy()
        place = split.ids.places(examples)
        for kind, values in zip(KINDS, (reading.alpha, reading.beta, grad), strict=True):
            found[kind][place] = values.detach().cpu().numpy()
    sums = np.add.reduceat(found["alpha"], split.ids.offsets[:-1], dtype=np.float64)
    if np.abs(sums - 1).max() > 1e-4:  # departure 7: 1e-6 fails by rounding
        raise ArithmeticError(f"attention of an example sums to {sums[np.abs(sums - 1).argmax()]}")
    return found, correct


def dump_checkpoint(
    path: Path, model: AttentionClassifier, split: Split, num_val: int, device: torch.device
) -> dict:
    """{"scores": {kind: (tokens,) tensor}, "test_acc", "train_acc"} of the checkpoint at ``path``.

    InputError when its scores are not finite.
    """
    load_checkpoint(path, model)
    found, correct = dump(model, split, device)
    if not all(np.isfinite(values).all() for values in found.values()):
        raise InputError(
            f"checkpoint {path} gives scores that are not finite: its training diverged, or the "
            "file was changed; train its run again with --overwrite"
        )
    return {
        "scores": {kind: torch.from_numpy(values) for kind, values in found.items()},
        "test_acc": float(correct[:num_val].mean()),
        "train_acc": float(correct[num_val:].mean()),
    }


def main(argv=None) -> None:
    args = parse_args(argv)
    args.dataset = canonical_name(args.dataset)
    device = setup_device(args.device, args.threads)

    config = read_config(args.config, CONFIG_KEYS)
    if args.make_log_config:
        make_log_config(args.dataset, config, False, args.overwrite)
    entries = read_log_config(log_config_path(args.dataset))
    dataset = load_dataset(args.dataset)
    paths = checkpoints_of(
        log_config_path(args.dataset),
        entries,
        lambda entry: run_folder(args.dataset, config, entry["seed"], entry["uniform"]),
        dataset.checksum,
        functools.partial(train_command, args),
    )
    of_all = {
        "dataset": args.dataset,
        "data": dataset.checksum,
        "config": config,
        "test_set_size": args.test_set_size,
        "layout": args.layout,
    }
    checkpoints = [[str(path), sha256(path)[:16]] for path in paths]
    settings = {**of_all, "checkpoints": checkpoints}
    out = logs_path(args.dataset)
    with locked(out):
        parts = parts_of(out, settings, args.overwrite)
        if parts is None:
            print(f"{out} is up to date with its {len(paths)} checkpoints; --overwrite dumps again")
            return

        num_val = min(args.test_set_size, len(dataset.test))
        sample = sample_train(dataset.train, num_val)
        split = dataset.test.take(range(num_val)).join(dataset.train.take(sample))
        logs = Logs(
            dataset=args.dataset,
            src=split.ids,
            trg=split.labels,
            splits={"val": num_val, "train": len(sample)},
            index=np.array([*range(num_val), *sample]),
        )
        models = {
            uniform: AttentionClassifier(len(dataset.vocabulary), config, uniform).to(device)
            for uniform in {entry["uniform"] for entry in entries}
        }
        for model in models.values():
            model.requires_grad_(False)

        listed = list(zip(entries, paths, checkpoints, strict=True))
        for entry, path, checkpoint in tqdm(
            listed, unit="checkpoint", disable=not sys.stderr.isatty()
        ):
            described = {**of_all, "checkpoint": checkpoint}
            part = parts.get(described)
            if part is None:
                part = dump_checkpoint(path, models[entry["uniform"]], split, num_val, device)
                parts.put(described, part)
            name, iteration = entry["name"], entry["iteration"]
            for kind in KINDS:
                logs.arrays[name, iteration, kind] = part["scores"][kind].numpy()
            for metric in ("test_acc", "train_acc"):
                logs.metas[name, iteration, metric] = part[metric]

        if args.layout == "ours":
            save_logs(out, logs)
        else:
            train = dataset.train
            whole = [(train.ids[i].tolist(), int(train.labels[i])) for i in range(len(train))]
            write_pickle(out, published_layout(logs, whole))
        record_output(out, settings, {"peak_memory_mb": peak_memory_mb()})
        parts.remove()
    print(
        f"{out}: {len(paths)} checkpoints, {num_val} val and {len(sample)} train examples, "
        f"peak memory {peak_memory_mb():.0f} MB"
    )


if __name__ == "__main__":
    run_script(main)

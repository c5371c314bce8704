"""Dump α, β, Δ and accuracies of every checkpoint of a dataset (docs/method.md, section 2.5).

    python eval_dump.py --dataset Furd

Reads configs/{dataset}_log.json (the checkpoints to evaluate), their files in models/, and the
data. --make_log_config first writes that list from the finished runs in models/ (own data).

Writes outputs/{dataset}_logs.pkl, with scores of the first test_set_size test examples ("val") and
of as many training examples ("train", always the same sample). The format is described in
attention_dynamics/analysis/logs.py; --layout published writes the dicts of the papers' code
instead. The record outputs/{dataset}_logs.json describes how the dump was made. A dump that is up
to date is left alone. The same command resumes an interrupted dump, from the checkpoints saved in
outputs/{dataset}_logs.parts/.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from data import Split, canonical_name, eval_batches, load_dataset
from models import CONFIG_KEYS, AttentionClassifier, influence, projected_words

from attention_dynamics.analysis.dumping import (
    KINDS,
    add_dump_options,
    dump_checkpoints,
    log_checkpoints,
    sample_train,
)
from attention_dynamics.analysis.logs import Logs
from attention_dynamics.cli import add_options, count, run_script, script_parser
from attention_dynamics.device import setup_device
from attention_dynamics.runs.checkpoints import load_checkpoint
from attention_dynamics.runs.configs import read_config
from attention_dynamics.storage.files import sha256


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as Furd, SMS or toy")
    size = "number of test examples, the first in the file, and of training examples"
    add_options(parser, test_set_size=(count, 4000, size))
    add_dump_options(parser)
    return parser.parse_args(argv)


def dump(
    model: AttentionClassifier, split: Split, device
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """α, β, Δ, each (tokens,) float32 in ``split``'s order; whether each example is correct."""
    scores = {kind: np.empty(len(split.ids.values), np.float32) for kind in KINDS}
    correct = np.empty(len(split), dtype=bool)
    # Each word that occurs is multiplied by the input weights once.
    words = torch.from_numpy(np.unique(split.ids.values)).to(device)
    projected = projected_words(model, words)
    for examples in eval_batches(split):
        ids, lengths, labels = split.batch(examples)
        rows = torch.searchsorted(words, ids.to(device))
        output, grad = influence(model, projected, rows, lengths, labels.to(device))
        correct[examples] = (output.score.detach() > 0).cpu().numpy() == (labels == 1).numpy()
        place = split.ids.places(examples)
        for kind, values in zip(KINDS, (output.alpha, output.beta, grad), strict=True):
            scores[kind][place] = values.detach().cpu().numpy()
    return scores, correct


def main(argv=None) -> None:
    args = parse_args(argv)
    args.dataset = canonical_name(args.dataset)
    device = setup_device(args.device, args.threads)

    config = read_config(args.config, CONFIG_KEYS)
    dataset = load_dataset(args.dataset)
    entries, paths = log_checkpoints(
        args, config, dataset.checksum, False, "train_classifier.py",
        lambda last: f"--steps {last + 1}",
    )  # fmt: skip
    settings = {
        "dataset": args.dataset,
        "data": dataset.checksum,
        "config": config,
        "test_set_size": args.test_set_size,
        "layout": args.layout,
    }
    described = [[str(path), sha256(path)[:16]] for path in paths]
    checkpoints = [
        (entry, path, {**settings, "scores_of": checkpoint})
        for entry, path, checkpoint in zip(entries, paths, described, strict=True)
    ]

    def prepare():
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

        def score_checkpoint(entry: dict, path: Path) -> dict:
            model = AttentionClassifier(len(dataset.vocabulary), config, entry["uniform"])
            load_checkpoint(path, model.to(device).requires_grad_(False))
            scores, correct = dump(model, split, device)
            metas = {"test_acc": correct[:num_val].mean(), "train_acc": correct[num_val:].mean()}
            return {"scores": scores, "metas": {name: float(acc) for name, acc in metas.items()}}

        return logs, score_checkpoint, (dataset.train.ids, dataset.train.labels)

    dump_checkpoints(args, {**settings, "checkpoints": described}, checkpoints, prepare)


if __name__ == "__main__":
    run_script(main)

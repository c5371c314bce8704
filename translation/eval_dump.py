"""Dump α, β, Δ, accuracy, perplexity and BLEU of every checkpoint (docs/method.md, section 3).

    python eval_dump.py --dataset multi30k --include_train_subset
    python eval_dump.py --dataset multi30k --include_train_subset --eval_bleu last

Reads configs/{dataset}_log.json (the checkpoints to evaluate), their files in models/, and the
data. --make_log_config first writes that list from the finished runs in models/ (own data).

Writes outputs/{dataset}_logs.pkl, with scores of all validation pairs ("val") and, with
--include_train_subset, of as many training pairs ("train", always the same sample); Δ only where
the config entry says "calculate_grad": true. The format is described in
attention_dynamics/analysis/logs.py; --layout published writes the dicts of the papers' code
instead. The record outputs/{dataset}_logs.json describes how the dump was made, with sacrebleu's
signature. A dump that is up to date is left alone. The same command resumes an interrupted dump,
from the checkpoints saved in outputs/{dataset}_logs.parts/.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from data import Pairs, load_dataset
from decoding import BEAM_SIZE, bleu, translate
from evaluation import percent_and_perplexity
from models import CONFIG_KEYS, AttentionTranslator
from scores import score_batch

from attention_dynamics.analysis.dumping import (
    KINDS,
    add_dump_options,
    dump_checkpoints,
    log_checkpoints,
    sample_train,
)
from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged, batches_by_length, offsets_of
from attention_dynamics.cli import InputError, add_options, count, run_script, script_parser
from attention_dynamics.device import setup_device
from attention_dynamics.runs.checkpoints import load_checkpoint
from attention_dynamics.runs.configs import read_config
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.files import sha256

# Sentence pairs, and their (padded) source tokens, in one batch of a checkpoint without Δ.
_SENTENCES, _TOKENS = 64, 4096


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as multi30k or toy")
    parser.add_argument(
        "--eval_bleu",
        nargs="?",
        const="all",
        choices=["all", "last"],
        help="beam search and BLEU for all checkpoints, or for the last one of each run (default: "
        "none; without a value: all)",
    )
    parser.add_argument(
        "--include_train_subset",
        action="store_true",
        help="training pairs in addition, as many as validation pairs",
    )
    add_options(
        parser,
        beam_size=(count, BEAM_SIZE, "hypotheses per sentence in beam search; 1 is greedy"),
        grad_bsize=(count, 16, "number of sentence pairs whose Δ is computed at once"),
    )
    add_dump_options(parser)
    return parser.parse_args(argv)


def dump(
    model: AttentionTranslator, pairs: Pairs, device: torch.device, grad_bsize: int | None
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """α, β and (with ``grad_bsize``) Δ of all pairs; whether each target is correct; its loss.

    Returns:
        {"alpha", "beta", "grad": (scores,) float32 in the layout of the logs}, correct (targets,)
        bool, loss (targets,) float64; targets are those after <s>, pair by pair.
    """
    src_len, trg_len = pairs.src.lengths, pairs.trg.lengths - 1
    pair_offsets, trg_offsets = offsets_of(src_len * trg_len), offsets_of(trg_len)
    kinds = KINDS if grad_bsize else KINDS[:2]
    scores = {kind: np.empty(pair_offsets[-1], np.float32) for kind in kinds}
    correct, loss = np.empty(trg_offsets[-1], bool), np.empty(trg_offsets[-1])
    model.eval()
    for examples in batches_by_length(src_len, grad_bsize or _SENTENCES, _TOKENS):
        output = score_batch(model, pairs.batch(examples).to(device), with_grad=bool(grad_bsize))
        for kind in kinds:
            _scatter(scores[kind], pair_offsets, examples, getattr(output, kind))
        _scatter(correct, trg_offsets, examples, output.correct)
        _scatter(loss, trg_offsets, examples, -output.log_prob)
    return scores, correct, loss


def _scatter(out: np.ndarray, offsets: np.ndarray, examples: np.ndarray, values) -> None:
    """Put the values of some examples, one after another, where they belong."""
    out[Ragged(out, offsets).places(examples)] = values.cpu().numpy()


def main(argv=None) -> None:
    args = parse_args(argv)
    device = setup_device(args.device, args.threads)

    check_name(args.dataset)
    config = read_config(args.config, CONFIG_KEYS)
    dataset = load_dataset(args.dataset)
    if args.beam_size > dataset.vocab:
        raise InputError(
            f"--beam_size {args.beam_size} is more than the vocabulary has pieces, {dataset.vocab}"
        )
    per_epoch = -(-len(dataset.train) // config["batch_size"])
    entries, paths = log_checkpoints(
        args, config, dataset.checksum, True, "train_translation.py",
        lambda last: f"--epochs {last // per_epoch + 1}",
    )  # fmt: skip
    settings = {
        "dataset": args.dataset,
        "data": dataset.checksum,
        "config": config,
        "beam_size": args.beam_size,
        "include_train_subset": args.include_train_subset,
        "layout": args.layout,
    }
    last = {}
    for entry in entries:
        last[entry["name"]] = max(entry["iteration"], last.get(entry["name"], 0))

    def with_bleu(entry: dict) -> bool:
        is_last = entry["iteration"] == last[entry["name"]]
        return args.eval_bleu == "all" or (args.eval_bleu == "last" and is_last)

    described, checkpoints = [], []
    for path, entry in zip(paths, entries, strict=True):
        described.append([str(path), sha256(path)[:16], entry["calculate_grad"]])
        part = {**settings, "scores_of": described[-1], "bleu": with_bleu(entry)}
        checkpoints.append((entry, path, part))

    def prepare():
        num_val = len(dataset.val)
        sample = sample_train(dataset.train, num_val) if args.include_train_subset else []
        splits = {"val": dataset.val, "train": dataset.train.take(sample)}
        pairs = dataset.val.join(splits["train"])
        index = np.array([*range(num_val), *sample])
        sizes = {split: len(some) for split, some in splits.items()}
        logs = Logs(dataset=args.dataset, src=pairs.src, trg=pairs.trg, splits=sizes, index=index)

        def score_checkpoint(entry: dict, path: Path) -> dict:
            model = AttentionTranslator(dataset.vocab, config, entry["uniform"]).to(device)
            load_checkpoint(path, model)
            grad_bsize = args.grad_bsize if entry["calculate_grad"] else None
            scores, correct, loss = dump(model, pairs, device, grad_bsize)
            metas, signature, start = {}, None, 0
            for split, some in splits.items():
                num_targets = int((some.trg.lengths - 1).sum())
                if not num_targets:  # no sample of training pairs
                    continue
                targets = slice(start, start := start + num_targets)
                metas[f"{split}_acc"], metas[f"{split}_perplexity"] = percent_and_perplexity(
                    int(correct[targets].sum()), float(loss[targets].sum()), num_targets
                )
                if with_bleu(entry):
                    hypotheses = translate(model, some.src, dataset.pieces, device, args.beam_size)
                    metas[f"{split}_bleu"], signature = bleu(hypotheses, some.references)
            return {"scores": scores, "metas": metas, "signature": signature}

        return logs, score_checkpoint, (dataset.train.src, dataset.train.trg)

    def summarize(parts: list[dict]) -> dict:
        signatures = [part["signature"] for part in parts if part["signature"]]
        return {"bleu_signature": signatures[-1] if signatures else None}

    whole = {**settings, "eval_bleu": args.eval_bleu, "checkpoints": described}
    results = dump_checkpoints(args, whole, checkpoints, prepare, summarize)
    if results and results["bleu_signature"]:
        print(f"BLEU: sacrebleu {results['bleu_signature']}, beam {args.beam_size}")


if __name__ == "__main__":
    run_script(main)

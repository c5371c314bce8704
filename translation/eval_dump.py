"""Dump α, β, Δ, accuracy, perplexity and BLEU of every checkpoint of a data set (method A.2).

    python eval_dump.py --dataset multi30k --include_train_subset
    python eval_dump.py --dataset multi30k --include_train_subset --eval_bleu last

Reads configs/{dataset}_log.json (the checkpoints to look at), their files in models/, and the data.
--make_log_config first writes that list from the runs that are there (own data).
Writes outputs/{dataset}_logs.pkl: of all validation pairs ("val") and, with
--include_train_subset, of as many training pairs ("train", always the same draw); Δ only where the
config entry says "calculate_grad": true. The format is described in
attention_dynamics/analysis/logs.py;
--layout published writes the dicts of the papers' code instead. outputs/{dataset}_logs.json says
how the dump came about, with sacrebleu's signature; a dump that is up to date is left alone.
What is dumped of each checkpoint is kept in outputs/{dataset}_logs.parts/ until all are: when it is
stopped, the same command goes on.
"""

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from data import Dataset, Pairs, load_dataset, sample_train
from decoding import BEAM_SIZE, bleu, translate
from evaluation import percent_and_perplexity
from models import CONFIG_KEYS, AttentionTranslator, read
from tqdm import tqdm

from attention_dynamics.analysis.logs import Logs, published_layout, save_logs
from attention_dynamics.analysis.ragged import Ragged, batches_by_length, offsets_of
from attention_dynamics.cli import InputError, count, run_script, script_parser
from attention_dynamics.device import add_device_options, peak_memory_mb, setup_device
from attention_dynamics.runs.checkpoints import checkpoints_of, load_checkpoint
from attention_dynamics.runs.configs import make_log_config, read_config, read_log_config
from attention_dynamics.runs.outputs import parts_of, record_output
from attention_dynamics.runs.paths import check_name, log_config_path, logs_path, run_folder
from attention_dynamics.runs.records import locked
from attention_dynamics.storage.files import sha256, write_pickle

DEFAULT_CONFIG = "configs/model.json"
KINDS = ("alpha", "beta", "grad")

# Sentence pairs, and their (padded) source tokens, in one batch of a checkpoint without Δ.
_SENTENCES, _TOKENS = 64, 4096


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in data/, such as multi30k or toy")
    parser.add_argument(
        "--config", default=DEFAULT_CONFIG, help="model config (default: %(default)s)"
    )
    parser.add_argument(
        "--eval_bleu",
        nargs="?",
        const="all",
        choices=["all", "last"],
        help="beam search and BLEU for all checkpoints, or for the last one of each run (default: "
        "none; without a value: all)",
    )
    parser.add_argument(
        "--beam_size",
        type=count,
        default=BEAM_SIZE,
        help="hypotheses kept while translating; 1 is greedy decoding (default: %(default)s)",
    )
    parser.add_argument(
        "--include_train_subset",
        action="store_true",
        help="training pairs too, as many as there are validation pairs",
    )
    parser.add_argument(
        "--grad_bsize",
        type=count,
        default=16,
        help="sentence pairs whose Δ is computed at once (default: %(default)s)",
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


def train_command(args, dataset: Dataset, config: dict, entry: dict, iterations: list[int]) -> str:
    """The command that makes the checkpoints of a run at ``iterations``."""
    per_epoch = -(-len(dataset.train) // config["batch_size"])
    return (
        f"python train_translation.py --dataset {args.dataset} --seed {entry['seed']} "
        f"--epochs {max(iterations) // per_epoch + 1} "
        f"--custom_saves {','.join(map(str, iterations))}"
        + (" --uniform" if entry["uniform"] else "")
        + (f" --config {args.config}" if args.config != DEFAULT_CONFIG else "")
    )


def dump(
    model: AttentionTranslator, pairs: Pairs, device: torch.device, grad_bsize: int | None
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """α, β and (with ``grad_bsize``) Δ of all pairs; whether each target is right; its loss.

    Returns:
        {"alpha", "beta", "grad": (scores,) float32 in the layout of the logs}, correct (targets,)
        bool, loss (targets,) float64; targets are those after <s>, pair by pair.
    """
    src_len, trg_len = pairs.src.lengths, pairs.trg.lengths - 1
    scores = offsets_of(src_len * trg_len)  # where the scores of each pair begin
    targets = offsets_of(trg_len)
    kinds = KINDS if grad_bsize else KINDS[:2]
    found = {kind: np.empty(scores[-1], np.float32) for kind in kinds}
    correct, loss = np.empty(targets[-1], bool), np.empty(targets[-1])
    model.eval()
    for examples in batches_by_length(src_len, grad_bsize or _SENTENCES, _TOKENS):
        reading = read(model, pairs.batch(examples).to(device), with_grad=bool(grad_bsize))
        for kind in kinds:
            _scatter(found[kind], scores, examples, getattr(reading, kind))
        _scatter(correct, targets, examples, reading.correct)
        _scatter(loss, targets, examples, -reading.log_prob)
    rows = np.repeat(src_len, trg_len)
    sums = np.add.reduceat(found["alpha"], offsets_of(rows)[:-1], dtype=np.float64)
    if np.abs(sums - 1).max() > 1e-4:  # departure 7: 1e-6 fails by rounding
        raise ArithmeticError(f"attention of a target sums to {sums[np.abs(sums - 1).argmax()]}")
    return found, correct, loss


def _scatter(out: np.ndarray, offsets: np.ndarray, examples: np.ndarray, values) -> None:
    """Put the values of some examples, one after another, where they belong."""
    places = Ragged(out, offsets).places(examples)
    out[places] = values.cpu().numpy()


def dump_checkpoint(
    path: Path,
    model: AttentionTranslator,
    splits: dict[str, Pairs],
    device: torch.device,
    grad_bsize: int | None,
    translated: Callable[[Pairs], tuple[float, str]] | None,
) -> dict:
    """What the checkpoint at ``path`` gives on the ``splits``.

    Args:
        path: of the checkpoint.
        model: it is loaded into.
        splits: "val", and "train" after it if it is asked for.
        device: of the model.
        grad_bsize: pairs whose Δ is computed at once; None for no Δ.
        translated: pairs -> BLEU of the model's translations, and sacrebleu's signature; None for
            no BLEU.

    Returns:
        {"scores": {kind: (scores,) tensor}, "metas": {split: [accuracy, perplexity, BLEU or None]},
        "signature": of BLEU or None}. InputError when the scores are not finite.
    """
    load_checkpoint(path, model)
    pairs = functools.reduce(Pairs.join, splits.values())
    found, correct, loss = dump(model, pairs, device, grad_bsize)
    if not all(np.isfinite(values).all() for values in found.values()):
        raise InputError(
            f"checkpoint {path} gives scores that are not finite: its training diverged, or the "
            "file was changed; train its run again with --overwrite"
        )
    metas, signature, start = {}, None, 0
    for split, some in splits.items():
        stop = start + int((some.trg.lengths - 1).sum())
        place, start = slice(start, stop), stop
        scores = percent_and_perplexity(
            int(correct[place].sum()), float(loss[place].sum()), stop - place.start
        )
        score = None
        if translated is not None:
            score, signature = translated(some)
        metas[split] = [*scores, score]
    scores = {kind: torch.from_numpy(values) for kind, values in found.items()}
    return {"scores": scores, "metas": metas, "signature": signature}


def main(argv=None) -> None:
    args = parse_args(argv)
    device = setup_device(args.device, args.threads)

    check_name(args.dataset)
    config = read_config(args.config, CONFIG_KEYS)
    if args.make_log_config:
        make_log_config(args.dataset, config, True, args.overwrite)
    entries = read_log_config(log_config_path(args.dataset))
    dataset = load_dataset(args.dataset)
    if args.beam_size > dataset.vocab:
        raise InputError(
            f"--beam_size {args.beam_size} is more than the vocabulary has pieces, {dataset.vocab}"
        )
    paths = checkpoints_of(
        log_config_path(args.dataset),
        entries,
        lambda entry: run_folder(args.dataset, config, entry["seed"], entry["uniform"]),
        dataset.checksum,
        functools.partial(train_command, args, dataset, config),
    )
    of_all = {
        "dataset": args.dataset,
        "data": dataset.checksum,
        "config": config,
        "beam_size": args.beam_size,
        "include_train_subset": args.include_train_subset,
        "layout": args.layout,
    }
    checkpoints = [
        [str(path), sha256(path)[:16], entry["calculate_grad"]]
        for path, entry in zip(paths, entries, strict=True)
    ]
    settings = {**of_all, "eval_bleu": args.eval_bleu, "checkpoints": checkpoints}
    out = logs_path(args.dataset)
    with locked(out):
        parts = parts_of(out, settings, args.overwrite)
        if parts is None:
            print(f"{out} is up to date with its {len(paths)} checkpoints; --overwrite dumps again")
            return

        num_val = len(dataset.val)
        sample = sample_train(dataset.train, num_val) if args.include_train_subset else []
        splits = {"val": dataset.val}
        if sample:
            splits["train"] = dataset.train.take(sample)
        pairs = functools.reduce(Pairs.join, splits.values())
        logs = Logs(
            dataset=args.dataset,
            src=pairs.src,
            trg=pairs.trg,
            splits={"val": num_val, "train": len(sample)},
            index=np.array([*range(num_val), *sample]),
        )
        last = {
            entry["name"]: entry["iteration"]
            for entry in sorted(entries, key=lambda e: e["iteration"])
        }
        models = {
            uniform: AttentionTranslator(dataset.vocab, config, uniform).to(device)
            for uniform in {entry["uniform"] for entry in entries}
        }
        signature = None
        listed = list(zip(entries, paths, checkpoints, strict=True))
        for entry, path, checkpoint in tqdm(
            listed, unit="checkpoint", disable=not sys.stderr.isatty()
        ):
            name, iteration = entry["name"], entry["iteration"]
            with_bleu = args.eval_bleu == "all" or (
                args.eval_bleu == "last" and iteration == last[name]
            )
            described = {**of_all, "checkpoint": checkpoint, "bleu": with_bleu}
            part = parts.get(described)
            if part is None:
                model = models[entry["uniform"]]

                def translated(some: Pairs, model=model) -> tuple[float, str]:
                    found = translate(model, some.src, dataset.pieces, device, args.beam_size)
                    return bleu(found, some.references)

                part = dump_checkpoint(
                    path, model, splits, device,
                    args.grad_bsize if entry["calculate_grad"] else None,
                    translated if with_bleu else None,
                )  # fmt: skip
                parts.put(described, part)
            for kind in KINDS[: len(part["scores"])]:
                logs.arrays[name, iteration, kind] = part["scores"][kind].numpy()
            for split in splits:
                accuracy, perplexity, score = part["metas"][split]
                logs.metas[name, iteration, f"{split}_acc"] = accuracy
                logs.metas[name, iteration, f"{split}_perplexity"] = perplexity
                if score is not None:
                    logs.metas[name, iteration, f"{split}_bleu"] = score
            signature = part["signature"] or signature

        if args.layout == "ours":
            save_logs(out, logs)
        else:
            train = dataset.train
            whole = [(train.src[i].tolist(), train.trg[i].tolist()) for i in range(len(train))]
            write_pickle(out, published_layout(logs, whole))
        results = {"peak_memory_mb": peak_memory_mb(), "bleu_signature": signature}
        record_output(out, settings, results)
        parts.remove()
    if signature:
        print(f"BLEU: sacrebleu {signature}, beam {args.beam_size}")
    print(
        f"{out}: {len(paths)} checkpoints, {num_val} val and {len(sample)} train pairs, "
        f"peak memory {peak_memory_mb():.0f} MB"
    )


if __name__ == "__main__":
    run_script(main)

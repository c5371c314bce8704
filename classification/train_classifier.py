"""Train one classifier and save its checkpoints (docs/method.md, section 2).

    python train_classifier.py --seed 20 --dataset Furd --steps 4000 --custom_saves
    0,10,50,100,150,200,250

Reads data/{dataset}_{train,test}.json and data/w2v.pkl. Writes the checkpoints and run.json (how
they were made) to
models/{dataset}/h_dim={hidden_dim},b_size={batch_size},seed={seed},{normal|uniform}/. A checkpoint
is a plain state_dict, taken BEFORE the update of its step; the last one is taken after it. The same
command resumes an interrupted run, with the same bytes as a result. A finished run is left alone;
--overwrite retrains it.
"""

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from data import (
    Dataset,
    Split,
    canonical_name,
    eval_batches,
    load_dataset,
)
from models import CONFIG_KEYS, AttentionClassifier
from torch.nn import functional as F
from tqdm import tqdm

from attention_dynamics.cli import InputError, add_options, count, run_script, script_parser, seed
from attention_dynamics.device import peak_memory_mb, set_seed, setup_device
from attention_dynamics.runs.checkpoints import add_training_options, steps_to_save
from attention_dynamics.runs.configs import read_config
from attention_dynamics.runs.paths import checkpoint_path, run_folder, state_path
from attention_dynamics.runs.records import begin_run, finish_run, locked
from attention_dynamics.runs.training import Training

# Steps between resume states, at most.
STATE_STEPS = 250


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--seed", type=seed, required=True, help="random seed (initialization and data order)"
    )
    parser.add_argument("--dataset", required=True, help="name in data/, such as Furd, SMS or toy")
    add_options(
        parser,
        steps=(count, 2000, "updates; the paper's grid: 4000"),
        test_set_size=(count, 4000, "number of leading test examples for the test accuracy"),
    )
    parser.add_argument(
        "--pretrained_embeddings",
        action="store_true",
        help="start the embeddings from data/w2v.pkl; without it, as published, a vector there "
        "only puts its word into the vocabulary (departure 2, default: off)",
    )
    add_training_options(parser)
    return parser.parse_args(argv)


def batches(num_examples: int, batch_size: int, steps: int, seed: int):
    """The examples (batch,) of each step: a new order every floor(N / batch_size) steps.

    The orders come from a generator of their own, so that nothing else can change them.
    """
    rng = np.random.default_rng(seed)
    per_order = max(1, num_examples // batch_size)
    for step in range(steps):
        if step % per_order == 0:
            order = rng.permutation(num_examples)
        yield order[np.arange(step * batch_size, (step + 1) * batch_size) % num_examples]


@torch.no_grad()
def accuracy(model: AttentionClassifier, split: Split, device: torch.device) -> float:
    """Fraction of the examples on the correct side of score 0."""
    correct = 0
    for examples in eval_batches(split):
        ids, lengths, labels = split.batch(examples)
        score = model(ids.to(device), lengths).score
        correct += int(((score > 0).cpu() == (labels == 1)).sum())
    return correct / len(split)


def use_pretrained(model: AttentionClassifier, dataset: Dataset) -> int:
    """Put the word vectors into the embedding (departure 2); returns how many words have one."""
    words = dataset.vocabulary
    known = {i: dataset.vectors[word] for i, word in enumerate(words) if word in dataset.vectors}
    try:
        vectors = torch.from_numpy(np.stack([*known.values()]).astype(np.float32))
        with torch.no_grad():
            model.embedding.weight[[*known]] = vectors
    except (ValueError, RuntimeError):
        raise InputError(
            "--pretrained_embeddings: data/w2v.pkl must hold vectors of known words, of "
            f"{model.embedding.embedding_dim} numbers (embed_dim of the config); make it with "
            "prepare_data.py --word_vectors FILE"
        ) from None
    return len(known)


def train(
    model: AttentionClassifier,
    dataset: Dataset,
    test: Split,
    args: argparse.Namespace,
    settings: dict,
    folder: Path,
    device: torch.device,
) -> None:
    """Train in ``folder`` to the end; resumes an interrupted run."""
    optimizer = torch.optim.Adam(model.parameters(), fused=device.type != "mps")
    order = batches(len(dataset.train), settings["config"]["batch_size"], args.steps, args.seed)
    saves, last = settings["saves"], args.steps - 1
    training = Training(
        state_path(folder), settings, model, optimizer, min(args.save_every, STATE_STEPS),
        {"accuracies": {}, "seconds": []},
    )  # fmt: skip
    with training:
        accuracies, seconds = training.notes["accuracies"], training.notes["seconds"]
        progress = tqdm(
            itertools.islice(order, training.step, None), initial=training.step,
            total=args.steps, unit="step", disable=not sys.stderr.isatty(),
        )  # fmt: skip

        def keep(step: int) -> None:
            training.save_checkpoint(checkpoint_path(folder, step))
            accuracies[step] = accuracy(model, test, device)
            progress.write(f"step {step}: test accuracy {accuracies[step]:.4f}", file=sys.stdout)

        for step, examples in enumerate(progress, training.step):
            if step in saves and step != last:
                keep(step)
            started = time.perf_counter()
            with training.update():
                ids, lengths, labels = dataset.train.batch(examples)
                score = model(ids.to(device), lengths).score
                loss = F.binary_cross_entropy_with_logits(score, labels.to(device))
                training.check_finite(loss, examples)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                seconds.append(time.perf_counter() - started)
        keep(last)

    results = {
        "test_acc": accuracies,
        "seconds_per_step": statistics.median(seconds),
        "training_seconds": sum(seconds),
        "peak_memory_mb": peak_memory_mb(),
        "device": device.type,
        "threads": args.threads,
    }
    finish_run(folder, results)
    print(
        f"{folder}: {len(accuracies)} checkpoint(s), {results['seconds_per_step'] * 1e3:.1f} ms "
        f"per step, peak memory {results['peak_memory_mb']:.0f} MB"
    )


def main(argv=None) -> None:
    args = parse_args(argv)
    args.dataset = canonical_name(args.dataset)
    set_seed(args.seed)
    device = setup_device(args.device, args.threads)

    config = read_config(args.config, CONFIG_KEYS)
    dataset = load_dataset(args.dataset)
    test = dataset.test.take(range(min(args.test_set_size, len(dataset.test))))

    model = AttentionClassifier(len(dataset.vocabulary), config, args.uniform)
    if args.pretrained_embeddings:
        found = use_pretrained(model, dataset)
        print(f"{found} of {len(dataset.vocabulary)} embeddings start from word vectors")
    model.to(device)

    saves = steps_to_save(args.steps, args.save_every, args.custom_saves)
    settings = {
        "dataset": args.dataset,
        "data": dataset.checksum,
        "seed": args.seed,
        "uniform": args.uniform,
        "config": config,
        "steps": args.steps,
        "saves": saves,
        "test_set_size": args.test_set_size,
        "pretrained_embeddings": args.pretrained_embeddings,
    }
    folder = run_folder(args.dataset, config, args.seed, args.uniform)
    with locked(folder):
        if not begin_run(folder, settings, args.overwrite):
            print(f"{folder} is finished already; --overwrite retrains it")
            return
        train(model, dataset, test, args, settings, folder, device)


if __name__ == "__main__":
    run_script(main)

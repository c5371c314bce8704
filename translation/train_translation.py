"""Train one translator and save its checkpoints (docs/method.md, section 3).

    python train_translation.py --seed 20 --dataset multi30k --epochs 20 --save_every 2000 \\
        --custom_saves 0,50,100,500,1000,1500

Reads the sentence pairs in data/; trains the shared sentencepiece vocabulary of 8000 pieces if it
does not exist. Writes the checkpoints and run.json (how they were made) to
models/{dataset}/h_dim={h},dropout={d},b_size={bs},seed={seed},{normal|uniform}/. A checkpoint is a
plain state_dict, taken BEFORE the update of its step; the last one is taken after it; "model" is
that of the epoch with the best validation token accuracy. The same command resumes an interrupted
run, which ends in the same bytes. A finished run is left alone; --overwrite retrains it.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from data import Dataset, load_dataset
from evaluation import token_scores
from models import CONFIG_KEYS, AttentionTranslator
from torch.nn import functional as F
from tqdm import tqdm

from attention_dynamics.cli import add_options, count, note, run_script, script_parser, seed
from attention_dynamics.device import peak_memory_mb, set_seed, setup_device
from attention_dynamics.runs.checkpoints import add_training_options, steps_to_save
from attention_dynamics.runs.configs import read_config
from attention_dynamics.runs.paths import checkpoint_path, run_folder, state_path
from attention_dynamics.runs.records import begin_run, finish_run, locked
from attention_dynamics.runs.training import Training

# Steps between resume states, at most.
STATE_STEPS = 2000


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--seed",
        type=seed,
        required=True,
        help="random seed (initialization, dropout and data order)",
    )
    parser.add_argument("--dataset", required=True, help="name in data/, such as multi30k or toy")
    passes = "passes over the training pairs; the paper's grid: 20 to 40"
    add_options(parser, epochs=(count, 20, passes))
    add_training_options(parser)
    return parser.parse_args(argv)


def train(
    model: AttentionTranslator,
    dataset: Dataset,
    args: argparse.Namespace,
    settings: dict,
    folder: Path,
    device: torch.device,
) -> None:
    """Train in ``folder`` to the end; resumes an interrupted run."""
    optimizer = torch.optim.Adam(model.parameters(), fused=device.type != "mps")
    batch_size, saves = settings["config"]["batch_size"], settings["saves"]
    order = np.random.default_rng(args.seed)  # of the pairs; dropout draws from torch's generator
    starts = range(0, len(dataset.train), batch_size)
    steps = args.epochs * len(starts)
    training = Training(
        state_path(folder), settings, model, optimizer, min(args.save_every, STATE_STEPS),
        {"validation": [], "seconds": []},
    )  # fmt: skip
    with training:
        # (token accuracy, perplexity) after each epoch; seconds of each step
        validation, seconds = training.notes["validation"], training.notes["seconds"]
        progress = tqdm(
            initial=training.step, total=steps, unit="step", disable=not sys.stderr.isatty()
        )
        for epoch in range(args.epochs):
            shuffled = order.permutation(len(dataset.train))
            if epoch < len(validation):
                continue
            for start in starts[training.step - epoch * len(starts) :]:
                if training.step in saves and training.step != steps - 1:
                    training.save_checkpoint(checkpoint_path(folder, training.step))
                started = time.perf_counter()
                with training.update():
                    examples = shuffled[start : start + batch_size]
                    batch = dataset.train.batch(examples).to(device)
                    loss = F.cross_entropy(model(batch), batch.targets)
                    training.check_finite(loss, examples)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
                    seconds.append(time.perf_counter() - started)
                progress.update()
            accuracy, perplexity = token_scores(model, dataset.val, device)
            progress.write(
                f"epoch {epoch + 1} of {args.epochs}, {training.step} steps: validation token "
                f"accuracy {accuracy:.2f}%, perplexity {perplexity:.2f}",
                file=sys.stdout,
            )
            if accuracy > max((earlier for earlier, _ in validation), default=-1):
                training.save_checkpoint(folder / "model")
            validation.append((accuracy, perplexity))
        training.save_checkpoint(checkpoint_path(folder, steps - 1))
        progress.close()

    accuracies, perplexities = map(list, zip(*validation, strict=True))
    results = {
        "val_acc": accuracies,
        "val_perplexity": perplexities,
        "best_epoch": 1 + int(np.argmax(accuracies)),
        "seconds_per_step": statistics.median(seconds),
        "training_seconds": sum(seconds),
        "peak_memory_mb": peak_memory_mb(),
        "device": device.type,
        "threads": args.threads,
    }
    finish_run(folder, results)
    print(
        f"{folder}: {len(saves)} checkpoint(s), best validation token accuracy "
        f"{max(accuracies):.2f}% after epoch {results['best_epoch']}, "
        f"{results['seconds_per_step'] * 1e3:.0f} ms per step, peak memory "
        f"{results['peak_memory_mb']:.0f} MB"
    )


def main(argv=None) -> None:
    args = parse_args(argv)
    set_seed(args.seed)
    device = setup_device(args.device, args.threads)

    config = read_config(args.config, CONFIG_KEYS)
    dataset = load_dataset(args.dataset)
    for split, dropped in dataset.dropped.items():
        if dropped:
            note(f"{split} pairs left out because a side is empty: {dropped:,}")

    model = AttentionTranslator(dataset.vocab, config, args.uniform).to(device)

    steps = args.epochs * -(-len(dataset.train) // config["batch_size"])
    saves = steps_to_save(steps, args.save_every, args.custom_saves)
    settings = {
        "dataset": args.dataset,
        "data": dataset.checksum,
        "seed": args.seed,
        "uniform": args.uniform,
        "config": config,
        "epochs": args.epochs,
        "saves": saves,
    }
    folder = run_folder(args.dataset, config, args.seed, args.uniform)
    with locked(folder):
        if not begin_run(folder, settings, args.overwrite):
            print(f"{folder} is finished already; --overwrite retrains it")
            return
        train(model, dataset, args, settings, folder, device)


if __name__ == "__main__":
    run_script(main)

"""Train models to copy sequences, over many seeds, and count how many learn it.

    python seq2seq.py --no_rep
    python seq2seq.py --no_rep num_vocab=60
    python seq2seq.py --no_rep --num_vocab 60 --num_seeds 40 --jobs 4

Without repetition, 40 tokens of 40 are a permutation. Every sequence is then the same bag of words,
so nothing tells the model which word is copied to which position until the attention is right,
and learning often fails. 40 of 60 is learned (docs/method.md, section 4.1). An option that takes a
value can also be written name=value.

Writes logs/{exp_name}.pkl: a list over seeds of lists of evaluations. An evaluation is a dict:

    step                      the first is made after the update of step 0, then every --save_every
    loss, acc                 mean cross-entropy, accuracy
    attn_acc                  the most attended token is the token being copied
    attn_acc_m1, attn_acc_p1  the most attended token is the one after it, the one before it
    beta_acc                  accuracy if all attention is on the token being copied: the knowledge
                              that precedes the attention

A .json file beside it records the settings. Prints how many seeds reach an accuracy of 0.95, with a
95% interval (Wilson). A finished output is only replaced with --overwrite. If a run is interrupted,
the same command resumes it: finished seeds and training states are in logs/{exp_name}.parts/ until
the output is complete.
"""

import argparse
import re
import sys
import time
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path

import torch
from data import check_task
from histories import (
    default_name,
    histories_path,
    load_histories,
    success_row,
)
from models import MEASURES
from tqdm import tqdm
from training import History, Settings, add_steps, check_precision, train_seed, train_stacked
from workers import add_jobs_option, default_jobs, run_parallel

from attention_dynamics.cli import count, run_script, script_parser, seed
from attention_dynamics.device import add_device_options, peak_memory_mb, setup_device
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.outputs import PartialResults, output
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.files import check_writable


def seed_list(text: str) -> list[int]:
    """The type of ``--seeds``: distinct seeds, written 0,3,7."""
    seeds = [seed(part) for part in text.split(",")]
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"contains a seed twice: {text}")
    return seeds


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    defaults = Settings()

    def add_count(group, name: str, default: int, meaning: str, **more) -> None:
        text = f"{meaning} (default: %(default)s)"
        group.add_argument(name, type=count, default=default, help=text, **more)

    task = parser.add_argument_group("task")
    add_count(task, "--seq_length", defaults.seq_length, "number of tokens to copy")
    add_count(task, "--num_vocab", defaults.num_vocab, "number of tokens to draw from")
    task.add_argument("--no_rep", action="store_true", help="draw distinct tokens in a sequence")
    model = parser.add_argument_group("model")
    model.add_argument("--bi", action="store_true", help="bidirectional encoder")
    add_count(model, "--hidden_dim", defaults.hidden_dim, "size of embeddings and states")
    model.add_argument(
        "--invasive_uniform",
        action="store_true",
        help="uniform attention, in training and in evaluation",
    )
    model.add_argument(
        "--no_context",
        action="store_true",
        help="context replaced by 0: the decoder runs on its own",
    )
    training = parser.add_argument_group("training")
    add_count(training, "--bsize", defaults.bsize, "sequences in a batch")
    add_count(training, "--steps_s1", defaults.steps, "number of updates", dest="steps")
    add_count(
        training,
        "--save_every",
        defaults.save_every,
        "updates between evaluations; changes no weight",
    )
    training.add_argument(
        "--early_stop",
        action="store_true",
        help="end each seed at its first evaluation with an accuracy of 0.95",
    )
    training.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default=defaults.precision,
        help="precision of training; bf16 is automatic mixed precision (default: %(default)s)",
    )
    parser.add_argument(
        "--exp_name", default=None, help="name of the output (default: built from the options)"
    )
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument(
        "--num_seeds", type=count, default=20, help="train the seeds 0, 1, ... (default: 20 seeds)"
    )
    seeds.add_argument(
        "--seeds", type=seed_list, default=None, help="seeds to train, such as 0,3,7"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a finished output")
    hardware = add_device_options(parser)
    hardware.add_argument(
        "--grouping",
        choices=("processes", "batched"),
        default=None,
        help="seeds in parallel processes, or all as one model; the results are the same up to "
        "rounding (default: batched on cuda, else processes)",
    )
    add_jobs_option(hardware)
    given = sys.argv[1:] if argv is None else argv
    # name=value, the spelling of the published README
    args = parser.parse_args([re.sub(r"^(?=[a-z]\w*=)", "--", word) for word in given])
    args.seeds = args.seeds or list(range(args.num_seeds))
    return args


def main(argv=None) -> None:
    args = parse_args(argv)
    device = setup_device(args.device, args.threads)
    settings = Settings(**{field.name: getattr(args, field.name) for field in fields(Settings)})
    check_task(settings.task)
    check_precision(args.precision, device)
    name = default_name(settings) if args.exp_name is None else args.exp_name
    check_name(name, "--exp_name")
    path = histories_path(name)
    check_writable(path, Path("data"))
    described = {**asdict(settings), "seeds": args.seeds}
    with output(path, described, args.overwrite, replace_stale=False) as out:
        if out.is_current:
            print(f"{path} is up to date; use --overwrite to train again")
            print(format_table([success_row(name, load_histories(path))]))
            return
        started = time.perf_counter()
        grouping = args.grouping or ("batched" if device.type == "cuda" else "processes")
        print(f"{name}: {len(args.seeds)} seed(s), {settings.steps} updates each, {grouping}")
        if grouping == "batched":
            with tqdm(total=settings.steps, disable=not sys.stderr.isatty()) as progress:
                histories = train_stacked(
                    settings, args.seeds, device, progress.update, out.partial
                )
        else:
            jobs = min(args.jobs or default_jobs(device.type), len(args.seeds))
            histories = train_in_processes(
                settings, args.seeds, device, args.threads, jobs, out.partial
            )
        # The bytes are the same whether the histories come from other processes or from this one.
        histories = [add_steps(history, settings.save_every, MEASURES) for history in histories]

        row = success_row(name, histories)
        results = {
            **row,
            "seconds": time.perf_counter() - started,
            "peak_memory_mb": peak_memory_mb(),
            "device": device.type,
            "threads": args.threads,
            "grouping": grouping,
        }
        out.write(histories, results)
    print(format_table([row]))
    print(f"{path}: {len(histories)} seeds, {results['seconds']:.0f} s")


def train_in_processes(
    settings: Settings,
    seeds: list[int],
    device: torch.device,
    threads: int,
    jobs: int,
    parts: PartialResults,
) -> list[History]:
    """The histories of ``seeds``, each trained on its own, in ``jobs`` parallel processes."""
    tasks = [(settings, one, device.type, threads, parts) for one in seeds]
    progress = tqdm(total=len(seeds), unit="seed", disable=not sys.stderr.isatty())
    finished: dict[int, History] = {}
    with progress, closing(run_parallel(train_seed, tasks, jobs)) as trained:
        for index, history in trained:
            finished[index] = history
            progress.update()
    return [finished[index] for index in range(len(seeds))]


if __name__ == "__main__":
    run_script(main)

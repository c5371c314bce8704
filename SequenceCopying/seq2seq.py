"""Train models to copy sequences, over many seeds, and count how many learn it (method A.3).

    python seq2seq.py --no_rep
    python seq2seq.py --no_rep num_vocab=60
    python seq2seq.py --no_rep --num_vocab 60 --num_seeds 40 --jobs 4

Without repetition, 40 tokens of 40 are a permutation: each sequence is the same bag of words, so
that nothing tells which word says which until the attention is right, and the copying often fails.
40 of 60 is learned. An option that takes a value may also be written name=value.

Writes logs/{exp_name}.pkl, a list over seeds of lists of evaluations: dicts of loss, acc,
attn_acc (the most attended token is the one being copied), attn_acc_m1 and attn_acc_p1 (it is one
position after, before), and beta_acc (the token is right when all attention is put on the token
being copied: the knowledge that leads the attention). The first is made after the update of step
0, the others --save_every steps apart. A .json beside it says how it was made. Prints how many
seeds reach an accuracy of 0.95, with a 95% interval (Wilson). A finished output is not made again
without --overwrite. When it is stopped, the same command goes on where every seed was (from files
in logs/{exp_name}.parts/, which are removed in the end).
"""

import argparse
import sys
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import torch
from data import check_task
from histories import (
    check_same,
    default_name,
    histories_path,
    load_histories,
    success_row,
    write_output,
)
from models import MEASURES
from tqdm import tqdm
from training import History, Settings, check_precision, train_seed, train_stacked
from workers import add_jobs_option, default_jobs, side_by_side

from attention_dynamics.cli import count, run_script, script_parser, seed
from attention_dynamics.device import add_device_options, peak_memory_mb, setup_device
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.outputs import Parts
from attention_dynamics.runs.paths import check_name
from attention_dynamics.runs.records import locked
from attention_dynamics.storage.files import check_writable

MOST_SEEDS = 10**5  # more histories than a list in memory should hold


def seed_list(text: str) -> list[int]:
    """The type of ``--seeds``: seeds written as 0,3,7, each once."""
    seeds = [seed(part) for part in text.split(",")]
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"names a seed twice: {text}")
    return seeds


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="name=value",
        help="an option that takes a value, in this spelling",
    )
    task = parser.add_argument_group("task")
    task.add_argument(
        "--seq_length", type=count, default=40, help="tokens to copy (default: %(default)s)"
    )
    task.add_argument(
        "--num_vocab",
        type=count,
        default=40,
        help="tokens that a sequence is drawn from (default: %(default)s)",
    )
    task.add_argument("--no_rep", action="store_true", help="draw no token twice in a sequence")
    model = parser.add_argument_group("model")
    model.add_argument("--bi", action="store_true", help="encoder that reads in both directions")
    model.add_argument(
        "--hidden_dim",
        type=count,
        default=256,
        help="size of embeddings and states (default: %(default)s)",
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--bsize", type=count, default=128, help="sequences in a batch (default: %(default)s)"
    )
    training.add_argument(
        "--steps_s1", type=count, default=200, help="updates (default: %(default)s)"
    )
    training.add_argument(
        "--save_every",
        type=count,
        default=10,
        help="updates between evaluations; changes no weight (default: %(default)s)",
    )
    model.add_argument(
        "--invasive_uniform", action="store_true", help="freeze the attention uniform"
    )
    model.add_argument(
        "--no_context", action="store_true", help="replace the context by 0: a decoder on its own"
    )
    training.add_argument(
        "--early_stop",
        action="store_true",
        help="end a seed at its first evaluation with an accuracy of 0.95",
    )
    parser.add_argument(
        "--exp_name", default=None, help="of the output (default: made of the options)"
    )
    parser.add_argument(
        "--num_seeds",
        type=count,
        default=None,
        help="train seeds 0, 1, ... of this number (default: 20)",
    )
    parser.add_argument(
        "--seeds", type=seed_list, default=None, help="seeds, such as 0,3,7, instead"
    )
    parser.add_argument("--overwrite", action="store_true", help="make a finished output anew")
    hardware = add_device_options(parser)
    hardware.add_argument(
        "--grouping",
        choices=("processes", "batched"),
        default=None,
        help="seeds in side-by-side processes, or all as one model; the same numbers up to "
        "rounding (default: batched on cuda, else processes)",
    )
    add_jobs_option(hardware)
    training.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="of training; bf16 is automatic mixed precision, where the device has it "
        "(default: %(default)s)",
    )
    given = list(sys.argv[1:] if argv is None else argv)
    args = parser.parse_intermixed_args(given)
    if args.overrides:
        with_values = {
            action.dest
            for action in parser._actions
            if action.option_strings and action.nargs is None
        }
        for override in args.overrides:
            name, equals, value = override.partition("=")
            if not equals or name not in with_values:
                parser.error(
                    f"{override!r}: write name=value, with a name of "
                    f"{', '.join(sorted(with_values))}"
                )
            given += [f"--{name}", value]
        args = parser.parse_intermixed_args(given)
    if args.seeds and args.num_seeds is not None:
        parser.error("--seeds names the seeds, so --num_seeds has nothing to count")
    if args.num_seeds is not None and args.num_seeds > MOST_SEEDS:
        parser.error(f"--num_seeds must be at most {MOST_SEEDS}")
    args.seeds = args.seeds or list(range(args.num_seeds or 20))
    return args


def main(argv=None) -> None:
    args = parse_args(argv)
    device = setup_device(args.device, args.threads)
    settings = Settings(
        seq_length=args.seq_length,
        num_vocab=args.num_vocab,
        no_rep=args.no_rep,
        bi=args.bi,
        hidden_dim=args.hidden_dim,
        bsize=args.bsize,
        steps=args.steps_s1,
        save_every=args.save_every,
        invasive_uniform=args.invasive_uniform,
        no_context=args.no_context,
        early_stop=args.early_stop,
        precision=args.precision,
    )
    check_task(settings.task)
    check_precision(args.precision, device)
    name = default_name(settings) if args.exp_name is None else args.exp_name
    check_name(name, "--exp_name")
    path = histories_path(name)
    check_writable(path, Path("data"))
    described = {**asdict(settings), "seeds": args.seeds}
    with locked(path):
        parts = Parts(path)
        if args.overwrite:
            parts.remove()
        elif path.exists():
            check_same(path, described)
            parts.remove()
            print(f"{path} is up to date; --overwrite makes it anew")
            print(format_table([success_row(name, load_histories(path))]))
            return

        started = time.perf_counter()
        grouping = args.grouping or ("batched" if device.type == "cuda" else "processes")
        seeds, steps = len(args.seeds), settings.steps
        print(f"{name}: {seeds} seed(s), {steps} updates each, {grouping}", flush=True)
        if grouping == "batched":
            histories = train_batched(settings, args.seeds, device, parts)
        else:
            jobs = min(args.jobs or default_jobs(device.type), len(args.seeds))
            histories = train_in_processes(settings, args.seeds, device, args.threads, jobs, parts)
        # Made anew: what came from other processes would be pickled to other bytes.
        histories = [[{key: e[key] for key in MEASURES} for e in history] for history in histories]

        row = success_row(name, histories)
        results = {
            **row,
            "seconds": time.perf_counter() - started,
            "peak_memory_mb": peak_memory_mb(),
            "device": device.type,
            "threads": args.threads,
            "grouping": grouping,
        }
        write_output(path, histories, described, results)
        parts.remove()
    print(format_table([row]))
    print(f"{path}: {len(histories)} seeds, {results['seconds']:.0f} s")


def train_in_processes(
    settings: Settings,
    seeds: list[int],
    device: torch.device,
    threads: int,
    jobs: int,
    parts: Parts,
) -> list[History]:
    """The histories of ``seeds``, each trained by itself, ``jobs`` side by side."""
    tasks = [(settings, one, device.type, threads, parts) for one in seeds]
    found: dict[int, History] = {}
    with (
        tqdm(total=len(seeds), unit="seed", disable=not sys.stderr.isatty()) as progress,
        closing(side_by_side(train_seed, tasks, jobs)) as trained,
    ):
        for number, history in trained:
            found[number] = history
            progress.update()
    return [found[number] for number in range(len(seeds))]


def train_batched(
    settings: Settings, seeds: list[int], device: torch.device, parts: Parts
) -> list[History]:
    """The histories of ``seeds``, trained as one model."""
    with tqdm(total=settings.steps, unit="step", disable=not sys.stderr.isatty()) as progress:
        return train_stacked(settings, seeds, device, progress.update, parts)


if __name__ == "__main__":
    run_script(main)

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
    attn_acc_m1               the most attended token is the one after it (its position minus 1 is
                              right)
    attn_acc_p1               the most attended token is the one before it (plus 1 is right)
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
from dataclasses import asdict, fields
from pathlib import Path

from data import check_task
from histories import (
    default_name,
    histories_path,
    load_histories,
    success_row,
)
from models import MEASURES
from training import Settings, add_steps, check_precision, train_seed, train_stacked
from workers import add_jobs_option, default_jobs, run_all

from attention_dynamics.cli import count, run_script, script_parser, seed
from attention_dynamics.device import add_device_options, peak_memory_mb, setup_device
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.outputs import output
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
    for name, field, meaning in (
        ("seq_length", "seq_length", "number of tokens to copy"),
        ("num_vocab", "num_vocab", "number of tokens to draw from"),
        ("hidden_dim", "hidden_dim", "size of embeddings and states"),
        ("bsize", "bsize", "sequences in a batch"),
        ("steps_s1", "steps", "number of updates"),
        ("save_every", "save_every", "updates between evaluations (no effect on the training)"),
    ):
        text, default = f"{meaning} (default: %(default)s)", getattr(defaults, field)
        parser.add_argument(f"--{name}", dest=field, type=count, default=default, help=text)
    for name, meaning in (
        ("no_rep", "draw distinct tokens in a sequence"),
        ("bi", "bidirectional encoder"),
        ("invasive_uniform", "uniform attention, in training and in evaluation"),
        ("no_context", "context replaced by 0: the decoder runs on its own"),
        ("early_stop", "end each seed at its first evaluation with an accuracy of 0.95"),
        ("overwrite", "replace a finished output"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=meaning)
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default=defaults.precision,
        help="precision of training; bf16 is automatic mixed precision (default: %(default)s)",
    )
    parser.add_argument("--exp_name", help="name of the output (default: built from the options)")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument(
        "--num_seeds", type=count, default=20, help="train the seeds 0, 1, ... (default: 20 seeds)"
    )
    seeds.add_argument("--seeds", type=seed_list, help="seeds to train, such as 0,3,7")
    hardware = add_device_options(parser)
    hardware.add_argument(
        "--grouping",
        choices=("processes", "batched"),
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
            histories = train_stacked(
                settings, args.seeds, device, out.partial, sys.stderr.isatty()
            )
        else:
            jobs = min(args.jobs or default_jobs(device.type), len(args.seeds))
            tasks = [(settings, one, device.type, args.threads, out.partial) for one in args.seeds]
            histories = run_all(train_seed, tasks, jobs, "seed")
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
    print(f"{path}: {len(histories)} seed(s), {results['seconds']:.0f} s")


if __name__ == "__main__":
    run_script(main)

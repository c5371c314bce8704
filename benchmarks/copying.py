"""Speed of the sequence-copying experiment beside a plain reference of the same method.

    python benchmarks/copying.py
    python benchmarks/copying.py --seeds 4 --steps 20
    python benchmarks/copying.py --device cuda

Trains the same seeds on 40 tokens of 40 without repetition. The plain reference trains one seed
after another on one thread of the CPU. Our code trains them as seq2seq.py does by default: in
parallel processes of one thread on the CPU, as one batched model on CUDA. The first evaluations of
both must agree. Sections:

    fp32      single precision
    bf16      our code with --precision bf16, where the device supports it

Prints a table per section and adds it, with facts about the machine, to benchmarks/results/. At
the default size, 20 seeds x 200 steps, the reference alone takes about an hour on one CPU core.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from measure import compared, keep_results, machine_facts, parse_sections, section_parser
from reference import copying as reference

from attention_dynamics.cli import InputError, add_options, count, run_script
from attention_dynamics.reporting.tables import format_table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "SequenceCopying"))  # its processes import it by name, too

from training import Settings, check_precision, train_seed, train_stacked  # noqa: E402
from workers import add_jobs_option, default_jobs, run_parallel  # noqa: E402


def parse_args(argv=None) -> argparse.Namespace:
    parser = section_parser(__doc__, ("fp32", "bf16"), rounds=False)
    add_options(
        parser, seeds=(count, 20, "number of seeds"), steps=(count, 200, "number of updates")
    )
    add_jobs_option(parser)
    args = parse_sections(parser, "copying", argv)
    args.jobs = args.jobs or default_jobs(args.device.type)
    return args


def train_ours(settings: Settings, args: argparse.Namespace) -> list:
    """Our histories."""
    if args.device.type == "cuda":
        return train_stacked(settings, [*range(args.seeds)], args.device)
    tasks = [(settings, seed, args.device.type, 1) for seed in range(args.seeds)]
    return list(run_parallel(train_seed, tasks, args.jobs))


def main(argv=None) -> None:
    args = parse_args(argv)
    sizes = {"seq_length": 5, "num_vocab": 5, "hidden_dim": 8, "bsize": 4} if args.quick else {}
    settings = {"no_rep": True, "steps": args.steps, **sizes}
    sizes = Settings(**settings)
    sizes = sizes.seq_length, sizes.num_vocab, True, sizes.hidden_dim, sizes.bsize, sizes.steps
    start = time.perf_counter()
    plain = [reference.train(seed, *sizes) for seed in range(args.seeds)]
    plain_seconds = time.perf_counter() - start
    facts = {"jobs": args.jobs, "device": args.device.type, "quick": args.quick}
    for precision in args.only:
        try:
            check_precision(precision, args.device)
        except InputError as error:
            print(f"\n{precision} is left out: {error}")
            continue
        ours = Settings(**settings, precision=precision)
        start = time.perf_counter()
        histories = train_ours(ours, args)
        seconds = plain_seconds, time.perf_counter() - start
        if precision == "fp32":
            first = [[history[0]["loss"] for history in side] for side in (plain, histories)]
            np.testing.assert_allclose(*first, rtol=1e-5)
        name, what = f"{sizes[0]} of {sizes[1]}", f"{args.seeds} seeds x {args.steps} steps"
        rows = [compared(name, what, "s", *seconds)]
        if args.out is not None:
            keep_results(args.out, {precision: {**machine_facts(1), **facts, "rows": rows}})
        print(f"\n{precision}\n{format_table(rows)}", flush=True)


if __name__ == "__main__":
    run_script(main)

"""Measuring for the benchmarks: interleaved timings, medians, peak memory, machine facts."""

import argparse
import functools
import gc
import importlib
import multiprocessing
import os
import platform
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attention_dynamics.cli import add_options, count, script_parser
from attention_dynamics.device import setup_device
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.storage.files import read_json, write_json

HERE = Path(__file__).resolve().parent


@functools.cache
def modules_of(folder: str, *names: str) -> SimpleNamespace:
    """Modules of an experiment's folder (all without names), which import each other by bare name.

    They are taken out of ``sys.modules`` again: the other experiments have modules of these names.
    """
    path = HERE.parent / folder
    all_names = sorted(file.stem for file in path.glob("*.py"))
    others = {name: sys.modules.pop(name) for name in all_names if name in sys.modules}
    sys.path.insert(0, str(path))
    try:
        wanted = names or all_names
        return SimpleNamespace(**{name: importlib.import_module(name) for name in wanted})
    finally:
        sys.path.remove(str(path))
        for name in all_names:
            sys.modules.pop(name, None)
        sys.modules.update(others)


def section_parser(
    description: str, sections: Iterable[str], rounds: bool = True
) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark; :func:`parse_sections` reads them.

    The benchmark has these ``sections``; without ``rounds`` it times once, on its own threads.
    """
    parser = script_parser(description)
    add, names = parser.add_argument, list(sections)
    add("--only", nargs="+", choices=names, default=names, help="sections (default: all)")
    if rounds:
        add_options(
            parser, rounds=(count, 5, "number of timings"), threads=(count, 1, "CPU threads")
        )
    add(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="device; the plain reference stays on the CPU (default: %(default)s)",
    )
    add(
        "--quick",
        action="store_true",
        help="tiny models and texts: tests the benchmark, its numbers mean nothing",
    )
    add(
        "--out",
        type=Path,
        help="results file, in which other sections are kept (default: "
        "benchmarks/results/{benchmark}.json, on cuda {benchmark}_cuda.json; none with --quick)",
    )
    return parser


def parse_sections(parser: argparse.ArgumentParser, name: str, argv=None) -> argparse.Namespace:
    """The options of the benchmark ``name``; raises InputError if the device does not exist."""
    args = parser.parse_args(argv)
    args.device = setup_device(args.device)
    if args.out is None and not args.quick:
        suffix = "" if args.device.type == "cpu" else f"_{args.device.type}"
        args.out = HERE / "results" / f"{name}{suffix}.json"
    return args


def time_interleaved(functions: list[Callable], rounds: int) -> list[float]:
    """Median seconds of each function, run in turn ``rounds`` times.

    Interleaving spreads other load of the machine over all. The first run of each is not timed.
    """
    seconds = [[] for _ in functions]
    for number in range(rounds + 1):
        for function, times in zip(functions, seconds, strict=True):
            gc.collect()
            start = time.perf_counter()
            function()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if number:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in seconds]


def matmul_floor(function: Callable, device: torch.device) -> float | None:
    """Seconds that the matrix products of ``function()`` alone take on this CPU, else None.

    Computed from the rate of the best of ten products of 1,024 x 1,024 matrices, measured now.
    """
    if device.type != "cpu":
        return None
    in_place = {torch.ops.aten.addmm_: lambda _, left, right, **_more: 2 * right[1] * prod(left)}
    with (
        sdpa_kernel(SDPBackend.MATH),  # the products of a fused kernel are not counted
        FlopCounterMode(display=False, custom_mapping=in_place) as counter,
    ):
        function()
    left, right = torch.rand(1024, 1024), torch.rand(1024, 1024)
    seconds = min(timeit.repeat(lambda: left @ right, number=1, repeat=10))
    return counter.get_total_flops() * seconds / (2 * 1024**3)


def in_process(function: Callable, *args):
    """What ``function(*args)`` returns in a fresh process; the function is one of a module."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def compared(
    workload: str,
    what: str,
    unit: str,
    reference: float | None,
    ours: float,
    floor: float | None = None,
) -> dict:
    """A row of the result table: both sides and their ratio; a measure of ours may stand alone.

    With a ``floor``, the time of our matrix products, the row has the ratio without all the rest.
    """
    ratio = None if reference is None else reference / ours
    sides = {"reference": reference, "ours": ours, "ratio": ratio}
    limit = {} if floor is None else {"floor": floor, "at most": reference / floor}
    return {"workload": workload, "what": what, "unit": unit, **sides, **limit}


def machine_facts(threads: int) -> dict:
    """Processor, cores, versions, threads: what a measured time belongs to."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.processor() or platform.machine()),
        "cores": os.cpu_count(),
        "threads": threads,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def keep_results(path: Path, results: dict) -> None:
    """Put ``results``, dicts in dicts, into those at ``path``; what they do not name is kept."""
    there = read_json(path, "benchmark results") if path.exists() else {}
    write_json(path, _merged(there, results))


def _merged(old: object, new: object) -> object:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


def run_sections(args, sections: dict[str, Callable]) -> None:
    """Run the sections ``args.only``, print their tables and keep them in ``args.out``, if any.

    Args:
        args: options of a benchmark: only, threads, rounds, quick, out.
        sections: name -> a function of ``args`` that returns the rows of its table. Each has a
            process of its own (but with ``quick``): how fast a process gets memory depends on what
            it has done before.
    """
    facts = {**machine_facts(args.threads), "rounds": args.rounds, "quick": args.quick}
    if args.device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    for section in args.only:
        run = functools.partial(_run_section, sections[section], args)
        rows = run() if args.quick else in_process(run)
        if args.out is not None:
            keep_results(args.out, {section: {**facts, "rows": rows}})
        print(f"\n{section}\n{format_table(rows)}", flush=True)


def _run_section(function: Callable, args) -> list[dict]:
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    return function(args)

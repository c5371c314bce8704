"""Times of finished work: medians over the records that the scripts write.

    python results/times.py
    python results/times.py --folders classification translation

Reads, in the folders of the experiments, the run.json of finished training runs, the .json next to
dumps, baselines and histories, and the all_results.json of PAPA. Prints a table and writes
results/times.json, {experiment: {script: {what: numbers}}}, where "what" is a dataset, the name of
histories, or the model and task of PAPA; other entries of the file are unchanged. Run it on the
machine of the runs, whose facts are stored as "machine". Numbers:

    runs               how many records the medians are over
    training_seconds   of all updates (PAPA: and of the evaluations between them)
    seconds_per_step   of one update (PAPA: training_seconds by the number of updates)
    seconds            of a whole script; if it was interrupted, of its last process only
    peak_memory_mb     the most memory (resident set)

Runs with different lengths or settings under one name are not distinguished.
"""

import argparse
import shlex
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from measure import keep_results, machine_facts

from attention_dynamics.cli import InputError, add_options, run_script, script_parser
from attention_dynamics.reporting.results import EXPERIMENTS, RECORDS
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.storage.files import check_writable, read_json

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = ("training_seconds", "seconds_per_step", "seconds", "peak_memory_mb")


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    named = "folders of experiments, with their names in this repository (default: all four)"
    here = [ROOT / name for name in EXPERIMENTS]
    parser.add_argument("--folders", nargs="+", type=Path, default=here, help=named)
    add_options(parser, out=(Path, ROOT / "results/times.json", "results file"))
    args = parser.parse_args(argv)
    for folder in args.folders:
        if folder.resolve().name not in EXPERIMENTS:
            parser.error(f"{folder} is none of {', '.join(EXPERIMENTS)}")
    check_writable(args.out)
    return args


def finished_work(folder: Path) -> Iterator[tuple[str, str, dict[str, float]]]:
    """The script, its dataset or name, and {name of NUMBERS: number} of each finished record."""
    for path in (path for pattern in RECORDS for path in sorted(folder.glob(pattern))):
        try:
            script, what, numbers = times_of(path)
        except (AttributeError, KeyError, TypeError, IndexError, ValueError):
            raise InputError(
                f"{path} is not a record of finished work; run the step again"
            ) from None
        if numbers:
            yield script, what, numbers


def times_of(path: Path) -> tuple[str, str, dict[str, float]]:
    """The times in a record; no numbers if the run is unfinished."""
    record = read_json(path, "record")
    script = shlex.split(record["command"])[0]
    if path.name == "run.json" and "outputs" in path.parts:  # a run of PAPA
        results = read_json(path.with_name("all_results.json"), "results")
        seconds, speed = float(results["train_runtime"]), results["train_steps_per_second"]
        numbers = {"training_seconds": seconds, "seconds_per_step": 1 / speed}
        if path.parent.name == "sorted":
            return f"{script} --sort_calculating", path.parts[-3], numbers
        return script, path.parts[-4], numbers
    results = record.get("results", {})
    numbers = {name: float(results[name]) for name in NUMBERS if name in results}
    return script, record["settings"].get("dataset", path.stem), numbers


def main(argv=None) -> None:
    args = parse_args(argv)
    groups: dict[tuple[str, str, str], list[dict]] = {}
    for folder in args.folders:
        for script, what, numbers in finished_work(folder):
            groups.setdefault((folder.resolve().name, script, what), []).append(numbers)
    if not groups:
        folders = ", ".join(map(str, args.folders))
        raise InputError(f"no record of finished work in {folders}: run an experiment first")
    times: dict[str, dict] = {"machine": machine_facts(1)}
    del times["machine"]["threads"]  # each run has its own
    rows = []
    for (experiment, script, what), group in groups.items():
        known = [name for name in NUMBERS if all(name in numbers for numbers in group)]
        medians = {name: statistics.median(numbers[name] for numbers in group) for name in known}
        medians = {"runs": len(group), **medians}
        times.setdefault(experiment, {}).setdefault(script, {})[what] = medians
        cells = {name: medians.get(name) for name in ("runs", *NUMBERS)}
        rows.append({"experiment": experiment, "script": script, "of": what, **cells})
    keep_results(args.out, times)
    print(format_table(rows))


if __name__ == "__main__":
    run_script(main)

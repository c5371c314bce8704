"""How long the work took that has been done: medians over the records that the scripts leave.

    python results/times.py
    python results/times.py --folders classification translation

Reads, in the folders of the experiments, the run.json of finished training runs, the .json next to
dumps, baselines and histories, and the all_results.json of PAPA. Prints a table and writes
results/times.json, {experiment: {script: {what: numbers}}}, where "what" is a dataset,
the name of histories, or the model and task of PAPA; other entries of the file are kept. Run it on
the machine that did the work, whose facts are stored as "machine". Numbers:

    runs               how many records the medians are over
    training_seconds   of all updates (PAPA: and of the evaluations between them)
    seconds_per_step   of one update (PAPA: training_seconds by the number of updates)
    seconds            of a whole script; if it was stopped and went on, of its last process alone
    peak_memory_mb     the most memory (resident set)

Runs of other lengths or settings under one name are not told apart.
"""

import argparse
import shlex
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from measure import keep_results, machine_facts

from attention_dynamics.cli import InputError, run_script, script_parser
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.storage.files import check_writable, read_json

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = ("classification", "translation", "SequenceCopying", "papa")
NUMBERS = ("training_seconds", "seconds_per_step", "seconds", "peak_memory_mb")

RECORDS = ("models/*/*/run.json", "outputs/*.json", "logs/*.json", "re_*headcomb.json")
PAPA_RUNS = ("outputs/*/sorted/run.json", "outputs/*/results/*/run.json")


class Times(NamedTuple):
    """What a record says: the script, what it was done for, and {name of NUMBERS: number}."""

    script: str
    what: str
    numbers: dict[str, float]


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--folders",
        nargs="+",
        type=Path,
        default=[ROOT / name for name in EXPERIMENTS],
        help="folders of experiments, with their names in this repository (default: all four)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).with_name("times.json"),
        help="results file (default: results/times.json)",
    )
    args = parser.parse_args(argv)
    if strange := [folder for folder in args.folders if folder.resolve().name not in EXPERIMENTS]:
        parser.error(f"{strange[0]} is none of {', '.join(EXPERIMENTS)}")
    check_writable(args.out)
    return args


def finished_work(folder: Path) -> Iterator[Times]:
    """The times in all records of an experiment's folder; InputError when one is no record."""
    for patterns, read in ((RECORDS, times_of_record), (PAPA_RUNS, times_of_papa_run)):
        for pattern in patterns:
            for path in sorted(folder.glob(pattern)):
                try:
                    times = read(path)
                except (AttributeError, KeyError, TypeError, IndexError, ValueError):
                    raise InputError(
                        f"{path} is not a record of finished work; run the step again"
                    ) from None
                if times.numbers:
                    yield times


def times_of_record(path: Path) -> Times:
    """The times in the record of a training run or of an output; no numbers if it is unfinished."""
    record = read_json(path, "record")
    results = record.get("results", {})
    numbers = {name: float(results[name]) for name in NUMBERS if name in results}
    return Times(script_of(record), record["settings"].get("dataset", path.stem), numbers)


def times_of_papa_run(path: Path) -> Times:
    """The times of a run of PAPA; ``path`` is that of its record, outputs/{what}/.../run.json."""
    results = read_json(path.with_name("all_results.json"), "results")
    numbers = {
        "training_seconds": float(results["train_runtime"]),
        "seconds_per_step": 1 / results["train_steps_per_second"],
    }
    of_order = path.parent.name == "sorted"
    script = script_of(read_json(path, "record")) + " --sort_calculating" * of_order
    what = path.parent if of_order else path.parent.parent
    return Times(script, what.parent.name, numbers)


def script_of(record: dict) -> str:
    """The name of the script that a record's command calls."""
    return shlex.split(record["command"])[0]


def medians(folder: Path) -> dict:
    """{script: {what: {"runs": records, name of NUMBERS: median}}} of an experiment's folder."""
    found: dict[tuple[str, str], list[dict]] = {}
    for script, what, numbers in finished_work(folder):
        found.setdefault((script, what), []).append(numbers)
    result: dict[str, dict] = {}
    for (script, what), of_runs in found.items():
        result.setdefault(script, {})[what] = {
            "runs": len(of_runs),
            **{
                name: statistics.median(numbers[name] for numbers in of_runs)
                for name in NUMBERS
                if all(name in numbers for numbers in of_runs)
            },
        }
    return result


def main(argv=None) -> None:
    args = parse_args(argv)
    times = {folder.resolve().name: medians(folder) for folder in args.folders}
    rows = [
        {
            "experiment": experiment, "script": script, "of": what,
            **{name: numbers.get(name) for name in ("runs", *NUMBERS)},
        }
        for experiment, scripts in times.items()
        for script, by_what in scripts.items()
        for what, numbers in by_what.items()
    ]  # fmt: skip
    if not rows:
        folders = ", ".join(map(str, args.folders))
        raise InputError(f"no record of finished work in {folders}: run an experiment first")
    facts = machine_facts(1)
    del facts["threads"]  # each run has its own
    keep_results(args.out, {"machine": facts, **{key: of for key, of in times.items() if of}})
    print(format_table(rows))


if __name__ == "__main__":
    run_script(main)

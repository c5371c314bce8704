"""Collect the scores of one or more models and tasks by number of constant heads.

    python collect_papa_stats.py --folders outputs/minilm_cola outputs/minilm_rte \\
        --out_file results/papa.json

Each directory is the output of papa_runs.sh for one model and one task; its runs are the
directories below {folder}/results/ with a run.json, eval_results.json and trainer_state.json.
Writes a JSON file {folder name: {"model", "task", "metric", ..., "rows": [...], "scores": ...}} and
prints it as tables: the score, mean ± standard deviation over seeds, and its relative drop against
the mean score without constant heads (positive: worse). "last" is the evaluation after the last
epoch, which the published scripts write to eval_results.json; "best" is the best epoch, chosen on
the examples it is reported on. The mean of the drops over the tasks of a model is printed where all
of its tasks have one.

The score is Matthews' correlation for cola, F1 for mrpc, qqp, ner and chunk, Pearson's correlation
for stsb, accuracy for all others; --metric names another. Lower is better for loss and mse.
"""

import argparse
import statistics
import sys
from pathlib import Path

from scores import EPOCHS, Experiment, load_experiments, relative_drop, score_rows

from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.reporting.tables import FORMATS, format_table, titled
from attention_dynamics.storage.files import check_writable, write_json


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--folders",
        required=True,
        nargs="+",
        help="directories of one model and task each, with results/",
    )
    parser.add_argument("--out_file", required=True, help="JSON file of the results")
    parser.add_argument(
        "--metric", help="score to read, such as accuracy (default: the score of each task)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="format of the printed tables (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    for folder in args.folders:
        check_writable(args.out_file, beside=Path(folder))
    return args


def mean_rows(experiments: list[Experiment]) -> list[dict]:
    """The mean of the drops over the tasks of a model, where all of its tasks have one."""
    by_model: dict[tuple[str, int], list[Experiment]] = {}
    for experiment in experiments:
        by_model.setdefault((experiment.model, experiment.num_heads), []).append(experiment)
    rows = []
    for (model, num_heads), group in by_model.items():
        if len(group) == 1:
            continue
        for heads in sorted(set.intersection(*(set(one.heads) for one in group))):
            for epoch in EPOCHS:
                drops = [relative_drop(one, epoch, heads) for one in group]
                if None not in drops:
                    rows.append(
                        {
                            "model": model,
                            "heads": heads,
                            "share": heads / num_heads,
                            "tasks": len(group),
                            "epoch": epoch,
                            "drop": statistics.fmean(drop for drop, _ in drops),
                        }
                    )
    return rows


def result_tables(experiments: list[Experiment], fmt: str) -> str:
    """All results as one text in ``fmt``; csv and json give one long table."""
    if fmt in ("csv", "json"):
        return format_table(long_records(experiments), fmt)
    blocks = []
    for experiment in experiments:
        title = (
            f"{experiment.name}: {experiment.metric} of {experiment.model} on {experiment.task}, "
            f"{experiment.max_seq_length} positions"
        )
        rows = _beside(score_rows(experiment), ("heads", "share", "seeds"), ("score", "drop"))
        blocks.append(titled(title, rows, fmt))
    if means := mean_rows(experiments):
        rows = _beside(means, ("model", "heads", "share", "tasks"), ("drop",))
        blocks.append(titled("mean relative drop over tasks", rows, fmt))
    return "\n\n".join(blocks)


def _beside(rows: list[dict], keys: tuple[str, ...], numbers: tuple[str, ...]) -> list[dict]:
    """The rows of the two epochs, which follow each other, as one row to read."""
    shown: dict[tuple, dict] = {}
    for row in rows:
        cells = shown.setdefault(
            tuple(row[key] for key in keys),
            {key: f"{row[key]:.0%}" if key == "share" else row[key] for key in keys},
        )
        for name in numbers:
            cells[f"{name}, {row['epoch']} epoch"] = _shown(name, row)
    return [*shown.values()]


def _shown(name: str, row: dict) -> str | None:
    mean, std = row[name], row.get(f"{name}_std")
    if mean is None:
        return None
    if name == "drop":
        return f"{100 * mean:.1f}%" if std is None else f"{100 * mean:.1f} ± {100 * std:.1f}%"
    return f"{mean:.3f}" if std is None else f"{mean:.3f} ± {std:.3f}"


def long_records(experiments: list[Experiment]) -> list[dict]:
    """A record per number: folder, model, task, statistic, epoch, heads, share, value, std, of."""
    records = []

    def add(row: dict, name: str, of: int, **described) -> None:
        if row[name] is not None:
            records.append(
                {
                    **described,
                    "statistic": name,
                    "epoch": row["epoch"],
                    "heads": row["heads"],
                    "share": row["share"],
                    "value": row[name],
                    "std": row.get(f"{name}_std"),
                    "of": of,
                }
            )

    for one in experiments:
        described = {"folder": one.name, "model": one.model, "task": one.task, "metric": one.metric}
        for row in score_rows(one):
            add(row, "score", row["seeds"], **described)
            add(row, "drop", row["seeds"], **described)
    for row in mean_rows(experiments):
        add(row, "drop", row["tasks"], folder=None, model=row["model"], task="mean", metric=None)
    return records


def main(argv=None) -> None:
    args = parse_args(argv)
    experiments = load_experiments(args.folders, args.metric)
    for experiment in experiments:
        if 0 not in experiment.heads:
            print(
                f"note: {experiment.name} has no run with 0 constant heads: no relative drop",
                file=sys.stderr,
            )
    results = {experiment.name: experiment.results() for experiment in experiments}
    write_json(args.out_file, results)
    print(result_tables(experiments, args.format))
    print(f"results written to {args.out_file}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)

"""Collect the scores of one or more models and tasks by number of constant heads.

    python collect_papa_stats.py --folders outputs/minilm_cola outputs/minilm_rte \\
        --out_file results/papa.json

Each directory is the output of papa_runs.sh for one model and one task; its runs are the
directories below {folder}/results/ with a run.json, eval_results.json and trainer_state.json.
Writes a JSON file {folder name: {"model", "task", "metric", ..., "rows": [...], "scores": ...}} and
prints it as tables: the score, mean ± standard deviation over seeds, and its relative drop against
the mean score without constant heads (positive: worse). "last" is the evaluation after the last
epoch, which the published scripts write to eval_results.json; "best" is the best epoch, chosen on
the examples it is reported on. The drops of a model are averaged over its tasks at every number of
constant heads at which all of its tasks have one.

The score is Matthews' correlation for cola, F1 for mrpc, qqp, ner and chunk, Pearson's correlation
for stsb, accuracy for all others; --metric names another. Lower is better for loss and mse.
"""

import argparse
import sys
from pathlib import Path

from scores import load_experiments, score_rows

from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.reporting.sections import mean_drops, papa_tables
from attention_dynamics.reporting.tables import FORMATS, format_table, titled
from attention_dynamics.storage.files import check_writable, write_json


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--folders", required=True, nargs="+", help="directories of one model and task each")
    add("--out_file", required=True, help="JSON file of the results")
    add("--metric", help="score to read, such as accuracy (default: the score of each task)")
    tables = "format of the printed tables (default: text)"
    add("--format", choices=FORMATS, default="text", help=tables)
    args = parser.parse_args(argv)
    for folder in args.folders:
        check_writable(args.out_file, beside=Path(folder))
    return args


def result_tables(results: dict, fmt: str) -> str:
    """All results as one text in ``fmt``; csv and json give one long table."""
    if fmt in ("csv", "json"):
        return format_table(long_records(results), fmt)
    return "\n\n".join(titled(table.title, table.rows, fmt) for table in papa_tables(results))


def long_records(results: dict) -> list[dict]:
    """A record per number: folder, model, task, statistic, epoch, heads, share, value, std, of."""
    rows = [
        ({"folder": folder, **{key: one[key] for key in ("model", "task", "metric")}}, name, row)
        for folder, one in results.items()
        for row in one["rows"]
        for name in ("score", "drop")
        if row[name] is not None
    ]
    for row in mean_drops(results):
        mean = {"folder": None, "model": row["model"], "task": "mean", "metric": None}
        rows.append((mean, "drop", {**row, "seeds": row["tasks"]}))
    return [
        {
            **described, "statistic": name, "epoch": row["epoch"], "heads": row["heads"],
            "share": row["share"], "value": row[name], "std": row.get(f"{name}_std"),
            "of": row["seeds"],
        }
        for described, name, row in rows
    ]  # fmt: skip


def main(argv=None) -> None:
    args = parse_args(argv)
    experiments = load_experiments(args.folders, args.metric)
    results = {}
    for one in experiments:
        if 0 not in one.scores["last"]:
            note = f"note: {one.name} has no run with 0 constant heads: no relative drop"
            print(note, file=sys.stderr)
        content = vars(one) | {"rows": score_rows(one)}
        results[content.pop("name")] = content
    write_json(args.out_file, results)
    print(result_tables(results, args.format))
    print(f"results written to {args.out_file}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)

"""Collect the paper's statistics from the logs and baselines of one or more data sets (method A.1).

    python collect_classification_stats.py --datasets Furd SMS --out_file results/stats.pkl \\
        --include_kendall_tau --include_train_results

Reads outputs/{dataset}_logs.pkl (our format or the published layout) and the two baselines. Writes
a pickle {(dataset, metric, split, accuracy): {"agr_unif": ..., "xi_unif": ..., "baseline": ...,
...}}, with the published keys and more (see
attention_dynamics/analysis/statistics.py), and prints it as
tables. Brackets are 95% bootstrap intervals over examples; ± is the standard deviation over the
normal runs; a dash stands for a level that the attention never exceeded.
"""

import argparse
import sys
from pathlib import Path

from data import canonical_name
from measured import ACCURACIES, load_inputs, summarise_measured
from planted import planted_rows
from tqdm import tqdm

from attention_dynamics.cli import count, run_script, script_parser, seed
from attention_dynamics.names import METRICS
from attention_dynamics.reporting.tables import FORMATS, result_tables, titled
from attention_dynamics.storage.files import check_writable, write_pickle


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--datasets", required=True, nargs="+", help="names, such as Furd SMS")
    parser.add_argument("--out_file", required=True, help="pickle to write the results to")
    parser.add_argument(
        "--include_kendall_tau", action="store_true", help="Kendall's tau beside the top 5%% match"
    )
    parser.add_argument(
        "--include_train_results",
        action="store_true",
        help="training examples beside test examples",
    )
    parser.add_argument(
        "--embed_dim",
        type=count,
        default=256,
        help="of the embedding baseline to read (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=seed, default=0, help="of shuffles and bootstrap (default: %(default)s)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="of the printed tables (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    check_writable(args.out_file, beside=Path("outputs"))
    return args


def main(argv=None) -> None:
    args = parse_args(argv)
    datasets = list(dict.fromkeys(canonical_name(dataset) for dataset in args.datasets))
    metrics = METRICS if args.include_kendall_tau else METRICS[:1]
    splits = ["val", "train"] if args.include_train_results else ["val"]

    results, planted = {}, []
    todo = [
        (dataset, metric, split) for dataset in datasets for metric in metrics for split in splits
    ]
    progress = tqdm(todo, unit="table", disable=not sys.stderr.isatty())
    measured = None
    for dataset, metric, split in progress:
        if measured is None or measured.logs.dataset != dataset:
            measured = load_inputs(dataset, args.embed_dim)
            for line in measured.missing:
                progress.write(f"note: {line}", file=sys.stderr)
            planted += planted_rows(dataset, measured.logs)
        results[dataset, metric, split, ACCURACIES[split]] = summarise_measured(
            measured, metric, split, args.seed
        )
    write_pickle(args.out_file, results)
    print(result_tables(results, "accuracy", args.format))
    if planted and args.format not in ("csv", "json"):
        title = "planted words in the top 5% (share of sentences with any)"
        print("\n" + titled(title, planted, args.format))
    print(f"results written to {args.out_file}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)

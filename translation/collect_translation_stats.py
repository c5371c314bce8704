"""Collect the paper's statistics from the logs and baselines of one or more data sets (method A.2).

    python collect_translation_stats.py --datasets multi30k --out_file results/stats.pkl \\
        --include_kendall_tau --include_train_results --include_bleu_results

Reads outputs/{dataset}_logs.pkl (our format or the published layout) and the two baselines. Writes
a pickle {(dataset, metric, split, performance): {"agr_unif": ..., "xi_unif": ..., "baseline": ...,
...}}, with the published keys and more (see
attention_dynamics/analysis/statistics.py), and prints it as
tables. Brackets are 95% bootstrap intervals over sentence pairs; accuracy and BLEU are in percent;
a dash stands for a level that the attention never exceeded.
"""

import argparse
import sys
from pathlib import Path

from alignment import alignment_rows, truth_path
from data import layout_of, load_pieces
from measured import SPLITS, load_inputs, performance, summarise_measured
from tqdm import tqdm

from attention_dynamics.cli import count, run_script, script_parser, seed
from attention_dynamics.names import METRICS, PERFORMANCES
from attention_dynamics.reporting.tables import FORMATS, result_tables, titled
from attention_dynamics.runs.outputs import read_output_record
from attention_dynamics.runs.paths import logs_path
from attention_dynamics.storage.files import check_writable, write_pickle


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--datasets", required=True, nargs="+", help="names, such as multi30k")
    parser.add_argument("--out_file", required=True, help="pickle to write the results to")
    parser.add_argument(
        "--include_kendall_tau", action="store_true", help="Kendall's tau beside the top 5%% match"
    )
    parser.add_argument(
        "--include_train_results",
        action="store_true",
        help="training pairs beside validation pairs",
    )
    parser.add_argument(
        "--include_bleu_results",
        action="store_true",
        help="gold iteration and ξ by BLEU beside token accuracy (after eval_dump.py --eval_bleu)",
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
    datasets = list(dict.fromkeys(args.datasets))
    metrics = METRICS if args.include_kendall_tau else METRICS[:1]
    splits = SPLITS if args.include_train_results else SPLITS[:1]
    kinds = [*PERFORMANCES["translation"]] if args.include_bleu_results else ["acc"]

    results, signatures, aligned = {}, {}, []
    todo = [
        (dataset, kind, metric, split)
        for dataset in datasets
        for kind in kinds
        for metric in metrics
        for split in splits
    ]
    progress = tqdm(todo, unit="table", disable=not sys.stderr.isatty())
    measured = None
    for dataset, kind, metric, split in progress:
        if measured is None or measured.logs.dataset != dataset:
            measured = load_inputs(dataset, args.embed_dim)
            for line in measured.missing:
                progress.write(f"note: {line}", file=sys.stderr)
            outcome = read_output_record(logs_path(dataset)).get("results")
            if isinstance(outcome, dict):
                signatures[dataset] = outcome.get("bleu_signature")
            if truth_path(dataset).exists():
                pieces = load_pieces(layout_of(dataset).pieces)
                aligned += alignment_rows(dataset, measured.logs, pieces)
        results[dataset, metric, split, performance(split, kind)] = summarise_measured(
            measured, metric, split, kind, args.seed
        )
    write_pickle(args.out_file, results)
    if args.format in ("csv", "json"):
        print(result_tables(results, "performance", args.format))
    else:
        for kind in kinds:
            some = {key: found for key, found in results.items() if key[3].endswith(kind)}
            print(result_tables(some, PERFORMANCES["translation"][kind].label, args.format) + "\n")
        if aligned:
            title = "alignment error rate against the true links (lower is better)"
            print(titled(title, aligned, args.format) + "\n")
        for dataset, signature in signatures.items():
            if "bleu" in kinds and signature:
                print(f"BLEU of {dataset}: sacrebleu {signature}")
    print(f"results written to {args.out_file}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)

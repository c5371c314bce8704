"""Collect the paper's statistics of one or more datasets (docs/method.md, section 1.3).

    python collect_translation_stats.py --datasets multi30k --out_file results/stats.pkl \\
        --include_kendall_tau --include_train_results --include_bleu_results

Reads outputs/{dataset}_logs.pkl (our format or the published layout) and the two baselines. Writes
a pickle {(dataset, metric, split, performance): {"agr_unif": ..., "xi_unif": ..., "baseline": ...,
...}}, with the published keys and more (see attention_dynamics/analysis/statistics.py), and prints
it as tables. Brackets are 95% bootstrap intervals over sentence pairs; accuracy and BLEU are in
percent; a dash means that the attention never exceeded the level.
"""

import argparse

from alignment import alignment_rows, truth_path
from baselines import load_inputs
from data import layout_of, load_pieces

from attention_dynamics.analysis.inputs import AnalysisInputs
from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.names import PERFORMANCES
from attention_dynamics.reporting.collect import add_collect_options, collect
from attention_dynamics.reporting.tables import result_tables, titled
from attention_dynamics.runs.outputs import read_output_record
from attention_dynamics.runs.paths import logs_path


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_collect_options(parser)
    parser.add_argument(
        "--include_bleu_results",
        action="store_true",
        help="gold iteration and ξ by BLEU in addition to token accuracy (after eval_dump.py "
        "--eval_bleu)",
    )
    return parser.parse_args(argv)


def main(argv=None) -> None:
    args = parse_args(argv)
    performances = PERFORMANCES["translation"]
    kinds = [*performances] if args.include_bleu_results else ["acc"]
    signatures, aligned = {}, []

    def inspect(dataset: str, inputs: AnalysisInputs) -> None:
        outcome = read_output_record(logs_path(dataset)).get("results")
        if isinstance(outcome, dict):
            signatures[dataset] = outcome.get("bleu_signature")
        if truth_path(dataset).exists():
            pieces = load_pieces(layout_of(dataset).pieces)
            aligned.extend(alignment_rows(dataset, inputs.logs, pieces))

    wanted = [performances[kind] for kind in kinds]
    results = collect(args, args.datasets, wanted, load_inputs, inspect)
    if args.format in ("csv", "json"):
        print(result_tables(results, "performance", args.format))
        return
    for kind in kinds:
        some = {key: result for key, result in results.items() if key[3].endswith(kind)}
        print(result_tables(some, performances[kind].label, args.format) + "\n")
    if aligned:
        title = "alignment error rate against the true links (lower is better)"
        print(titled(title, aligned, args.format) + "\n")
    for dataset, signature in signatures.items():
        if "bleu" in kinds and signature:
            print(f"BLEU of {dataset}: sacrebleu {signature}")


if __name__ == "__main__":
    run_script(main)

"""Collect the paper's statistics of one or more datasets (docs/method.md, section 1.3).

    python collect_classification_stats.py --datasets Furd SMS --out_file results/stats.pkl \\
        --include_kendall_tau --include_train_results

Reads outputs/{dataset}_logs.pkl (our format or the published layout) and the two baselines. Writes
a pickle {(dataset, metric, split, accuracy): {"agr_unif": ..., "xi_unif": ..., "baseline": ...,
...}}, with the published keys and more (see attention_dynamics/analysis/statistics.py), and prints
it as tables. Brackets are 95% bootstrap intervals over examples; ± is the standard deviation over
the normal runs; a dash means that the attention never exceeded the level.
"""

import argparse

from baselines import load_inputs
from data import canonical_name
from planted import planted_rows

from attention_dynamics.analysis.inputs import AnalysisInputs
from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.names import PERFORMANCES
from attention_dynamics.reporting.collect import add_collect_options, collect
from attention_dynamics.reporting.tables import result_tables, titled


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_collect_options(parser)
    return parser.parse_args(argv)


def main(argv=None) -> None:
    args = parse_args(argv)
    performance = PERFORMANCES["classification"]["acc"]
    planted = []

    def inspect(dataset: str, inputs: AnalysisInputs) -> None:
        planted.extend(planted_rows(dataset, inputs.logs))

    datasets = map(canonical_name, args.datasets)
    results = collect(args, datasets, [performance], load_inputs, inspect)
    print(result_tables(results, performance.label, args.format))
    if planted and args.format not in ("csv", "json"):
        title = "planted words in the top 5% (share of sentences with any)"
        print("\n" + titled(title, planted, args.format))


if __name__ == "__main__":
    run_script(main)

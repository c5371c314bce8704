"""Collect the paper's statistics of several datasets in one results pickle.

The ``collect_*_stats.py`` scripts contribute their inputs and performances.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tqdm import tqdm

from attention_dynamics.analysis.inputs import AnalysisInputs, add_input_options, summarize_inputs
from attention_dynamics.names import METRICS, Performance
from attention_dynamics.reporting.tables import FORMATS
from attention_dynamics.storage.files import check_writable, write_pickle


def add_collect_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``collect_*_stats.py`` has in every folder."""
    add = parser.add_argument
    add("--datasets", required=True, nargs="+", help="datasets, as in outputs/{dataset}_logs.pkl")
    add("--out_file", required=True, help="pickle to write the results to")
    tau = "Kendall's tau in addition to the top 5%% match"
    add("--include_kendall_tau", action="store_true", help=tau)
    train = "results on training examples in addition to those on test or validation examples"
    add("--include_train_results", action="store_true", help=train)
    add_input_options(parser)
    tables = "format of the printed tables (default: %(default)s)"
    add("--format", choices=FORMATS, default="text", help=tables)


def collect(
    args: argparse.Namespace,
    datasets: Iterable[str],
    performances: list[Performance],
    load: Callable[[str, int], AnalysisInputs],
    inspect: Callable[[str, AnalysisInputs], None],
) -> dict[tuple, dict]:
    """Summarize all datasets and write the results to ``--out_file``.

    Args:
        args: options of the script.
        datasets: names; repeated ones count once.
        performances: each selects a gold iteration, and gives ξ.
        load: (dataset, embedding size) -> its inputs.
        inspect: called with each dataset and its inputs.

    Returns:
        {(dataset, metric, split, performance): result of ``statistics.summarize``}.

    Raises InputError if an input is missing or does not fit, or the output cannot be written.
    """
    check_writable(args.out_file, beside=Path("outputs"))
    metrics = METRICS if args.include_kendall_tau else METRICS[:1]
    splits = ("val", "train") if args.include_train_results else ("val",)
    tables = list(itertools.product(performances, metrics, splits))
    results = {}
    for dataset in dict.fromkeys(datasets):
        inputs = load(dataset, args.embed_dim)
        for line in inputs.missing:
            print(f"note: {line}", file=sys.stderr)
        inspect(dataset, inputs)
        progress = tqdm(tables, dataset, unit="table", disable=not sys.stderr.isatty())
        for performance, metric, split in progress:
            key = (dataset, metric, split, performance.splits[split][0])
            results[key] = summarize_inputs(inputs, metric, split, performance, args.seed)
    write_pickle(args.out_file, results)
    print(f"results written to {args.out_file}", file=sys.stderr)
    return results

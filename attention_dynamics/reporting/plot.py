"""Plot the dynamics of one dataset: figures of its statistics, and a page of examples.

The ``plot_dynamics.py`` scripts contribute their inputs and write the page.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from attention_dynamics.analysis.inputs import (
    AnalysisInputs,
    add_input_options,
    summarise_inputs,
)
from attention_dynamics.cli import count
from attention_dynamics.names import METRICS, SHORT, Performance
from attention_dynamics.reporting.figures import plot_dynamics
from attention_dynamics.reporting.viewer import choose_examples, examples_at
from attention_dynamics.storage.files import check_writable


def add_plot_options(parser: argparse.ArgumentParser, drawn: str) -> None:
    """Add the options that ``plot_dynamics.py`` has in every folder.

    ``drawn`` says which examples are drawn for the page.
    """
    parser.add_argument("--dataset", required=True, help="name in outputs/, such as toy")
    parser.add_argument(
        "--split", choices=("val", "train"), default="val", help="examples (default: %(default)s)"
    )
    parser.add_argument(
        "--metric", choices=METRICS, help="agreement metric (default: one figure for each)"
    )
    parser.add_argument(
        "--include_normal",
        action="store_true",
        help="agr_normal too, the KTIW of a run with attention",
    )
    parser.add_argument(
        "--num_examples",
        type=count,
        help=f"number of examples on the page, drawn at random{drawn} (default: 12)",
    )
    parser.add_argument(
        "--examples", type=int, nargs="+", help="numbers of the examples on the page instead"
    )
    add_input_options(parser)
    parser.add_argument(
        "--out_dir", default="figures", help="directory to write to (default: %(default)s)"
    )


def parse_plot_args(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """The options; ends the script if ``--examples`` and ``--num_examples`` are both given."""
    args = parser.parse_args(argv)
    if args.examples and args.num_examples is not None:
        parser.error("--examples names the examples, so --num_examples has nothing to choose")
    if args.num_examples is None:
        args.num_examples = 12
    return args


def plot(
    args: argparse.Namespace,
    performance: Performance,
    stem: str,
    page_name: str,
    load: Callable[[str, int], AnalysisInputs],
    write_page: Callable[[Path, AnalysisInputs, list[int]], None],
    percent: bool = False,
) -> None:
    """Write the page and the figures to ``--out_dir``, and print their paths.

    Args:
        args: options of the script.
        performance: selects the gold iteration and is drawn.
        stem: beginning of the names of the figures.
        page_name: of the page.
        load: (dataset, embedding size) -> its inputs.
        write_page: (path, inputs, numbers of the examples in the logs) -> None; writes the page.
        percent: whether the performance is in percent, rather than a fraction.

    Raises InputError before anything is written if an input is missing or does not fit.
    """
    out_dir = Path(args.out_dir)
    page = out_dir / page_name
    check_writable(page)
    inputs = load(args.dataset, args.embed_dim)
    for line in inputs.missing:
        print(line)
    if args.examples:
        examples = examples_at(inputs.logs, args.split, args.examples)
    else:
        examples = choose_examples(inputs.logs, args.split, args.num_examples, args.seed)
    results = {
        metric: summarise_inputs(inputs, metric, args.split, performance, args.seed)
        for metric in ([args.metric] if args.metric else METRICS)
    }
    write_page(page, inputs, examples)
    print(page)
    for metric, result in results.items():
        paths = plot_dynamics(
            out_dir / f"{stem}_{SHORT[metric]}",
            result,
            title=f"{args.dataset}, {args.split} examples",
            metric=metric,
            perf_label=performance.splits[args.split][1],
            percent=percent,
            unit=performance.unit,
            include_normal=args.include_normal,
        )
        for path in paths:
            print(path)

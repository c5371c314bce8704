"""Plot the dynamics of one dataset: figures of its statistics, and a page of examples.

The ``plot_dynamics.py`` scripts contribute their inputs and write the page.
"""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path

from attention_dynamics.analysis.inputs import AnalysisInputs, add_input_options, summarize_inputs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import add_options, count
from attention_dynamics.names import METRICS, SHORT, Performance
from attention_dynamics.reporting.figures import draw_dynamics, write_figure
from attention_dynamics.reporting.tables import result_records
from attention_dynamics.reporting.viewer import attention_page, choose_examples, examples_at
from attention_dynamics.storage.files import check_writable, write_text


def add_plot_options(parser: argparse.ArgumentParser, drawn: str) -> None:
    """Add the options that ``plot_dynamics.py`` has in every folder.

    ``drawn`` says which examples are drawn for the page.
    """
    add = parser.add_argument
    add("--dataset", required=True, help="dataset, as in outputs/{dataset}_logs.pkl")
    add("--split", choices=("val", "train"), default="val", help="split (default: %(default)s)")
    add("--metric", choices=METRICS, help="agreement metric (default: one figure for each)")
    add("--include_normal", action="store_true", help="draw agr_normal too (β of a normal run)")
    add = parser.add_mutually_exclusive_group().add_argument
    drawn = f"number of examples on the page, drawn at random{drawn} (default: %(default)s)"
    add("--num_examples", type=count, default=12, help=drawn)
    add("--examples", type=int, nargs="+", help="positions of the examples to show, from 0")
    add_input_options(parser)
    add_options(parser, out_dir=(str, "figures", "directory to write to"))


def plot(
    args: argparse.Namespace,
    performance: Performance,
    stem: str,
    page_name: str,
    load: Callable[[str, int], AnalysisInputs],
    page_options: Callable[[AnalysisInputs], dict],
) -> None:
    """Write the page and the figures to ``--out_dir``, and print their paths.

    Args:
        args: options of the script.
        performance: selects the gold iteration and is drawn.
        stem: beginning of the names of the figures; ``page_name`` is that of the page.
        load: (dataset, embedding size) -> its inputs.
        page_options: inputs -> words and options of :func:`viewer.attention_page`.

    Raises InputError before anything is written if an input is missing or does not fit.
    """
    page = Path(args.out_dir, page_name)
    check_writable(page)
    inputs = load(args.dataset, args.embed_dim)
    for line in inputs.missing:
        print(line)
    if args.examples:
        examples = examples_at(inputs.logs, args.split, args.examples)
    else:
        examples = choose_examples(inputs.logs, args.split, args.num_examples, args.seed)
    results = {
        metric: summarize_inputs(inputs, metric, args.split, performance, args.seed)
        for metric in ([args.metric] if args.metric else METRICS)
    }
    perf, label = performance.splits[args.split]
    options = {"perf": perf, "perf_label": label, "unit": performance.unit, **page_options(inputs)}
    write_text(page, attention_page(inputs.logs, examples=examples, **options))
    print(page)
    title = f"{args.dataset}, {args.split} examples"
    for metric, result in results.items():
        draw = functools.partial(
            draw_dynamics, result, title=title, metric=metric, perf_label=label,
            percent=isinstance(inputs.logs.trg, Ragged), unit=performance.unit,
            include_normal=args.include_normal,
        )  # fmt: skip
        path_stem = page.with_name(f"{stem}_{SHORT[metric]}")
        print(*write_figure(path_stem, draw, result_records(result), title), sep="\n")

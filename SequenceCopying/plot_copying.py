"""Draw the learning curves of two settings of seq2seq.py and compare how many seeds learn.

    python plot_copying.py
    python plot_copying.py --names vocab40seq_length40bsize128no_rep my_setting

Reads logs/{name}.pkl of both (default: 40 of 40 and 40 of 60). Writes
{out_dir}/copying_{name}_{name}.svg, .png, .csv: for each seed the accuracy, the attention accuracy
(the most attended token is the one being copied) and the β accuracy (accuracy if all attention is
on the token being copied), with the median over seeds. Prints for each setting how many seeds reach
an accuracy of 0.95 with a 95% interval (Wilson), the median step at which β and attention accuracy
first reach one half among the seeds that do, and Fisher's exact test of the two counts. The .json
file beside the figure holds the same numbers.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
from histories import (
    default_name,
    fisher_rows,
    histories_path,
    load_histories,
    success_row,
    title_of,
)
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from training import LEARNED, History, Settings

from attention_dynamics.cli import InputError, add_options, run_script, script_parser
from attention_dynamics.reporting.figures import write_figure
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.files import check_writable, write_json

# measure -> (label, color after Okabe and Ito).
CURVES = {
    "acc": ("accuracy", "#333333"),
    "attn_acc": (r"attention accuracy ($\alpha$)", "#0072B2"),
    "beta_acc": (r"one-token probe right ($\beta$)", "#D55E00"),
}
HALF = 0.5


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--names",
        nargs=2,
        default=[default_name(Settings(num_vocab=num, no_rep=True)) for num in (40, 60)],
        metavar=("FIRST", "SECOND"),
        help="names of the histories in logs/ to compare (default: 40 of 40 and 40 of 60)",
    )
    add_options(parser, out_dir=(str, "figures", "output directory"))
    return parser.parse_args(argv)


def setting_row(name: str, histories: list[History]) -> dict:
    """A row of the table: success, and when β and attention are right for half of the tokens."""
    row = success_row(name, histories)
    for measure, label in (("beta_acc", "β"), ("attn_acc", "α")):
        reached = [[e["step"] for e in history if e[measure] >= HALF] for history in histories]
        first = [steps[0] for steps in reached if steps]
        row[f"{label} half right at step"] = float(statistics.median(first)) if first else None
    return row


def curve_rows(name: str, histories: list[History]) -> list[dict]:
    """The numbers behind the figure; ``place`` is the index of the seed in the output."""
    return [
        {"setting": name, "place": index, **{key: entry[key] for key in ("step", *CURVES)}}
        for index, history in enumerate(histories)
        for entry in history
    ]


def draw_curves(titles: list[str], settings: list[list[History]]) -> Figure:
    """A column for each setting, a row for each measure; thin lines are seeds, thick the median."""
    figure = Figure(figsize=(9.6, 7.2))
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(CURVES), 2, sharex=True, sharey=True, squeeze=False)
    for column, (title, histories) in enumerate(zip(titles, settings, strict=True)):
        longest = max(histories, key=len)
        for axes, (measure, (label, color)) in zip(grid[:, column], CURVES.items(), strict=True):
            for history in histories:
                steps, values = zip(*((e["step"], e[measure]) for e in history), strict=True)
                axes.plot(steps, values, color=color, alpha=0.35, linewidth=0.8)
            # Seeds that stopped early keep their last value.
            extended = [
                [history[min(index, len(history) - 1)][measure] for index in range(len(longest))]
                for history in histories
            ]
            median = np.median(extended, axis=0)
            axes.plot([e["step"] for e in longest], median, color=color, linewidth=2.4)
            axes.set_ylim(-0.03, 1.03)
            if column == 0:
                axes.set_ylabel(label)
        seeds = "1 seed" if len(histories) == 1 else f"{len(histories)} seeds"
        grid[0, column].set_title(f"{title}: {seeds}", fontsize=10)
        grid[0, column].axhline(LEARNED, color="#6b6b6b", linewidth=0.8, dashes=(2, 2))
        grid[-1, column].set_xlabel("training step")
    for label, width, alpha in (("a seed", 0.8, 0.35), ("median of the seeds", 2.4, 1)):
        grid[0, -1].plot([], [], color="#333333", linewidth=width, alpha=alpha, label=label)
    grid[0, -1].legend(frameon=False, loc="lower right")
    figure.align_ylabels(grid[:, 0])
    figure.tight_layout()
    return figure


def main(argv=None) -> None:
    args = parse_args(argv)
    for name in args.names:
        check_name(name, "--names")
    if args.names[0] == args.names[1]:
        raise InputError(f"--names: contains {args.names[0]} twice; give two different names")
    stem = Path(args.out_dir) / f"copying_{'_'.join(args.names)}"
    check_writable(f"{stem}.svg")
    paths = [histories_path(name) for name in args.names]
    settings = [load_histories(path) for path in paths]
    titles = [title_of(path, name) for path, name in zip(paths, args.names, strict=True)]
    titles = args.names if titles[0] == titles[1] else titles
    named = list(zip(args.names, settings, strict=True))
    rows = [setting_row(*setting) for setting in named]
    (test,) = fisher_rows(rows, f"reach {LEARNED}")
    print(format_table(rows))
    print(f"Fisher's exact test of the two counts: p = {test['p']:.2g}")
    write_json(f"{stem}.json", {"settings": rows, "fisher_p": test["p"]})
    curves = [row for setting in named for row in curve_rows(*setting)]
    for path in write_figure(
        stem, lambda: draw_curves(titles, settings), curves, "Learning to copy"
    ):
        print(path)


if __name__ == "__main__":
    run_script(main)

"""Draw the learning curves of two settings of seq2seq.py, and compare how many seeds learn.

    python plot_copying.py
    python plot_copying.py --names vocab40seq_length40bsize128no_rep my_setting

Reads logs/{name}.pkl of both (default: 40 of 40 and 40 of 60). Writes
{out_dir}/copying_{name}_{name}.svg, .png, .csv: for each seed the accuracy, the attention accuracy
(the most attended token is the one being copied) and the β accuracy (the token is right when all
attention is put on the token being copied), with the median over seeds. Prints, for each setting,
how many seeds reach an accuracy of 0.95 with a 95% interval (Wilson), the median step at which β
and attention accuracy first reach one half among the seeds that do, and Fisher's exact test of the
two counts; the same is in a .json beside the figure.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
from histories import default_name, histories_path, load_histories, steps_of, success_row, title_of
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import fisher_exact
from training import LEARNED, History, Settings

from attention_dynamics.cli import InputError, run_script, script_parser
from attention_dynamics.reporting.figures import write_figure
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.files import check_writable, write_json

# measure -> (what it is, colour after Okabe and Ito).
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
        help="settings in logs/ to compare (default: %(default)s)",
    )
    parser.add_argument(
        "--out_dir", default="figures", help="folder to write to (default: %(default)s)"
    )
    return parser.parse_args(argv)


def first_step(steps: list[int], history: History, measure: str) -> int | None:
    """The first step of an evaluation at which ``measure`` is HALF; None when none is."""
    return next(
        (t for t, entry in zip(steps, history, strict=True) if entry[measure] >= HALF), None
    )


def setting_row(name: str, steps: list[list[int]], histories: list[History]) -> dict:
    """A row of the table: success, and when β and attention get half of the tokens right."""
    row = success_row(name, histories)
    for measure, label in (("beta_acc", "β"), ("attn_acc", "α")):
        found = [first_step(t, h, measure) for t, h in zip(steps, histories, strict=True)]
        reached = [t for t in found if t is not None]
        row[f"{label} half right at step"] = float(statistics.median(reached)) if reached else None
    return row


def curve_rows(name: str, steps: list[list[int]], histories: list[History]) -> list[dict]:
    """The numbers behind the figure; ``place`` counts the seeds as the output lists them."""
    return [
        {"setting": name, "place": place, "step": step, **{key: entry[key] for key in CURVES}}
        for place, (of_seed, history) in enumerate(zip(steps, histories, strict=True))
        for step, entry in zip(of_seed, history, strict=True)
    ]


def draw_curves(titles: list[str], steps: list, settings: list[list[History]]) -> Figure:
    """A column for each setting, a row for each measure; thin lines are seeds, thick the median."""
    figure = Figure(figsize=(9.6, 7.2))
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(CURVES), 2, sharex=True, sharey=True, squeeze=False)
    for column, (title, of_seeds, histories) in enumerate(
        zip(titles, steps, settings, strict=True)
    ):
        for axes, (measure, (label, colour)) in zip(grid[:, column], CURVES.items(), strict=True):
            for t, history in zip(of_seeds, histories, strict=True):
                values = [entry[measure] for entry in history]
                axes.plot(t, values, color=colour, alpha=0.35, linewidth=0.8)
            # Seeds that stopped early keep their last value.
            longest = max(of_seeds, key=len)
            kept = [
                [history[min(place, len(history) - 1)][measure] for place in range(len(longest))]
                for history in histories
            ]
            axes.plot(longest, np.median(kept, axis=0), color=colour, linewidth=2.4)
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
        raise InputError(f"--names names {args.names[0]} twice: there is nothing to compare")
    stem = Path(args.out_dir) / f"copying_{'_'.join(args.names)}"
    check_writable(f"{stem}.svg")
    paths = [histories_path(name) for name in args.names]
    settings = [load_histories(path) for path in paths]
    steps = [
        [steps_of(path, history) for history in histories]
        for path, histories in zip(paths, settings, strict=True)
    ]
    titles = [title_of(path, name) for path, name in zip(paths, args.names, strict=True)]
    if titles[0] == titles[1]:
        titles = args.names
    described = list(zip(args.names, steps, settings, strict=True))
    rows = [setting_row(*setting) for setting in described]
    counts = [[row[f"reach {LEARNED}"], row["of"] - row[f"reach {LEARNED}"]] for row in rows]
    p = float(fisher_exact(counts).pvalue)
    print(format_table(rows))
    print(f"Fisher's exact test of the two counts: p = {p:.2g}")
    write_json(f"{stem}.json", {"settings": rows, "fisher_p": p})
    for path in write_figure(
        stem,
        lambda: draw_curves(titles, steps, settings),
        [row for setting in described for row in curve_rows(*setting)],
        "Learning to copy",
    ):
        print(path)


if __name__ == "__main__":
    run_script(main)

"""Draw the learning curves of the combinations of heads that multihead.py trains (Section 5.2).

    python plot_multihead.py
    python plot_multihead.py --num_heads 4

Reads re_{num_heads}headcomb.pkl. Writes {out_dir}/re_{num_heads}headcomb.svg, .png, .csv: the mean
accuracy over training with a band of one standard deviation, for each kind of combination.
"""

import argparse

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from multihead import KINDS, Combinations, label_of, load_combinations, output_path
from training import GOOD

from attention_dynamics.cli import add_options, count, run_script, script_parser
from attention_dynamics.reporting.figures import write_figure
from attention_dynamics.storage.files import check_writable

COLORS = {"bad": "#D55E00", "good": "#0072B2", "random": "#6b6b6b"}


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_options(
        parser,
        num_heads=(count, 8, "number of heads in a combination"),
        out_dir=(str, "figures", "output directory"),
    )
    return parser.parse_args(argv)


def curve_rows(histories: tuple[Combinations, ...]) -> list[dict]:
    """The mean and the standard deviation of the accuracy at each step, of each kind."""
    rows = []
    for kind, of_kind in zip(KINDS, histories, strict=True):
        steps = [entry["step"] for entry in next(iter(of_kind.values()))]
        acc = np.array([[entry["acc"] for entry in history] for history in of_kind.values()])
        for step, mean, std in zip(steps, acc.mean(axis=0), acc.std(axis=0), strict=True):
            rows.append({"kind": kind, "step": step, "mean": float(mean), "std": float(std)})
    return rows


def draw_curves(num_heads: int, rows: list[dict]) -> Figure:
    """Mean accuracy over training with a band of one standard deviation, for each kind."""
    figure = Figure(figsize=(7.2, 4.4))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for kind in KINDS:
        points = [(row["step"], row["mean"], row["std"]) for row in rows if row["kind"] == kind]
        steps, mean, std = np.array(points).T
        color = COLORS[kind]
        axes.fill_between(steps, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)
        axes.plot(steps, mean, color=color, linewidth=2, label=label_of(kind, num_heads))
    axes.axhline(GOOD, color="#6b6b6b", linewidth=0.8, dashes=(2, 2))
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("training step")
    axes.set_ylabel("accuracy, mean ± std of models")
    axes.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    return figure


def main(argv=None) -> None:
    args = parse_args(argv)
    path = output_path(args.num_heads)
    stem = f"{args.out_dir}/{path.stem}"
    check_writable(f"{stem}.svg")
    rows = curve_rows(load_combinations(path))
    for written in write_figure(
        stem, lambda: draw_curves(args.num_heads, rows), rows, "Good and bad heads"
    ):
        print(written)


if __name__ == "__main__":
    run_script(main)

"""Draw the cost of constant heads, how replaceable each head is, and the constants.

    python plot_papa.py --folders outputs/minilm_cola outputs/minilm_rte
    python plot_papa.py --folders outputs/minilm_cola --epoch best

Each directory is the output of papa_runs.sh for one model and one task. Writes

    {out_dir}/scores.svg, .png, .csv               score and relative drop by fraction of constant
                                                   heads, a line per folder, mean ± std over seeds
    {out_dir}/{folder name}_lambdas.svg, ...       λ per layer and head (the weight of its attention
                                                   is σ(λ)), from sorted/
    {out_dir}/{folder name}_constants.svg, ...     the constants of the first and the last heads of
                                                   the order in sorted/, from constants/

and prints their paths. Positions that no training example uses are left out.
"""

import argparse
import functools
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from constants import AVERAGES, PATTERNS, load_lambdas, load_order, load_tensor
from matplotlib.colors import CenteredNorm, PowerNorm
from matplotlib.figure import Figure
from scores import EPOCHS, Experiment, load_experiments, score_rows

from attention_dynamics.cli import InputError, run_script, script_parser
from attention_dynamics.reporting.figures import write_figure

# After Okabe and Ito, distinct for color-blind readers, with different markers and dashes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#B0589A", "#B8860B", "#56B4E9", "#882255", "#333333")
MARKERS = "osD^vPX*"
DASHES = ((), (5, 2), (2, 1.5), (7, 2, 1.5, 2))
FIRST_AND_LAST = 3  # heads from each end of the order

Head = tuple[int, int]  # layer, head


class Order(NamedTuple):
    """The output of --sort_calculating: λ (layer, head); the heads, the most replaceable first."""

    lambdas: np.ndarray
    heads: list[Head]


class Constants(NamedTuple):
    """Mean attention (layer, head, query, key), and the positions at which any token was seen."""

    averages: np.ndarray
    used: np.ndarray


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--folders", required=True, nargs="+", help="directories of one model and task each")
    epoch = "epoch of the score; the best one is chosen on the evaluated examples (default: last)"
    add("--epoch", choices=EPOCHS, default="last", help=epoch)
    add("--metric", help="score to draw, such as accuracy (default: the score of each task)")
    add("--out_dir", default="figures", help="directory of the figures (default: figures)")
    return parser.parse_args(argv)


def draw_scores(rows: list[dict], title: str) -> Figure:
    """Score on the left, relative drop on the right, against the fraction of constant heads."""
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for number, folder in enumerate(dict.fromkeys(row["folder"] for row in rows)):
        points = [row for row in rows if row["folder"] == folder]
        label = f"{folder} ({points[0]['metric'].replace('_', ' ')})"
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        line = {"color": color, "marker": marker, "markersize": 5, "linewidth": 1.8, "label": label}
        line["dashes"] = DASHES[number % len(DASHES)] or (None, None)
        for panel, name, scale in ((axes[0], "score", 1), (axes[1], "drop", 100)):
            defined = [row for row in points if row[name] is not None]
            x = [100 * row["share"] for row in defined]
            mean = scale * np.array([row[name] for row in defined])
            std = scale * np.array([row[f"{name}_std"] or 0 for row in defined])
            panel.fill_between(x, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)
            panel.plot(x, mean, **line)
    shares = sorted({100 * row["share"] for row in rows})
    for panel, label in zip(axes, ("score", "relative drop of the score (%)"), strict=True):
        panel.set(xlabel="heads with constant attention (%)", ylabel=label)
        if len(shares) <= 9:
            panel.set_xticks(shares, [f"{share:.3g}" for share in shares])
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes[0].set_title(title)
    axes[1].axhline(0, color="#6b6b6b", linewidth=1, dashes=(2, 2))
    lines = axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower left", ncols=3, frameon=False)
    return figure


def lambda_rows(order: Order) -> list[dict]:
    """λ of each head, and its index in the order (0 is the most replaceable)."""
    places = {head: place for place, head in enumerate(order.heads)}
    return [
        {"layer": layer, "head": head, "lambda": float(value), "place": places[layer, head]}
        for (layer, head), value in np.ndenumerate(order.lambdas)
    ]


def draw_lambdas(order: Order, title: str) -> Figure:
    """λ as a heat map, layers downwards, with its value in each cell."""
    layers, heads = order.lambdas.shape
    figure = Figure(figsize=(2.2 + 0.62 * heads, 1.6 + 0.42 * layers), layout="constrained")
    axes = figure.subplots()
    reach = float(np.abs(order.lambdas).max()) or 1.0
    norm = CenteredNorm(0, halfrange=reach)
    image = axes.imshow(order.lambdas, cmap="PuOr_r", norm=norm, aspect="auto")
    # A few steps change λ by thousandths only: such values need a smaller unit.
    unit = 1.0 if reach >= 0.1 else 10.0 ** math.floor(math.log10(reach))
    for (layer, head), value in np.ndenumerate(order.lambdas):
        # Weights of red, green and blue in the brightness of a color.
        dark = np.dot(image.to_rgba(value)[:3], (0.299, 0.587, 0.114)) < 0.5
        style = {"ha": "center", "va": "center", "fontsize": 8}
        axes.text(head, layer, f"{value / unit:z.2f}", color="white" if dark else "black", **style)
    axes.set(xticks=range(heads), yticks=range(layers), xlabel="head", ylabel="layer", title=title)
    in_units = "" if unit == 1 else f"; in the cells in units of {unit:g}"
    figure.colorbar(image, label=f"λ (low: replaceable{in_units})")
    return figure


def constant_rows(constants: Constants, heads: list[Head]) -> list[dict]:
    """A row for each head and query position, a column for each key position."""
    averages, used = constants.averages, constants.used.tolist()
    return [
        {"layer": layer, "head": head, "query": query}
        | {f"key {key}": round(float(averages[layer, head, query, key]), 7) for key in used}
        for layer, head in heads
        for query in used
    ]


def draw_constants(constants: Constants, heads: list, order: Order | None, title: str) -> Figure:
    """The constant of each head as a heat map, on one scale."""
    columns = min(3, len(heads))
    lines = math.ceil(len(heads) / columns)
    figure = Figure(figsize=(1.2 + 3.1 * columns, 0.9 + 3.2 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    used = constants.used
    cut = [constants.averages[head][np.ix_(used, used)] for head in heads]
    # Most values are small: the square root makes them distinguishable.
    norm = PowerNorm(0.5, 0, max(float(matrix.max()) for matrix in cut) or 1.0)
    every = max(1, math.ceil(len(used) / 6))
    ticks = sorted({*range(0, len(used) - every // 2, every), len(used) - 1})
    for head, matrix, axes in zip(heads, cut, grid.flat, strict=False):
        image = axes.imshow(matrix, cmap="viridis", norm=norm, interpolation="nearest")
        name = f"layer {head[0]}, head {head[1]}"
        if order:
            place = f"place {order.heads.index(head) + 1} of {len(order.heads)}"
            name += f": λ = {order.lambdas[head]:.2g}, {place}"
        axes.set_title(name, fontsize=9)
        axes.set_xticks(ticks, map(str, used[ticks]))
        axes.set_yticks(ticks, map(str, used[ticks]))
    for axes in grid.flat[len(heads) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("query position")
    for axes in grid[-1]:
        axes.set_xlabel("key position")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.colorbar(image, ax=grid, label="constant attention (square-root scale)", shrink=0.8)
    return figure


def read_heads(folder: Path, experiment: Experiment) -> tuple[Order | None, Constants | None]:
    """What sorted/ and constants/ in ``folder`` hold; None for a missing directory.

    Raises InputError for an order or constants of another model or length than the runs.
    """
    order, constants, expected = None, None, (experiment.num_heads, experiment.max_seq_length)
    if (folder / "sorted").is_dir():
        lambdas = load_lambdas(folder / "sorted")
        heads = load_order(folder / "sorted", *lambdas.shape)
        order = Order(lambdas, [tuple(head) for head in heads])
        _check(folder / "sorted", expected, (lambdas.size, expected[1]))
    if (folder / "constants").is_dir():
        averages = load_tensor(folder / "constants" / AVERAGES, *[None] * 4).numpy()
        _check(folder / "constants", expected, (math.prod(averages.shape[:2]), averages.shape[2]))
        patterns = load_tensor(folder / "constants" / PATTERNS, *averages.shape[2:]).numpy()
        constants = Constants(averages, np.flatnonzero(patterns.diagonal() > 0))
    return order, constants


def _check(folder: Path, expected: tuple, got: tuple) -> None:
    if got != expected:
        raise InputError(
            f"{folder}: not of the same model and --max_seq_length as results/ (expected "
            f"{expected}, got {got}); recreate it"
        )


def main(argv=None) -> None:
    args = parse_args(argv)
    experiments = load_experiments(args.folders, args.metric)
    rows = [
        {"folder": one.name, "metric": one.metric, **row}
        for one in experiments
        for row in score_rows(one)
        if row["epoch"] == args.epoch
    ]
    title = f"Score after the {args.epoch} epoch"
    title += ", mean ± std over seeds" if any(row["score_std"] for row in rows) else ""
    figures = [("scores", draw_scores, (rows,), rows, title)]
    for folder, experiment in zip(map(Path, args.folders), experiments, strict=True):
        name = experiment.name
        order, constants = read_heads(folder, experiment)
        if order:
            title = f"{name}: λ of each head"
            figures.append((f"{name}_lambdas", draw_lambdas, (order,), lambda_rows(order), title))
        if constants:
            heads = order.heads if order else list(np.ndindex(constants.averages.shape[:2]))
            heads = list(dict.fromkeys([*heads[:FIRST_AND_LAST], *heads[-FIRST_AND_LAST:]]))
            rows, drawn = constant_rows(constants, heads), (constants, heads, order)
            title = f"{name}: constants, the mean attention over the training examples"
            figures.append((f"{name}_constants", draw_constants, drawn, rows, title))
        for output, there in (("sorted", order), ("constants", constants)):
            if not there:
                print(f"{folder} has no {output}/: not drawn")
    for stem, draw, drawn, rows, title in figures:
        draw_titled = functools.partial(draw, *drawn, title)
        print(*write_figure(Path(args.out_dir, stem), draw_titled, rows, title), sep="\n")


if __name__ == "__main__":
    run_script(main)

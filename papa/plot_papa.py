"""Draw the cost of constant heads, how replaceable each head is, and the constants.

    python plot_papa.py --folders outputs/minilm_cola outputs/minilm_rte
    python plot_papa.py --folders outputs/minilm_cola --heads 0.3,5.11 --epoch best

Each directory is the output of papa_runs.sh for one model and one task. Writes

    {out_dir}/scores.svg, .png, .csv               score and relative drop by fraction of constant
                                                   heads, a line per folder, mean ± std over seeds
    {out_dir}/{folder name}_lambdas.svg, ...       λ per layer and head (the weight of its attention
                                                   is σ(λ)), from sorted/
    {out_dir}/{folder name}_constants.svg, ...     the constants of some heads, from constants/

and prints their paths. Heads are layer.head, both from 0; without --heads the first and the last
heads of the order in sorted/ are drawn. Positions that no training example uses are left out.
"""

import argparse
import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from constants import PATTERNS, load_averages, load_lambdas, load_order, load_tensor
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import CenteredNorm, PowerNorm
from matplotlib.figure import Figure
from scores import EPOCHS, Experiment, load_experiments, score_rows

from attention_dynamics.cli import InputError, run_script, script_parser
from attention_dynamics.reporting.figures import write_figure

# After Okabe and Ito, distinct for colour-blind readers, with different markers and dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B0589A", "#B8860B", "#56B4E9", "#882255", "#333333")
MARKERS = "osD^vPX*"
DASHES = ((), (5, 2), (2, 1.5), (7, 2, 1.5, 2))
FIRST_AND_LAST = 3  # heads from each end of the order


@dataclass
class Order:
    """The output of --sort_calculating.

    Attributes:
        lambdas: (layer, head) λ; the attention of a head is weighted σ(λ), its constant 1 - σ(λ).
        heads: (layer, head) by ascending λ, the most replaceable first.
    """

    lambdas: np.ndarray
    heads: list[tuple[int, int]]

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and heads of a layer."""
        return self.lambdas.shape


@dataclass
class Constants:
    """The output of run_papa_*_avgs_creator.py.

    Attributes:
        averages: (layer, head, L, L) mean attention of query (rows) and key, 0 if never used.
        used: (L,) whether any training example has a token at the position.
    """

    averages: np.ndarray
    used: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and heads of a layer."""
        return self.averages.shape[:2]


def head_list(text: str) -> list[tuple[int, int]]:
    """Parse ``--heads``: layer.head pairs such as 0.3,5.11."""
    if not re.fullmatch(r"\d{1,4}\.\d{1,4}(,\d{1,4}\.\d{1,4})*", text):
        raise argparse.ArgumentTypeError(f"expected layer.head pairs like 0.3,5.11, got {text!r}")
    heads = [tuple(int(number) for number in head.split(".")) for head in text.split(",")]
    return list(dict.fromkeys(heads))


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--folders",
        required=True,
        nargs="+",
        help="directories of one model and task each, with results/",
    )
    parser.add_argument(
        "--epoch",
        choices=EPOCHS,
        default="last",
        help="epoch of the score; the best one is chosen on the evaluated examples "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--metric", help="score to draw, such as accuracy (default: the score of each task)"
    )
    parser.add_argument(
        "--heads",
        type=head_list,
        help="heads whose constants are drawn "
        f"(default: first and last {FIRST_AND_LAST} of the order)",
    )
    parser.add_argument(
        "--out_dir", default="figures", help="directory of the figures (default: %(default)s)"
    )
    return parser.parse_args(argv)


def draw_scores(experiments: list[Experiment], rows: list[dict], title: str) -> Figure:
    """Score on the left, relative drop on the right, against the fraction of constant heads."""
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2)
    for number, one in enumerate(experiments):
        points = [row for row in rows if row["folder"] == one.name]
        for panel, name, scale in ((axes[0], "score", 1), (axes[1], "drop", 100)):
            defined = [row for row in points if row[name] is not None]
            x = [100 * row["share"] for row in defined]
            mean = scale * np.array([row[name] for row in defined])
            std = scale * np.array([row[f"{name}_std"] or 0 for row in defined])
            colour = COLOURS[number % len(COLOURS)]
            panel.fill_between(x, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
            panel.plot(
                x,
                mean,
                color=colour,
                marker=MARKERS[number % len(MARKERS)],
                dashes=DASHES[number % len(DASHES)] or (None, None),
                markersize=5,
                linewidth=1.8,
                label=f"{one.name} ({one.metric.replace('_', ' ')})",
            )
    shares = sorted({100 * row["share"] for row in rows})
    for panel, label in zip(axes, ("score", "relative drop of the score (%)"), strict=True):
        panel.set_xlabel("heads with constant attention (%)")
        panel.set_ylabel(label)
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
    return [
        {
            "layer": layer,
            "head": head,
            "lambda": float(order.lambdas[layer, head]),
            "place": order.heads.index((layer, head)),
        }
        for layer, head in np.ndindex(order.lambdas.shape)
    ]


def draw_lambdas(order: Order, title: str) -> Figure:
    """λ as a heat map, layers downwards, with its value in each cell."""
    layers, heads = order.lambdas.shape
    figure = Figure(figsize=(2.2 + 0.62 * heads, 1.6 + 0.42 * layers), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    reach = float(np.abs(order.lambdas).max()) or 1.0
    image = axes.imshow(
        order.lambdas, cmap="PuOr_r", norm=CenteredNorm(0, halfrange=reach), aspect="auto"
    )
    # A few steps change λ by thousandths only: such values need a smaller unit.
    unit = 1.0 if reach >= 0.1 else 10.0 ** math.floor(math.log10(reach))
    for (layer, head), value in np.ndenumerate(order.lambdas):
        # Weights of red, green and blue in the brightness of a colour.
        dark = np.dot(image.to_rgba(value)[:3], (0.299, 0.587, 0.114)) < 0.5
        axes.text(
            head, layer, f"{value / unit:z.2f}", ha="center", va="center", fontsize=8,
            color="white" if dark else "black",
        )  # fmt: skip
    axes.set_xticks(range(heads))
    axes.set_yticks(range(layers))
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.set_title(title)
    in_units = "" if unit == 1 else f"; in the cells in units of {unit:g}"
    figure.colorbar(image, label=f"λ (low: replaceable{in_units})")
    return figure


def constant_rows(constants: Constants, heads: list[tuple[int, int]]) -> list[dict]:
    """A row for each head and query position, a column for each key position."""
    positions = np.flatnonzero(constants.used).tolist()
    return [
        {
            "layer": layer,
            "head": head,
            "query": query,
            **{f"key {key}": round(float(matrix[query, key]), 7) for key in positions},
        }
        for layer, head in heads
        for matrix in [constants.averages[layer, head]]
        for query in positions
    ]


def draw_constants(
    constants: Constants, heads: list[tuple[int, int]], order: Order | None, title: str
) -> Figure:
    """The constant of each head as a heat map, on one scale."""
    columns = min(3, len(heads))
    lines = math.ceil(len(heads) / columns)
    figure = Figure(figsize=(1.2 + 3.1 * columns, 0.9 + 3.2 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(lines, columns, squeeze=False)
    positions = np.flatnonzero(constants.used)
    cut = [constants.averages[layer, head][np.ix_(positions, positions)] for layer, head in heads]
    # Most values are small: the square root makes them distinguishable.
    norm = PowerNorm(0.5, 0, max(float(matrix.max()) for matrix in cut) or 1.0)
    for place, axes in enumerate(grid.flat):
        if place >= len(heads):
            axes.set_axis_off()
            continue
        image = axes.imshow(cut[place], cmap="viridis", norm=norm, interpolation="nearest")
        axes.set_title(_head_title(heads[place], order), fontsize=9)
        _position_ticks(axes, positions)
    for axes in grid[:, 0]:
        axes.set_ylabel("query position")
    for axes in grid[-1]:
        axes.set_xlabel("key position")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.colorbar(image, ax=grid, label="constant attention (square-root scale)", shrink=0.8)
    return figure


def _head_title(head: tuple[int, int], order: Order | None) -> str:
    text = f"layer {head[0]}, head {head[1]}"
    if order is None:
        return text
    place = order.heads.index(head) + 1
    return f"{text}: λ = {order.lambdas[head]:.2g}, place {place} of {len(order.heads)}"


def _position_ticks(axes: Axes, positions: np.ndarray) -> None:
    """Label the ticks with the original positions, some of which are left out."""
    every = max(1, math.ceil(len(positions) / 6))
    ticks = sorted({*range(0, len(positions) - every // 2, every), len(positions) - 1})
    names = [str(positions[tick]) for tick in ticks]
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)


def heads_to_draw(
    chosen: list[tuple[int, int]] | None,
    order: Order | None,
    constants: Constants | None,
    folder: Path,
) -> list[tuple[int, int]]:
    """The given heads, else the ends of the order, else those of the model."""
    if constants is None:
        if chosen:
            raise InputError(f"--heads: {folder} has no constants/ to draw; leave the option out")
        return []
    layers, heads = constants.shape
    if chosen is None:
        every = order.heads if order else list(np.ndindex(layers, heads))
        return list(dict.fromkeys([*every[:FIRST_AND_LAST], *every[-FIRST_AND_LAST:]]))
    for layer, head in chosen:
        if layer >= layers or head >= heads:
            raise InputError(
                f"--heads {layer}.{head}: not a head of {folder} (expected 0.0 to "
                f"{layers - 1}.{heads - 1})"
            )
    return chosen


def read_order(folder: Path) -> Order | None:
    """The order in ``folder``/sorted; None without that directory."""
    folder = folder / "sorted"
    if not folder.is_dir():
        return None
    lambdas = load_lambdas(folder)
    order = [tuple(pair) for pair in load_order(folder, *lambdas.shape)]
    if any(np.diff([lambdas[pair] for pair in order]) < 0):
        raise InputError(f"{folder}: lambdas.npy and sorted_heads.json do not match; recreate them")
    return Order(lambdas, order)


def read_constants(folder: Path) -> Constants | None:
    """The constants in ``folder``/constants; None without that directory."""
    folder = folder / "constants"
    if not folder.is_dir():
        return None
    averages, patterns = load_averages(folder), load_tensor(folder / PATTERNS, 2)
    if patterns.shape != averages.shape[2:]:
        raise InputError(
            f"{folder / PATTERNS}: does not match {folder / 'avgs.pt'} (expected "
            f"{tuple(averages.shape[2:])}, got {tuple(patterns.shape)}); recreate them"
        )
    return Constants(averages.numpy(), patterns.diagonal().numpy() > 0)


def check_match(experiment: Experiment, order: Order | None, constants: Constants | None) -> None:
    """Raise InputError for an order or constants of another model or length than the runs."""
    name, length = experiment.name, experiment.max_seq_length
    for what, output in (("sorted", order), ("constants", constants)):
        if output is not None and math.prod(output.shape) != experiment.num_heads:
            raise InputError(
                f"{name}: {what}/: other heads than results/ (expected {experiment.num_heads}, got "
                f"{math.prod(output.shape)}); recreate it with the same model"
            )
    if constants is not None and len(constants.used) != length:
        raise InputError(
            f"{name}: constants/: other --max_seq_length than results/ (expected {length}, got "
            f"{len(constants.used)}); recreate them with the same length"
        )
    if order is not None and constants is not None and order.shape != constants.shape:
        raise InputError(
            f"{name}: constants/: other layers or heads than sorted/ (expected {order.shape}, got "
            f"{constants.shape}); recreate them with the same model"
        )


def write_scores(out_dir: Path, experiments: list[Experiment], epoch: str) -> list[Path]:
    """Write the figure of the scores; return its paths."""
    rows = [
        {"folder": one.name, "metric": one.metric, **row}
        for one in experiments
        for row in score_rows(one)
        if row["epoch"] == epoch
    ]
    title = f"Score after the {epoch} epoch"
    title += ", mean ± std over seeds" if any(row["score_std"] for row in rows) else ""
    draw = functools.partial(draw_scores, experiments, rows, title)
    return write_figure(out_dir / "scores", draw, rows, title)


def write_lambdas(out_dir: Path, name: str, order: Order) -> list[Path]:
    """Write the figure of λ; return its paths."""
    title = f"{name}: λ of each head"
    draw = functools.partial(draw_lambdas, order, title)
    return write_figure(out_dir / f"{name}_lambdas", draw, lambda_rows(order), title)


def write_constants(
    out_dir: Path,
    name: str,
    constants: Constants,
    heads: list[tuple[int, int]],
    order: Order | None,
) -> list[Path]:
    """Write the figure of the constants of ``heads``; return its paths."""
    title = f"{name}: constants, the mean attention over the training examples"
    draw = functools.partial(draw_constants, constants, heads, order, title)
    rows = constant_rows(constants, heads)
    return write_figure(out_dir / f"{name}_constants", draw, rows, title)


def main(argv=None) -> None:
    args = parse_args(argv)
    out_dir = Path(args.out_dir)

    experiments = load_experiments(args.folders, args.metric)
    heat_maps = []
    for folder, experiment in zip(map(Path, args.folders), experiments, strict=True):
        order, constants = read_order(folder), read_constants(folder)
        check_match(experiment, order, constants)
        heads = heads_to_draw(args.heads, order, constants, folder)
        heat_maps.append((experiment.name, order, constants, heads))
        for name, output in (("sorted", order), ("constants", constants)):
            if output is None:
                print(f"{folder} has no {name}/: not drawn")

    paths = write_scores(out_dir, experiments, args.epoch)
    for name, order, constants, heads in heat_maps:
        if order is not None:
            paths += write_lambdas(out_dir, name, order)
        if constants is not None:
            paths += write_constants(out_dir, name, constants, heads, order)
    for path in paths:
        print(path)


if __name__ == "__main__":
    run_script(main)

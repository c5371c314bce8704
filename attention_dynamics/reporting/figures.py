"""Training in one figure: agreement above, performance below, on a shared axis.

It shows the argument of the paper: the attention of normal runs approaches that of the gold run,
and passes the level that the KTIW of the run with frozen *uniform* attention reaches.
"""

import os
from collections.abc import Callable
from pathlib import Path

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy.optimize import isotonic_regression

from attention_dynamics.analysis.statistics import crossing
from attention_dynamics.names import LEVELS
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.storage.files import atomic_write, write_text

_ALPHA, _PERF, _CHANCE, _TEXT = "#0072B2", "#333333", "#6b6b6b", "#222222"
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    # Element names in an svg are random without a salt.
    "svg.hashsalt": "attention_dynamics",
}
_SIZE = (10.4, 6.2)  # inches
_LABEL_POINTS = 8.5


def write_figure(
    path_stem: str | os.PathLike, draw: Callable[[], Figure], rows: list[dict], title: str
) -> list[Path]:
    """Write a figure in the style of this repository, and the numbers that it shows.

    The bytes depend only on the arguments and the version of matplotlib.

    Args:
        path_stem: path without a suffix; its directory is created.
        draw: function that draws the figure.
        rows: rows of the csv.
        title: title in the metadata of svg and png.

    Returns the paths of ``{path_stem}.svg``, ``.png`` and ``.csv``.
    """
    paths = [Path(f"{os.fspath(path_stem)}{suffix}") for suffix in (".svg", ".png", ".csv")]
    # The default style first: a user's matplotlibrc would change the figure.
    with matplotlib.style.context(["default", _STYLE]):
        figure = draw()
        with atomic_write(paths[0]) as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None, "Title": title})
        with atomic_write(paths[1]) as stream:
            figure.savefig(stream, format="png", dpi=160, metadata={"Title": title})
    write_text(paths[2], format_table(rows, "csv") + "\n")
    return paths


def draw_dynamics(
    result: dict,
    *,
    title: str,
    metric: str,
    perf_label: str,
    percent: bool = False,
    unit: str = "%",
    include_normal: bool = False,
) -> Figure:
    """Agreement over training above, performance below, on a shared axis.

    Args:
        result: of statistics.summarize.
        title: one line above the figure.
        metric: the agreement metric of ``result``, for the upper axis.
        perf_label: label of ``alpha_perfs``, such as "test accuracy", for the lower axis.
        percent: True if ``alpha_perfs`` run to 100 (translation), False for fractions.
        unit: unit of a performance out of 100; "" for BLEU.
        include_normal: whether to draw ``agr_normal``, the KTIW of a normal run.
    """
    figure = Figure(figsize=_SIZE)
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.75, 1))
    figure.subplots_adjust(left=0.075, right=0.635, top=0.94, bottom=0.085, hspace=0.09)
    iterations = np.asarray(result["iterations"])
    upper.set_title(title)

    labels = [_draw_alpha(upper, iterations, result)]
    for name in LEVELS:
        hidden = name == "normal" and not include_normal
        if not hidden and np.isfinite(result.get(f"agr_{name}", np.nan)):
            labels.append(_draw_level(upper, name, result, end_bar=len(labels)))
    if np.isfinite(result["baseline_exact"]):
        exact = result["baseline_exact"]
        upper.axhline(exact, color=_CHANCE, dashes=(1, 2), linewidth=1.2)
        text = f"{exact:.3f}: random order (drawn: {result['baseline']:.3f})"
        labels.append((exact, rf"$\hat{{A}}$ = {text}", _CHANCE))
    upper.set_ylabel(f"agreement A ({metric})")
    _label_at_right(upper, labels)
    _note(upper, 1.01, 1.055, "bars: 95% intervals over examples", color=_CHANCE)

    scale = 1 if percent else 100
    height = _draw_perf(lower, iterations, result, perf_label, scale, unit)
    _mark_xi((upper, lower), iterations, result, scale, unit, taken=height)
    _iteration_axis(lower, iterations)
    figure.align_ylabels([upper, lower])
    return figure


# A label at the right of the axes: the height that it belongs to, its text and color.
Label = tuple[float, str, str]


def _draw_alpha(axes: Axes, iterations: np.ndarray, result: dict) -> Label:
    """Draw A(α_A, α_t) with its spread; return its label."""
    means, std = np.asarray(result["alpha_corrs"]), np.asarray(result["alpha_corrs_std"])
    low, high, spread = means - std, means + std, "mean ± std of normal runs"
    if not std.any():  # one run compared, as in translation: it has no spread over runs
        low, high = np.asarray(result["alpha_corrs_interval"]).T
        spread = "normal run, 95% interval"
    axes.fill_between(iterations, low, high, color=_ALPHA, alpha=0.18, linewidth=0)
    axes.plot(iterations, means, color=_ALPHA, linewidth=2, marker="o", markersize=3.5)
    return float(means[-1]), rf"$A(\alpha_A, \alpha_t)$: {spread}", _ALPHA


def _draw_level(axes: Axes, name: str, result: dict, end_bar: int) -> Label:
    """Draw a level agr_* as a line, its 95% interval right of the axes; return its label."""
    formula, _, meaning, color, dashes = LEVELS[name]
    level, (low, high) = result[f"agr_{name}"], result[f"agr_{name}_interval"]
    style = {"color": color, "linewidth": 1.5}
    axes.axhline(level, dashes=dashes or (None, None), **style)
    if np.isfinite([low, high]).all():
        ends = [[max(level - low, 0)], [max(high - level, 0)]]
        style |= {"transform": axes.get_yaxis_transform(), "clip_on": False}
        style |= {"capsize": 2.5, "marker": "o", "markersize": 3}
        axes.errorbar(_bar_position(end_bar), level, yerr=ends, **style)
    return float(level), f"${formula}$ = {level:.3f}: {meaning}", color


def _bar_position(number: int) -> float:
    """The horizontal position of interval bar ``number`` (from 1), in widths of the axes."""
    return 1.0 + 0.018 * number


def _label_at_right(axes: Axes, labels: list[Label]) -> None:
    """Write each label next to its line, moved apart if too close."""
    axes.relim()
    axes.autoscale_view()
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    heights = np.array([(height - low) / (high - low) for height, _, _ in labels])
    inches = axes.get_position().height * _SIZE[1]
    places = _apart(heights, gap=1.5 * _LABEL_POINTS / 72 / inches)
    start = _bar_position(len(labels))
    end = start + 0.05
    style = {"transform": axes.transAxes, "linewidth": 1.5, "clip_on": False}
    for (_, text, color), height, place in zip(labels, heights, places, strict=True):
        axes.plot([start, end], [height, place], color=color, **style)
        # The text is always dark: the paler colors would be hard to read.
        _note(axes, end + 0.012, place, text)


def _apart(heights: np.ndarray, gap: float) -> np.ndarray:
    """``heights`` in [0, 1], moved as little as possible (least squares) to be ``gap`` apart."""
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(heights))
    moved = isotonic_regression(heights[order] - steps).x.clip(0, max(0.0, 1 - steps[-1])) + steps
    places = np.empty_like(moved)
    places[order] = moved
    return places


def _draw_perf(
    axes: Axes, iterations: np.ndarray, result: dict, perf_label: str, scale: int, unit: str
) -> float:
    """Draw the performance with its spread; return the height of its label (fraction of axes)."""
    means = scale * np.asarray(result["alpha_perfs"])
    std = scale * np.asarray(result["alpha_perfs_std"])
    axes.fill_between(iterations, means - std, means + std, color=_PERF, alpha=0.15, linewidth=0)
    axes.plot(iterations, means, color=_PERF, linewidth=2, marker="o", markersize=3.5)
    axes.set_ylabel(f"{perf_label} ({unit})" if unit else perf_label)
    axes.autoscale_view()
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    height = (means[-1] - low) / (high - low)
    runs = "mean ± std of normal runs" if std.any() else "normal run"
    _note(axes, 1.02, height, f"{perf_label}: {runs}")
    return height


def _note(axes: Axes, x: float, y: float, text: str, color: str = _TEXT) -> None:
    """Text in the margin, in fractions of the axes."""
    place = {"transform": axes.transAxes, "va": "center_baseline"}
    axes.text(x, y, text, fontsize=_LABEL_POINTS, color=color, **place)


def _mark_xi(
    axes: tuple[Axes, Axes], iterations, result: dict, scale: int, unit: str, taken: float
) -> None:
    """Mark ξ: a line from where the α curve first exceeds agr_unif down to the performance there.

    Its text is in the margin, away from the label at height ``taken``.
    """
    lower = axes[1]
    place = 0.08 if taken > 0.5 else 0.82
    position = crossing(result["alpha_corrs"], result["agr_unif"])
    if position is None:
        text = "$\\xi$: none\n" + r"$\alpha$ never exceeds $A(\alpha_A, \beta^{uf})$"
        _note(lower, 1.02, place, text)
        return
    t, perf = iterations[position], scale * result["alpha_perfs"][position]
    color = LEVELS["unif"].color
    for each in axes:
        each.axvline(t, color=color, linewidth=1, dashes=(1, 1.5), zorder=1)
    diamond = {"marker": "D", "color": color, "linestyle": "none", "zorder": 4}
    lower.plot(t, perf, markersize=7, **diamond)
    key = {"transform": lower.transAxes, "clip_on": False, "markersize": 6}
    lower.plot(1.03, place + 0.045, **diamond, **key)
    text = rf"$\xi$ = {perf:.1f}{unit} at iteration {t:,}:"
    _note(lower, 1.05, place, text + "\n" + r"$\alpha$ first exceeds $A(\alpha_A, \beta^{uf})$")


def _iteration_axis(axes: Axes, iterations: np.ndarray) -> None:
    """A logarithmic axis that includes iteration 0; ticks at 0, powers of ten and the last."""
    positive = iterations[iterations > 0]
    if not len(positive):
        axes.set_xticks(iterations)
        axes.set_xlabel("training iteration")
        return
    first, last = int(positive[0]), int(positive[-1])
    axes.set_xscale("symlog", linthresh=first, linscale=0.35)
    powers = [10**k for k in range(12) if first * 1.6 < 10**k < last / 1.6]
    axes.xaxis.set_major_locator(FixedLocator(sorted({0, first, *powers, last})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t:,.0f}"))
    axes.set_xlabel(f"training iteration (logarithmic from {first:,} on, linear before)")

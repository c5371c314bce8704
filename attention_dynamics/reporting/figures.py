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
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from attention_dynamics.analysis.statistics import crossing
from attention_dynamics.names import LEVELS
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.storage.files import atomic_write, write_text

_ALPHA, _PERF, _CHANCE = "#0072B2", "#333333", "#6b6b6b"
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    # Element names in an svg are random without a salt.
    "svg.hashsalt": "attention_dynamics",
}
# Distance of the interval bars right of the axes, as a fraction of their width.
_BAR = 0.018


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
    figure = Figure(figsize=(10.4, 6.2))
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.75, 1))
    figure.subplots_adjust(left=0.075, right=0.62, top=0.94, bottom=0.085, hspace=0.09)
    upper.set_title(title)
    upper.set_ylabel(f"agreement A ({metric})")
    lower.set_ylabel(f"{perf_label} ({unit})" if unit else perf_label)

    lines = [_draw_curve(upper, result, "alpha_corrs", 1, _ALPHA, r"$A(\alpha_A, \alpha_t)$")]
    for name in LEVELS:
        hidden = name == "normal" and not include_normal
        if not hidden and np.isfinite(result.get(f"agr_{name}", np.nan)):
            lines.append(_draw_level(upper, name, result, place=1 + _BAR * len(lines)))
    exact, drawn = result["baseline_exact"], result["baseline"]
    if np.isfinite(exact):
        label = rf"$\hat{{A}}$ = {exact:.3f}: random order (drawn: {drawn:.3f})"
        style = {"color": _CHANCE, "dashes": (1, 2), "linewidth": 1.2}
        lines.append(upper.axhline(exact, label=label, **style))
    # In the order of the lines at their right ends.
    lines.sort(key=lambda line: -line.get_ydata()[-1])
    note = "bars: 95% intervals over examples"
    right = {"loc": "center left", "alignment": "left", "frameon": False}
    right |= {"fontsize": 8.5, "title_fontsize": 8.5}
    upper.legend(handles=lines, bbox_to_anchor=(1 + _BAR * len(lines), 0.5), title=note, **right)

    scale = 1 if percent else 100
    _draw_curve(lower, result, "alpha_perfs", scale, _PERF, perf_label)
    _mark_xi((upper, lower), result, scale, unit)
    lower.legend(bbox_to_anchor=(1, 0.5), **right)
    _iteration_axis(lower, np.asarray(result["iterations"]))
    figure.align_ylabels([upper, lower])
    return figure


def _draw_curve(axes: Axes, result: dict, key: str, scale: int, color: str, label: str) -> Line2D:
    """Draw a curve of ``result`` with its spread."""
    means, std = (scale * np.asarray(result[name]) for name in (key, f"{key}_std"))
    low, high, spread = means - std, means + std, "mean ± std of normal runs"
    if not std.any():  # one run compared, as in translation: it has no spread over runs
        spread = "normal run"
        if f"{key}_interval" in result:
            low, high = np.asarray(result[f"{key}_interval"]).T
            spread = "normal run, 95% interval"
    iterations = result["iterations"]
    axes.fill_between(iterations, low, high, color=color, alpha=0.18, linewidth=0)
    style = {"linewidth": 2, "marker": "o", "markersize": 3.5}
    return axes.plot(iterations, means, color=color, label=f"{label}: {spread}", **style)[0]


def _draw_level(axes: Axes, name: str, result: dict, place: float) -> Line2D:
    """Draw a level agr_* as a line, and its 95% interval right of the axes."""
    formula, _, meaning, color, dashes = LEVELS[name]
    level, (low, high) = result[f"agr_{name}"], result[f"agr_{name}_interval"]
    style = {"color": color, "linewidth": 1.5}
    if np.isfinite([low, high]).all():
        bar = {"transform": axes.get_yaxis_transform(), "clip_on": False}
        bar |= {"capsize": 2.5, "marker": "o", "markersize": 3}
        ends = [[max(level - low, 0)], [max(high - level, 0)]]
        axes.errorbar(place, level, yerr=ends, **style, **bar)
    label = f"${formula}$ = {level:.3f}: {meaning}"
    return axes.axhline(level, dashes=dashes or (None, None), label=label, **style)


def _mark_xi(axes: tuple[Axes, Axes], result: dict, scale: int, unit: str) -> None:
    """Mark ξ: a line from where the α curve first exceeds agr_unif to the performance below."""
    level = r"$A(\alpha_A, \beta^{uf})$"
    position = crossing(result["alpha_corrs"], result["agr_unif"])
    if position is None:
        axes[1].plot([], [], " ", label=rf"$\xi$: none, $\alpha$ never exceeds {level}")
        return
    t, perf = result["iterations"][position], scale * result["alpha_perfs"][position]
    color = LEVELS["unif"].color
    for each in axes:
        each.axvline(t, color=color, linewidth=1, dashes=(1, 1.5), zorder=1)
    label = f"$\\xi$ = {perf:.1f}{unit} at iteration {t:,}:\n$\\alpha$ first exceeds {level}"
    axes[1].plot(t, perf, "D", color=color, markersize=7, zorder=4, label=label)


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

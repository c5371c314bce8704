"""Tables of results as text, Markdown, LaTeX, CSV and JSON, and how numbers are written in them."""

import csv
import io
import json
import math
from collections.abc import Callable

import numpy as np
from tabulate import tabulate

from attention_dynamics.analysis.statistics import crossing
from attention_dynamics.names import LEVELS

FORMATS = ("text", "markdown", "latex", "csv", "json")
_TABULATE = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}
_TITLE = {"markdown": "### {}\n", "latex": "% {}"}

# Characters that pdflatex sets in formulas only.
_MATH = str.maketrans(
    {
        "α": r"$\alpha$",
        "β": r"$\beta$",
        "Δ": r"$\Delta$",
        "λ": r"$\lambda$",
        "ξ": r"$\xi$",
        "±": r"$\pm$",
    }
)


def format_table(rows: list[dict], fmt: str = "text", digits: int = 3) -> str:
    """A table of ``rows`` (the same keys in each) in one of FORMATS.

    In text, markdown and latex, floats are rounded to ``digits`` decimals, and None and NaN are
    "-"; in csv and json floats are not rounded, and None is an empty cell or null. Greek letters
    and ± are formulas in latex.
    """
    if fmt == "json":
        return json.dumps(rows, indent=2, ensure_ascii=False)
    header = list(rows[0])
    if fmt == "csv":
        stream = io.StringIO()
        writer = csv.DictWriter(stream, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue().rstrip("\n")
    cells = [[format_cell(row[key], digits) for key in header] for row in rows]
    table = tabulate(cells, header, tablefmt=_TABULATE[fmt], disable_numparse=True)
    return table.translate(_MATH) if fmt == "latex" else table


def titled(title: str, rows: list[dict], fmt: str) -> str:
    """A table below its title, which is written as usual in ``fmt``."""
    return f"{_TITLE.get(fmt, '{}').format(title)}\n{format_table(rows, fmt)}"


def format_cell(cell: object, digits: int = 3) -> str:
    """A cell to read: floats rounded, "-" for None and NaN."""
    if isinstance(cell, float):
        return "-" if math.isnan(cell) else f"{cell:.{digits}f}"
    return "-" if cell is None else str(cell)


def format_interval(interval: tuple[float, float] | None, digits: int = 3) -> str | None:
    """``[low, high]``; None when there is no interval or an end is undefined."""
    if interval is None or any(end is None or math.isnan(end) for end in interval):
        return None
    low, high = interval
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def format_percent(fraction: float) -> str:
    """A fraction in percent; a number that rounds to zero has no sign."""
    return f"{100 * fraction:z.1f}%"


def format_performance(result: dict, value: float | None, statistic: str) -> float | str | None:
    """``value`` of a statistic; with one decimal if it is a performance that runs to 100."""
    is_performance = statistic.startswith(("xi_", "best_"))
    if value is None or not is_performance or not result["best_perf"] > 1:
        return value
    return f"{value:.1f}"


def result_tables(results: dict, perf_label: str, fmt: str) -> str:
    """All results as one text in ``fmt`` (one of FORMATS).

    Args:
        results: {(dataset, metric, split, perf): result of statistics.summarise}.
        perf_label: what ``best_perf`` and ξ measure, such as "accuracy".
        fmt: csv and json give one long table, a record per number; the others a table of levels and
            one of curves per metric.
    """
    if fmt in ("csv", "json"):
        return format_table(long_records(results), fmt)
    blocks = []
    for metric in dict.fromkeys(key[1] for key in results):
        selected = {key: result for key, result in results.items() if key[1] == metric}
        blocks.append(titled(f"{metric}: levels", level_rows(selected, perf_label), fmt))
        names = _names(selected)
        for key, result in selected.items():
            title = f"{metric}: {', '.join(names[key])}, agreement of normal runs with the gold run"
            blocks.append(titled(title, curve_rows(result, perf_label), fmt))
    return "\n\n".join(blocks)


def _names(results: dict) -> dict[tuple, tuple[str, ...]]:
    """Key of a result -> dataset, split and, where a split has several, its performance."""
    several = len({key[:3] for key in results}) < len(results)
    return {key: (key[0], *key[2 : 4 if several else 3]) for key in results}


def agreements_of(*results: dict) -> list[str]:
    """The names x of the levels agr_x that any of the results holds, in the paper's order."""
    return [name for name in LEVELS if any(f"agr_{name}" in result for result in results)]


# Finds the authors' value: (key of a result, statistic) -> number or None.
Authors = Callable[[tuple, str], float | None]


def level_rows(results: dict, perf_label: str, authors: Authors | None = None) -> list[dict]:
    """A row per statistic, a column per dataset, split and performance (of one metric).

    Results of the published code are accepted: statistics that they lack are None.

    Args:
        results: as in :func:`result_tables`.
        perf_label: what ``best_perf`` and ξ measure.
        authors: if given, a column of the authors' values follows each result that has any.
    """
    names = agreements_of(*results.values())
    # Label of the row -> its statistic, in the results and in the authors' numbers.
    statistics = {
        **{f"agr_{name}": f"agr_{name}" for name in names},
        "baseline (shuffle)": "baseline",
        "baseline (exact)": "baseline_exact",
        **{f"xi_{name}": f"xi_{name}" for name in names},
        f"best {perf_label} (gold run)": "best_perf",
        "gold iteration": "gold_iteration",
    }
    rows = {label: {"statistic": label} for label in statistics}
    rows |= {
        label: {"statistic": label}
        for label in (
            *(f"agr_{name}, gold chosen on the other split" for name in names),
            "gold iteration, chosen on the other split",
        )
        if any("heldout" in result for result in results.values())
    }
    names_of = _names(results)
    for key, result in results.items():
        column, heldout = " ".join(names_of[key]), result.get("heldout", {})
        for label, row in rows.items():
            statistic = statistics.get(label)
            if statistic is None:
                row[column] = heldout.get(label.partition(",")[0].replace(" ", "_"))
            else:
                row[column] = level_cell(result, statistic)
        theirs = {
            label: format_performance(result, authors(key, statistic), statistic)
            if authors
            else None
            for label, statistic in statistics.items()
        }
        if any(value is not None for value in theirs.values()):
            for label, row in rows.items():
                row[f"{column}, authors' run"] = theirs.get(label)
    return list(rows.values())


def level_cell(result: dict, statistic: str) -> object:
    """A statistic of a result: with its interval, or its bracket in the case of ξ, if it has one.

    ξ lies between the performances at two checkpoints, the last one whose attention does not agree
    more than the level and the first one whose attention does; the bracket names both.
    """
    value = result.get(statistic)
    if statistic.startswith(("xi_", "best_")):
        bracket = result.get(f"{statistic}_bracket")
        text = format_interval(bracket, 1 if result["best_perf"] > 1 else 3)
        value = format_performance(result, value, statistic)
        return value if text is None or value is None else f"{format_cell(value)} {text}"
    interval = format_interval(result.get(f"{statistic}_interval"))
    return value if interval is None else f"{value:.3f} {interval}"


def curve_rows(result: dict, perf_label: str, authors: dict[int, float] | None = None) -> list:
    """A row per iteration: agreement with the gold run, performance.

    Means ± standard deviation over the runs; a single run (translation) has none, so no ±.

    Args:
        result: of statistics.summarise, or of the published code (without spread and intervals).
        perf_label: what the performance measures.
        authors: iteration -> the authors' agreement; iterations of theirs alone are rows too.
    """
    places = {int(t): place for place, t in enumerate(result["iterations"])}
    spread = any(np.any(result.get(f"{key}_std", 0)) for key in ("alpha_corrs", "alpha_perfs"))

    def shown(key: str, place: int | None) -> str | None:
        if place is None or math.isnan(result[key][place]):
            return None
        mean, std = result[key][place], result[f"{key}_std"][place] if spread else math.nan
        return f"{mean:.3f}" if math.isnan(std) else f"{mean:.3f} ± {std:.3f}"

    intervals = result.get("alpha_corrs_interval")
    rows = []
    for t in sorted({*places, *(authors or {})}):
        place = places.get(t)
        has_interval = place is not None and intervals is not None
        rows.append(
            {
                "iteration": t,
                "agreement of α": shown("alpha_corrs", place),
                **({"authors' run": authors.get(t)} if authors else {}),
                "95% interval": format_interval(intervals[place]) if has_interval else None,
                perf_label: shown("alpha_perfs", place),
            }
        )
    return rows


def long_records(results: dict) -> list[dict]:
    """A record per number: dataset, metric, split, performance, and those of result_records."""
    return [
        {**dict(zip(("dataset", "metric", "split", "performance"), key, strict=True)), **record}
        for key, result in results.items()
        for record in result_records(result)
    ]


def result_records(result: dict) -> list[dict]:
    """A record per number of a result: statistic, iteration, value, low, high, std.

    ``low`` and ``high`` are the 95% interval, or the bracket of ξ. What is absent or undefined is
    None (JSON has no NaN).
    """
    records = []

    def add(statistic, value, iteration=None, interval=(None, None), std=None) -> None:
        low, high = interval
        numbers = {"value": value, "low": low, "high": high, "std": std}
        plain = {
            name: None if number is None or math.isnan(number) else float(number)
            for name, number in numbers.items()
        }
        records.append({"statistic": statistic, "iteration": iteration, **plain})

    for name in agreements_of(result):
        level, xi = result[f"agr_{name}"], result[f"xi_{name}"]
        add(f"agr_{name}", level, result[f"agr_{name}_iteration"], result[f"agr_{name}_interval"])
        position = crossing(result["alpha_corrs"], level)
        iteration = None if position is None else result["iterations"][position]
        add(f"xi_{name}", xi, iteration, result.get(f"xi_{name}_bracket", (None, None)))
        if "heldout" in result:
            heldout = result["heldout"]
            add(f"agr_{name}_heldout", heldout[f"agr_{name}"], heldout["gold_iteration"])
    for statistic in ("baseline", "baseline_exact"):
        add(statistic, result[statistic])
    add("best_perf", result["best_perf"], result["gold_iteration"])
    for place, iteration in enumerate(result["iterations"]):
        corr, perf = result["alpha_corrs"][place], result["alpha_perfs"][place]
        interval = result["alpha_corrs_interval"][place]
        add("alpha_corrs", corr, iteration, interval, result["alpha_corrs_std"][place])
        add("alpha_perfs", perf, iteration, std=result["alpha_perfs_std"][place])
    return records

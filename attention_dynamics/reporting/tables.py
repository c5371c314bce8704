"""How tables and numbers are written (digits, intervals), and the tables of agreement."""

import csv
import io
import json
import math
import re
from typing import NamedTuple

import numpy as np
from tabulate import tabulate

from attention_dynamics.analysis.statistics import crossing
from attention_dynamics.names import LEVELS
from attention_dynamics.reporting.results import authors_numbers

FORMATS = ("text", "markdown", "latex", "csv", "json")
_TABULATE = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}
_TITLE = {"markdown": "### {}\n", "latex": "% {}"}
# Characters that pdflatex sets in formulas only.
_FORMULAS = zip("αβΔλξ±", ("alpha", "beta", "Delta", "lambda", "xi", "pm"), strict=True)
_MATH = str.maketrans({character: rf"$\{name}$" for character, name in _FORMULAS})


class Table(NamedTuple):
    """A table: its title, and rows with the same keys."""

    title: str
    rows: list[dict]


def format_table(rows: list[dict], fmt: str = "text", digits: int = 3) -> str:
    """A table of ``rows`` (the same keys in each) in one of FORMATS.

    In text, markdown and latex, floats are rounded to ``digits`` decimals, and None and NaN are
    "-"; in csv and json floats are not rounded, and None is an empty cell or null.
    """
    if fmt == "json":
        return json.dumps(rows, indent=2, ensure_ascii=False)
    if fmt == "csv":
        stream = io.StringIO()
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue().rstrip("\n")
    cells = [[format_cell(row[key], digits) for key in rows[0]] for row in rows]
    table = tabulate(cells, [*rows[0]], tablefmt=_TABULATE[fmt], disable_numparse=True)
    return table.translate(_MATH) if fmt == "latex" else table


def titled(title: str, rows: list[dict], fmt: str) -> str:
    """A table below its title, which is written as usual in ``fmt``."""
    return f"{_TITLE.get(fmt, '{}').format(title)}\n{format_table(rows, fmt)}"


def format_cell(cell: object, digits: int = 3) -> str:
    """A cell to read: floats rounded, "-" for None and NaN."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


def format_interval(interval: tuple[float, float] | None, digits: int = 3) -> str | None:
    """``[low, high]``; None when there is no interval or an end is undefined."""
    if interval is None or any(end is None or math.isnan(end) for end in interval):
        return None
    low, high = sorted(interval)
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def format_percent(fraction: float) -> str:
    """A fraction in percent; a number that rounds to zero has no sign."""
    return f"{100 * fraction:z.1f}%"


def format_performance(result: dict, value: float | None, statistic: str) -> float | str | None:
    """``value`` of a statistic; with one decimal if it is a performance that runs to 100."""
    is_percent = result["best_perf"] > 1 and statistic.startswith(("xi_", "best_"))
    return f"{value:.1f}" if is_percent and value is not None else value


def result_tables(results: dict, perf_label: str, fmt: str) -> str:
    """All results as one text in ``fmt`` (one of FORMATS).

    Args:
        results: {(dataset, metric, split, perf): result of statistics.summarize}.
        perf_label: what ``best_perf`` and ξ measure, such as "accuracy".
        fmt: csv and json give one long table, a record per number; the others those of
            :func:`agreement_tables`.
    """
    if fmt in ("csv", "json"):
        names = ("dataset", "metric", "split", "performance")
        records = [
            {**dict(zip(names, key, strict=True)), **record}
            for key, result in results.items()
            for record in result_records(result)
        ]
        return format_table(records, fmt)
    return "\n\n".join(titled(*table, fmt) for table in agreement_tables(results, perf_label))


def agreement_tables(results: dict, perf_label: str, authors: bool = False) -> list[Table]:
    """For each metric the levels, then the curves; with the authors' numbers if ``authors``."""
    tables = []
    for metric in dict.fromkeys(key[1] for key in results):
        selected = {key: result for key, result in results.items() if key[1] == metric}
        title = f"{', '.join(dict.fromkeys(key[0] for key in selected))}: agreement by {metric}"
        rows = level_rows(selected, perf_label, authors)
        tables.append(Table(f"{title}, and {perf_label}", rows))
        for key, result in selected.items():
            title = f"{key[0]}, {key[2]}: agreement of normal runs with the gold run ({metric})"
            note = result.get("interval_note")
            theirs = authors_numbers(key).get("curve") if authors else None
            rows = curve_rows(result, perf_label, theirs)
            tables.append(Table(f"{title}; {note}" if note else title, rows))
    return tables


def agreements_of(*results: dict) -> list[str]:
    """The names x of the levels agr_x that any of the results holds, in the paper's order.

    ``logistic`` is followed by ``logistic_C10``, ..., by ascending regularization strength.
    """
    level = re.compile(rf"agr_({'|'.join(LEVELS)})(?:_C([0-9.e+-]+))?")
    keys = {key for result in results for key in result}
    matches = {m[0][4:]: m for key in keys if (m := level.fullmatch(key))}
    order = list(LEVELS)
    return sorted(matches, key=lambda x: (order.index(matches[x][1]), float(matches[x][2] or 0)))


def level_rows(results: dict, perf_label: str, authors: bool = False) -> list[dict]:
    """A row per statistic, a column per dataset and split (of one metric and performance).

    Statistics that results of the published code lack are None. With ``authors``, a column of their
    values follows each result that has any.
    """
    names = agreements_of(*results.values())
    statistics = {
        **{f"agr_{name}": f"agr_{name}" for name in names},
        "baseline (shuffle)": "baseline",
        "baseline (exact)": "baseline_exact",
        **{f"xi_{name}": f"xi_{name}" for name in names},
        f"best {perf_label} (gold run)": "best_perf",
        "gold iteration": "gold_iteration",
    }
    if any("heldout" in result for result in results.values()):
        for name in names:
            statistics[f"agr_{name}, gold chosen on the other split"] = f"heldout_agr_{name}"
        statistics["gold iteration, chosen on the other split"] = "heldout_gold_iteration"
    rows = [{"statistic": label} for label in statistics]
    for key, result in results.items():
        heldout = {f"heldout_{name}": value for name, value in result.get("heldout", {}).items()}
        column, numbers = f"{key[0]} {key[2]}", {**result, **heldout}
        theirs = authors_numbers(key) if authors else {}
        for row, name in zip(rows, statistics.values(), strict=True):
            row[column] = level_cell(numbers, name)
            if theirs:
                value = format_performance(result, theirs.get(name), name)
                row[f"{column}, authors' run"] = value
    return rows


def level_cell(result: dict, statistic: str) -> object:
    """A statistic of a result: with its interval, or its bracket in the case of ξ, if it has one.

    The bracket of ξ is the performance at the last checkpoint whose attention does not agree more
    than the level, and at the first one whose attention does; the lower one comes first.
    """
    value = format_performance(result, result.get(statistic), statistic)
    interval = result.get(f"{statistic}_bracket", result.get(f"{statistic}_interval"))
    text = format_interval(interval, 1 if isinstance(value, str) else 3)
    return value if text is None or value is None else f"{format_cell(value)} {text}"


def curve_rows(result: dict, perf_label: str, authors: dict[int, float] | None = None) -> list:
    """A row per iteration: agreement with the gold run, performance.

    Means ± standard deviation over the runs; a single run (translation) has none, so no ±.

    Args:
        result: of statistics.summarize, or of the published code (without spread and intervals).
        perf_label: what the performance measures.
        authors: iteration -> the authors' agreement; iterations of theirs alone are rows too.
    """
    authors, place = authors or {}, {t: number for number, t in enumerate(result["iterations"])}
    spread = any(np.any(result.get(f"{key}_std", 0)) for key in ("alpha_corrs", "alpha_perfs"))

    def at(t: int, key: str) -> object:
        return result[key][place[t]] if t in place and key in result else None

    def cell(t: int, key: str) -> str | None:
        mean = at(t, key)
        if mean is None or math.isnan(mean):
            return None
        return f"{mean:.3f} ± {at(t, f'{key}_std'):.3f}" if spread else f"{mean:.3f}"

    rows = []
    for t in sorted({*place, *authors}):
        row = {"iteration": t, "agreement of α": cell(t, "alpha_corrs")}
        if authors:
            row["authors' run"] = authors.get(t)
        row["95% interval"] = format_interval(at(t, "alpha_corrs_interval"))
        rows.append({**row, perf_label: cell(t, "alpha_perfs")})
    return rows


def result_records(result: dict) -> list[dict]:
    """A record per number of a result: statistic, iteration, value, low, high, std.

    ``low`` and ``high`` are the 95% interval, or the bracket of ξ. What is absent or undefined is
    None (JSON has no NaN).
    """
    records = []

    def add(statistic, value, iteration=None, interval=(None, None), std=None) -> None:
        numbers = {"value": value, "low": interval[0], "high": interval[1], "std": std}
        plain = {
            name: None if number is None or math.isnan(number) else float(number)
            for name, number in numbers.items()
        }
        records.append({"statistic": statistic, "iteration": iteration, **plain})

    for name in agreements_of(result):
        level = result[f"agr_{name}"]
        add(f"agr_{name}", level, result[f"agr_{name}_iteration"], result[f"agr_{name}_interval"])
        position = crossing(result["alpha_corrs"], level)
        iteration = None if position is None else result["iterations"][position]
        add(f"xi_{name}", result[f"xi_{name}"], iteration, result[f"xi_{name}_bracket"])
        if heldout := result.get("heldout"):
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

"""Tables of results in text, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import math

import numpy as np
from tabulate import tabulate

from attention_dynamics.names import LEVELS

FORMATS = ("text", "markdown", "latex", "csv", "json")
_TABULATE = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}

# What pdflatex sets in formulas alone.
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
    """A table of ``rows`` (same keys in each) in a format.

    In text, markdown and latex, floats are rounded to ``digits`` places, and None and NaN are "-";
    in csv and json floats are kept whole, and None is an empty cell or null. Greek letters and ±
    are formulas in latex.
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
    cells = [[_shown(row[key], digits) for key in header] for row in rows]
    table = tabulate(cells, header, tablefmt=_TABULATE[fmt], disable_numparse=True)
    return table.translate(_MATH) if fmt == "latex" else table


def _shown(cell: object, digits: int) -> str:
    if isinstance(cell, float):
        return "-" if math.isnan(cell) else f"{cell:.{digits}f}"
    return "-" if cell is None else str(cell)


_TITLE = {"markdown": "### {}\n", "latex": "% {}"}


def result_tables(results: dict, perf_label: str, fmt: str) -> str:
    """All results as one text in ``fmt`` (see tables.FORMATS).

    Args:
        results: {(dataset, metric, split, perf): what statistics.summarise returned}.
        perf_label: what ``best_perf`` and ξ are, such as "accuracy".
        fmt: csv and json give one long table, a record per number; the others a table of levels and
            one of curves per metric.
    """
    if fmt in ("csv", "json"):
        return format_table(long_records(results), fmt)
    blocks = []
    for metric in dict.fromkeys(key[1] for key in results):
        some = {key: result for key, result in results.items() if key[1] == metric}
        blocks.append(titled(f"{metric}: levels", level_rows(some, perf_label), fmt))
        names = _names(some)
        for key, result in some.items():
            title = f"{metric}: {', '.join(names[key])}, agreement of normal runs with the gold run"
            blocks.append(titled(title, curve_rows(result, perf_label), fmt))
    return "\n\n".join(blocks)


def titled(title: str, rows: list[dict], fmt: str) -> str:
    """A table under its title, written as ``fmt`` writes titles."""
    return f"{_TITLE.get(fmt, '{}').format(title)}\n{format_table(rows, fmt)}"


def agreements_of(result: dict) -> list[str]:
    """The names x of the levels agr_x that a result holds, in the paper's order."""
    return [name for name in LEVELS if f"agr_{name}" in result]


def _names(results: dict) -> dict[tuple, tuple[str, ...]]:
    """Key of a result -> data set, split and, where a split has several, its performance."""
    several = len({key[:3] for key in results}) < len(results)
    return {key: (key[0], *key[2 : 4 if several else 3]) for key in results}


def level_rows(results: dict, perf_label: str) -> list[dict]:
    """A row per statistic, a column per data set, split and performance (of one metric)."""
    names_of = _names(results)
    columns = {" ".join(names_of[key]): result for key, result in results.items()}
    names = [n for n in LEVELS if any(f"agr_{n}" in result for result in columns.values())]
    rows = [_row(f"agr_{n}", columns, lambda r, n=n: _interval(r, f"agr_{n}")) for n in names]
    rows.append(_row("baseline (shuffle)", columns, lambda r: r["baseline"]))
    rows.append(_row("baseline (exact)", columns, lambda r: r["baseline_exact"]))
    rows += [_row(f"xi_{n}", columns, lambda r, n=n: r.get(f"xi_{n}")) for n in names]
    rows.append(_row(f"best {perf_label} (gold run)", columns, lambda r: r["best_perf"]))
    rows.append(_row("gold iteration", columns, lambda r: r["gold_iteration"]))
    if any("heldout" in result for result in columns.values()):
        for n in names:
            rows.append(
                _row(
                    f"agr_{n}, gold chosen on the other split",
                    columns,
                    lambda r, n=n: r.get("heldout", {}).get(f"agr_{n}"),
                )
            )
        rows.append(
            _row(
                "gold iteration, chosen on the other split",
                columns,
                lambda r: r.get("heldout", {}).get("gold_iteration"),
            )
        )
    return rows


def _row(name: str, columns: dict, cell) -> dict:
    return {"statistic": name, **{column: cell(result) for column, result in columns.items()}}


def _interval(result: dict, key: str) -> str | None:
    if key not in result:
        return None
    level, interval = _number(result[key]), _bounds(result[f"{key}_interval"])
    return f"{level} {interval}" if interval else level


def _number(value: float) -> str | None:
    return None if math.isnan(value) else f"{value:.3f}"


def _bounds(interval: tuple[float, float]) -> str | None:
    low, high = map(_number, interval)
    return f"[{low}, {high}]" if low and high else None


def curve_rows(result: dict, perf_label: str) -> list[dict]:
    """A row per iteration: agreement with the gold run, performance.

    Means ± standard deviation over the runs; a single run (translation) has none, so no ±.
    """

    def shown(key: str, place: int) -> str | None:
        mean, std = _number(result[key][place]), _number(result[f"{key}_std"][place])
        return f"{mean} ± {std}" if spread and mean and std else mean

    spread = np.any(result["alpha_corrs_std"]) or np.any(result["alpha_perfs_std"])
    rows = []
    for place, iteration in enumerate(result["iterations"]):
        rows.append(
            {
                "iteration": iteration,
                "agreement of α": shown("alpha_corrs", place),
                "95% interval": _bounds(result["alpha_corrs_interval"][place]),
                perf_label: shown("alpha_perfs", place),
            }
        )
    return rows


def long_records(results: dict) -> list[dict]:
    """A record per number: data set, metric, split, statistic, iteration, value, low, high, std."""
    records = []
    for (dataset, metric, split, perf), result in results.items():

        def add(
            statistic, value, iteration=None, interval=(None, None), std=None,
            key=(dataset, metric, split, perf),
        ):  # fmt: skip
            low, high = interval
            names = ("dataset", "metric", "split", "performance")
            record = dict(zip(names, key, strict=True))
            numbers = {"value": value, "low": low, "high": high, "std": std}
            clean = {k: _plain(number) for k, number in numbers.items()}
            records.append({**record, "statistic": statistic, "iteration": iteration, **clean})

        for name in agreements_of(result):
            where, interval = result[f"agr_{name}_iteration"], result[f"agr_{name}_interval"]
            add(f"agr_{name}", result[f"agr_{name}"], where, interval)
            add(f"xi_{name}", result[f"xi_{name}"])
            if "heldout" in result:
                heldout = result["heldout"]
                add(f"agr_{name}_heldout", heldout[f"agr_{name}"], heldout["gold_iteration"])
        for key in ("baseline", "baseline_exact"):
            add(key, result[key])
        add("best_perf", result["best_perf"], result["gold_iteration"])
        for place, iteration in enumerate(result["iterations"]):
            interval = result["alpha_corrs_interval"][place]
            corr, std = result["alpha_corrs"][place], result["alpha_corrs_std"][place]
            add("alpha_corrs", corr, iteration, interval, std)
            perf_std = result["alpha_perfs_std"][place]
            add("alpha_perfs", result["alpha_perfs"][place], iteration, std=perf_std)
    return records


def _plain(number) -> float | None:
    """A Python float; None for what is absent or undefined (JSON knows no NaN)."""
    return None if number is None or math.isnan(number) else float(number)

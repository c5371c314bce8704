"""Result tables in the formats people paste: text, markdown, latex, csv, json."""

import csv
import io
import json
import math

from tabulate import tabulate

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

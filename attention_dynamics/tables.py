"""Result tables in the formats people paste: text, markdown, latex, csv, json."""

import csv
import io
import json

from tabulate import tabulate

FORMATS = ("text", "markdown", "latex", "csv", "json")
_TABULATE = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}


def format_table(rows: list[dict], fmt: str = "text", digits: int = 3) -> str:
    """A table of ``rows`` (same keys in each; None is an empty cell or "-") in a format.

    Floats are rounded to ``digits`` places in text, markdown and latex, and kept whole in csv and
    json.
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
    cells = [
        ["-" if row[key] is None else _shown(row[key], digits) for key in header] for row in rows
    ]
    return tabulate(cells, header, tablefmt=_TABULATE[fmt], disable_numparse=True)


def _shown(cell: object, digits: int) -> str:
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)

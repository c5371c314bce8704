"""The report: one HTML page with all findings, tables next to the authors' numbers, and figures.

Everything on it comes from files: results of the collect scripts, records of runs, figures, pages
with a slider, and papers.json. A file that cannot be read costs its own part of the page only, and
is named there.
"""

import base64
import html
import re
from pathlib import Path

from attention_dynamics.names import LEVELS, SHORT
from attention_dynamics.reporting.results import EXPERIMENTS, find, read_papers
from attention_dynamics.reporting.sections import leaving_out, read_experiment
from attention_dynamics.reporting.tables import Table, format_cell
from attention_dynamics.reporting.templating import render
from attention_dynamics.runs.records import provenance
from attention_dynamics.storage.files import read_json

# What stands below the name of a statistic in the tables.
_LABELS = {
    **{f"agr_{name}": f"{level.symbol}: {level.label}" for name, level in LEVELS.items()},
    "baseline (shuffle)": "random order, one shuffle",
    "baseline (exact)": "random order, expectation",
    "xi_unif": "performance when α first agrees more than agr_unif",
}


def write_report_text() -> tuple[str, list[str]]:
    """The page, and a line for each file that had to be left out."""
    sections = [_section(experiment) for experiment in EXPERIMENTS]
    context = {"labels": _LABELS, "commit": provenance()["commit"], "format_cell": format_cell}
    text = render("report.html", sections=sections, **context)
    return text, [line for section in sections for line in section["problems"]]


def _section(experiment: str) -> dict:
    """All that the page shows about one experiment."""
    papers = read_papers()
    numbers = [*papers["runs"], papers["papa"]]
    problems: dict[Path, str] = {}
    return {
        "name": experiment,
        "terms": [],
        **papers["experiments"][experiment],
        "groups": read_experiment(experiment, problems),
        "sources": [one["source"] for one in numbers if one["experiment"] == experiment],
        "figures": [_figure(path) for path in find(experiment, "figures")],
        "pages": [(path, path.read_text("utf-8", "replace")) for path in find(experiment, "pages")],
        "records": _records(experiment, problems),
        "problems": [*problems.values()],
    }


def _records(experiment: str, problems: dict[Path, str]) -> Table:
    """The records of all runs and outputs, a row for each."""
    rows = []
    for path in find(experiment, "records"):
        with leaving_out(path, problems):
            record = read_json(path, "record")
            settings = record.get("settings", {})
            versions = [f"{name} {version}" for name, version in record.get("versions", {}).items()]
            row = {
                "record": str(path),
                "command": record["command"],
                "seed": settings.get("seed", settings.get("seeds")),
                "commit": (record.get("commit") or "unknown")[:12],
                "checksum of the data": settings.get("checksums", settings).get("data"),
                "versions and machine": ", ".join([*versions, str(record.get("machine"))]),
            }
            rows.append(row)
    return Table(f"Runs: commands, seeds, commits, data, versions ({len(rows)})", rows)


def _figure(path: Path) -> dict:
    """An svg figure as a data URI, with a title."""
    text = path.read_text(encoding="utf-8")
    named = re.search(r"<(?:dc:)?title>([^<]+)<", text)
    title = html.unescape(named[1]) if named else path.stem
    for metric, short in SHORT.items():
        if path.stem.endswith(f"_{short}"):
            title = f"{title}: agreement ({metric}) and performance over training"
    numbers = path.with_suffix(".csv")
    return {
        "file": path,
        "numbers": numbers if numbers.exists() else "",
        "title": title,
        "uri": "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode(),
    }

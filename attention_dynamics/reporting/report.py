"""The report: one HTML page with all findings, tables next to the authors' numbers, and figures.

Everything on it comes from files: results of the collect scripts, records of runs, figures, pages
with a slider, and papers.json. A file that cannot be read costs its own part of the page only, and
is named there.
"""

import base64
import html
import re
from pathlib import Path

from attention_dynamics.cli import InputError
from attention_dynamics.names import LEVELS, SHORT
from attention_dynamics.reporting.results import (
    EXPERIMENTS,
    check_root,
    find,
    read_object,
    read_papers,
)
from attention_dynamics.reporting.sections import MALFORMED, read_experiment
from attention_dynamics.reporting.tables import Table, format_cell
from attention_dynamics.reporting.templating import render
from attention_dynamics.runs.records import provenance

# What stands below the name of a statistic in the tables.
_LABELS = {
    **{f"agr_{name}": f"{level.symbol}: {level.label}" for name, level in LEVELS.items()},
    "baseline (shuffle)": "random order, one shuffle",
    "baseline (exact)": "random order, expectation",
    "xi_unif": "performance when α first agrees more than agr_unif",
}


def write_report_text(command: str) -> tuple[str, list[str]]:
    """The page, and a line for each file that had to be left out.

    Args:
        command: the command shown on the page as the one that made it.

    Raises InputError when the working directory is not the root of the repository.
    """
    check_root()
    sections = [_section(experiment) for experiment in EXPERIMENTS]
    versions = sorted({line for section in sections for line in section.pop("versions")})
    text = render(
        "report.html",
        sections=sections,
        labels=_LABELS,
        command=command,
        commit=provenance()["commit"],
        versions=Table("Versions and machines of the runs", [{"versions": v} for v in versions]),
        format_cell=format_cell,
    )
    return text, [line for section in sections for line in section["problems"]]


def _section(experiment: str) -> dict:
    """All that the page shows about one experiment."""
    papers = read_papers()
    groups, problems = read_experiment(experiment)
    records, versions = _records(experiment, problems)
    numbers = [*papers["runs"], papers["papa"]]
    return {
        "name": experiment,
        "terms": [],
        **papers["experiments"][experiment],
        "groups": groups,
        "sources": [one["source"] for one in numbers if one["experiment"] == experiment],
        "figures": [_figure(path) for path in find(experiment, "figures")],
        "pages": [(path, path.read_text("utf-8", "replace")) for path in find(experiment, "pages")],
        "records": records,
        "problems": problems,
        "versions": versions,
    }


def _records(experiment: str, problems: list[str]) -> tuple[Table, list[str]]:
    """The records of all runs and outputs as a table; their versions and machines."""
    rows, versions = [], []
    for path in find(experiment, "records"):
        try:
            record = read_object(path, "record")
            settings = record.get("settings", {})
            where = path.parent if path.name == "run.json" else path
            row = {
                "run or output": str(Path(*where.parts[1:])),
                "command": record["command"],
                "seed": settings.get("seed", settings.get("seeds")),
                "commit": str(record.get("commit") or "unknown")[:12],
                "checksum of the data": settings.get("checksums", settings).get("data"),
            }
            named = ", ".join(f"{name} {v}" for name, v in record.get("versions", {}).items())
            versions.append(f"{named}; {record.get('machine', 'unknown machine')}")
            rows.append(row)
        except (InputError, *MALFORMED):
            if not any(str(path) in problem for problem in problems):
                problems.append(f"record {path}: malformed; run the step again")
    return Table(f"Runs: commands, seeds, commits, data ({len(rows)})", rows), versions


def _figure(path: Path) -> dict:
    """An svg figure as a data URI, with a title and an alt text."""
    text = path.read_text(encoding="utf-8")
    named = re.search(r"<(?:dc:)?title>([^<]+)<", text)
    title = html.unescape(named[1]) if named else path.stem
    shows = "the numbers of the tables above"
    for metric, short in SHORT.items():
        if path.stem.endswith(f"_{short}"):
            title = f"{title}: agreement ({metric}) and performance over training"
            shows = "agreement with the gold run and the levels agr_*; below, performance"
    numbers = path.with_suffix(".csv")
    return {
        "file": path,
        "numbers": numbers if numbers.exists() else "",
        "title": title,
        "alt": f"{title}; {shows}",
        "uri": "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode(),
    }

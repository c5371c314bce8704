"""The report: one HTML page with all findings, tables next to the authors' numbers, and figures.

Everything on it comes from files: results of the collect scripts, records of runs, figures, pages
with a slider, and papers.json. A file that cannot be read costs its own part of the page only, and
is named there.
"""

import base64
import xml.etree.ElementTree
from pathlib import Path

from attention_dynamics.cli import InputError
from attention_dynamics.names import LEVELS, SHORT
from attention_dynamics.reporting.results import (
    EXPERIMENTS,
    check_root,
    figure_files,
    page_files,
    read_object,
    read_papers,
    record_files,
)
from attention_dynamics.reporting.sections import Table, read_experiment
from attention_dynamics.reporting.tables import format_cell
from attention_dynamics.reporting.templating import render
from attention_dynamics.runs.records import provenance

# Experiment -> title, question, command that makes a first small example.
_SECTIONS = {
    "classification": (
        "Classification: does attention go to words that were already known?",
        "A binary classifier reads a text. Its score is the sum over words of α times β: α is the "
        "attention that a word gets, β the vote of that word for the correct label. One run is "
        "trained with its attention frozen uniform, so that it learns votes only; they are called "
        "β^uf. Do these votes predict where a normally trained run will attend?",
        "bash run.sh",
    ),
    "translation": (
        "Translation: does attention go to words that were already known?",
        "A translator with a single attention head. One run is trained with its attention frozen "
        "uniform. Here β^uf is the log-probability that this run gives to the correct target piece "
        "when it attends to a single source piece. Does it predict where a normally trained run "
        "will attend?",
        "bash run.sh translation",
    ),
    "SequenceCopying": (
        "Sequence copying: when can attention not be learned?",
        "A model copies a sequence of 40 different tokens. Drawn from 40 tokens, every sequence "
        "holds the same tokens, so that nothing can be learned about single words before attention "
        "works. Drawn from 60 tokens, sequences differ. How many runs learn to copy? A good head "
        "is a head of fixed attention from which copying is learned, a bad head one from which it "
        "is not.",
        "bash run.sh copying",
    ),
    "papa": (
        "PAPA: how much does attention that depends on the input matter?",
        "In a pretrained encoder, some or all attention matrices are replaced by constant ones, "
        "and a classifier is trained on the result. How much of the score is lost? The relative "
        "drop is the loss divided by the score without constant heads.",
        "bash run.sh papa",
    ),
}
# The terms of classification and translation, explained where they first appear.
_TERMS = {
    "α, β, β^uf": "scores of the words of a text: attention; what a word says about the output; "
    "the same in the run with attention frozen uniform (also called KTIW, knowledge to translate "
    "individual words).",
    "Agreement A": "how far two such scores agree, averaged over texts. Top 5% match: how often "
    "the word with the highest score of the first is among the top 5% of the second. Kendall tau: "
    "rank correlation. Random order: the agreement of attention that is shuffled within each text.",
    "Gold run": "the run normal_A at its best checkpoint, the gold iteration. Other normal runs "
    "are compared with it.",
    "ξ (xi_unif)": "performance of the other normal runs at the first checkpoint whose attention "
    "agrees with the gold run more than the votes β^uf do (agr_unif). Its bracket: the performance "
    "at the checkpoint before, and at this one.",
}
# What stands below the name of a statistic in the tables.
_LABELS = {
    **{f"agr_{name}": f"{level.symbol}: {level.label}" for name, level in LEVELS.items()},
    "baseline (shuffle)": "random order, one shuffle",
    "baseline (exact)": "random order, expectation",
    "xi_unif": "performance when α first agrees more than agr_unif",
}
_METRICS = {short: metric for metric, short in SHORT.items()}
_TITLE_OF_PAGE = {
    "tokens": "sentences, coloured by α",
    "matrices": "sentence pairs, α next to β^uf",
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
        terms=_TERMS,
        labels=_LABELS,
        command=command,
        commit=provenance()["commit"],
        versions=Table("Versions and machines of the runs", [{"versions": v} for v in versions]),
        format_cell=format_cell,
    )
    return text, [line for section in sections for line in section["problems"]]


def _section(experiment: str) -> dict:
    """All that the page shows about one experiment."""
    title, question, command = _SECTIONS[experiment]
    papers = read_papers()
    groups, problems = read_experiment(experiment)
    records, versions = _records(experiment, problems)
    sources = [run["source"] for run in papers["runs"] if run["experiment"] == experiment]
    return {
        "name": experiment,
        "title": title,
        "question": question,
        "command": command,
        "paper": papers["findings"][experiment],
        "groups": groups,
        "sources": [papers["papa"]["source"]] if experiment == "papa" else sources,
        "figures": _figures(experiment, problems),
        "pages": [
            {
                "file": str(path),
                "title": f"{path.stem.rpartition('_')[0]}: "
                f"{_TITLE_OF_PAGE[path.stem.rpartition('_')[2]]}, checkpoint by checkpoint",
                "text": path.read_text(encoding="utf-8", errors="replace"),
            }
            for path in page_files(experiment)
        ],
        "records": records,
        "problems": problems,
        "versions": versions,
    }


def _records(experiment: str, problems: list[str]) -> tuple[Table, list[str]]:
    """The records of all runs and outputs as a table; their versions and machines."""
    rows, versions = [], []
    for path in record_files(experiment):
        try:
            record = read_object(path, "record")
            if not isinstance(record.get("command"), str):
                raise InputError(f"record {path}: has no command; run the step again")
        except InputError as error:
            if not any(str(path) in problem for problem in problems):
                problems.append(str(error))
            continue
        settings = record.get("settings")
        settings = settings if isinstance(settings, dict) else {}
        checksums = settings.get("checksums")
        data = checksums.get("data") if isinstance(checksums, dict) else settings.get("data")
        where = path.parent if path.name == "run.json" else path
        if isinstance(record.get("versions"), dict):
            named = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
            versions.append(f"{named}; {record.get('machine', 'unknown machine')}")
        rows.append(
            {
                "run or output": str(Path(*where.parts[1:])),
                "command": record["command"],
                "seed": settings.get("seed", settings.get("seeds")),
                "commit": str(record.get("commit") or "unknown")[:12],
                "checksum of the data": data,
            }
        )
    return Table(f"Runs: commands, seeds, commits, data ({len(rows)})", rows), versions


def _figures(experiment: str, problems: list[str]) -> list[dict]:
    """The svg figures of an experiment as data URIs, with a title and an alt text."""
    figures = []
    for path in figure_files(experiment):
        content = path.read_bytes()
        try:
            root = xml.etree.ElementTree.fromstring(content)
        except xml.etree.ElementTree.ParseError:
            problems.append(f"figure {path}: corrupt; draw it again")
            continue
        titles = [element.text for element in root.iter() if element.tag.endswith("}title")]
        title, shows = next(filter(None, titles), path.stem), "the numbers of the tables above"
        if metric := _METRICS.get(path.stem.rpartition("_")[2]):
            title = f"{title}: agreement ({metric}) and performance over training"
            shows = (
                "upper part: the agreement of normal runs with the gold run over training, "
                "and the levels agr_*; lower part: performance"
            )
        numbers = path.with_suffix(".csv")
        figures.append(
            {
                "file": str(path),
                "numbers": str(numbers) if numbers.exists() else "",
                "title": title,
                "alt": f"{title}; {shows}",
                "uri": "data:image/svg+xml;base64," + base64.b64encode(content).decode(),
            }
        )
    return figures

"""The generated blocks of README.md, CONTRIBUTING.md, docs/ and results/: a function for each.

A block stands between two markers, the first of which names its generator and its arguments::

    <!-- generated: levels results/translation.pkl acc -->
    <!-- end -->

GENERATORS lists the generators. ``python report.py --markdown`` writes the blocks, ``--check``
compares them. Measured numbers stand inside blocks only.
"""

import ast
import functools
import re
from collections.abc import Callable
from pathlib import Path

from attention_dynamics.cli import InputError
from attention_dynamics.names import METRICS
from attention_dynamics.reporting import results, sections, tables
from attention_dynamics.reporting.results import SHIPPED
from attention_dynamics.reporting.tables import format_percent, format_table
from attention_dynamics.storage.files import read_json
from attention_dynamics.storage.pickles import load_pickle

_BLOCK = re.compile(r"(<!-- generated: ([^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """The pages whose blocks are generated, relative to the root of the repository."""
    main = [Path("README.md"), Path("CONTRIBUTING.md")]
    return [*main, *sorted(Path("docs").glob("*.md")), *sorted(SHIPPED.glob("*.md"))]


def update_blocks(page: Path) -> str:
    """The text of ``page`` with the content of every block generated from the current files.

    Raises InputError for a block that has no end, an unknown generator or wrong arguments.
    """
    text = page.read_text(encoding="utf-8")
    if len(_BLOCK.findall(text)) != text.count("<!-- generated:"):
        raise InputError(
            f"{page}: a generated block is malformed (expected a line <!-- generated: NAME -->, "
            "then a line <!-- end -->)"
        )

    def generate(match: re.Match) -> str:
        begin, call, _, end = match.groups()
        name, *arguments = call.split()
        try:
            return f"{begin}\n{GENERATORS[name](*arguments)}\n\n{end}"
        except InputError as error:
            raise InputError(f"{page}: block {call}: {error}") from None
        except sections.MALFORMED as error:
            raise InputError(
                f"{page}: block {call}: unknown generator, wrong arguments, or a file that lacks "
                f"{error}; see GENERATORS in attention_dynamics/reporting/blocks.py"
            ) from None

    return _BLOCK.sub(generate, text)


def _markdown(selected: list[tables.Table]) -> str:
    return "\n\n".join(tables.titled(*table, "markdown") for table in selected if table.rows)


def findings(experiment: str) -> str:
    """The findings in the results of an experiment that come with the repository."""
    problems: dict[Path, str] = {}
    groups = sections.read_experiment(experiment, problems)
    if problems:
        raise InputError("; ".join(problems.values()))
    shipped = [group for group in groups if f"from {SHIPPED}" in group.source]
    return "\n".join(f"- {line}" for group in shipped for line in group.findings)


def agreement(file: str, kind: str, *metric: str, column: str) -> str:
    """Tables of a results file of a collect script, for a kind of performance (acc, bleu).

    Those of one metric, or of all, whose first column is ``column``: the levels or the curves.
    """
    name, read = " ".join(metric), load_pickle(file, "results")
    wanted = {key: result for key, result in read.items() if name in ("", key[1])}
    if not (selected := sections.select_tables(wanted, kind)):
        raise InputError(f"{file} has no results with {kind} and {name or 'any metric'}")
    return _markdown([table for table in selected if column in table.rows[0]])


def _main_results(experiment: str) -> list[tuple[tuple, dict]]:
    """The (key, result) of the main comparison of the paper that come with the repository."""
    read = load_pickle(SHIPPED / f"{experiment}.pkl", "results")
    return [(key, result) for key, result in read.items() if key[1:3] == (METRICS[0], "val")]


def datasets(experiment: str) -> str:
    """A row for each dataset of the paper: its main result, or that its data must be downloaded."""
    main = _main_results(experiment)
    found = {key[0]: (key, result) for key, result in main if key[3].endswith("_acc")}
    header = ["dataset", "agr_unif", "agr_unif, authors' run", "ξ", "best accuracy", "command"]
    rows = []
    for dataset, command in results.read_papers()["datasets"][experiment].items():
        cells = ["needs data that must be downloaded", None, None, None]
        if dataset in found:
            key, result = found[dataset]
            cells = [tables.level_cell(result, x) for x in ("agr_unif", "xi_unif", "best_perf")]
            cells.insert(1, results.authors_numbers(key).get("agr_unif"))
        rows.append([dataset, *map(tables.format_cell, cells), f"`{command}`"])
    return _long_table(header, rows)


def copying(file: str) -> str:
    """How many seeds or combinations of heads learn to copy, and Fisher's exact test of pairs."""
    rows = sections.read_copying_rows(Path(file))
    return _markdown([sections.success_table(rows)[0], sections.fisher_table(rows)])


def heads(file: str) -> str:
    """How many of the heads that multihead.py tried are good and bad; those with several orders."""
    results = read_json(Path(file), "results")["results"]
    orders = tables.Table("Heads tried with several orders of the data", results["orders"])
    return _markdown([tables.Table("Heads tried", results["heads"]), orders])


def papa(file: str) -> str:
    """Scores and drops with constant heads in a results file of collect_papa_stats.py."""
    return _markdown(sections.papa_tables(read_json(Path(file), "results")))


def results_at_a_glance() -> str:
    """One row for each main result: this repository next to the authors' run."""
    rows = []
    for folder in ("translation", "classification"):
        for key, result in _main_results(folder):
            label = "BLEU" if key[3].endswith("_bleu") else "accuracy"
            chance = tables.format_cell(result["baseline_exact"])
            theirs = results.authors_numbers(key)
            measures = {
                "agr_unif": f"agreement of the gold run with β^uf (random order: {chance})",
                "xi_unif": f"ξ: {label} of the others when they first agree more than that",
                "best_perf": f"best {label} of the gold run",
            }
            if label == "BLEU":
                del measures["agr_unif"]  # the same as above
            for name, measure in measures.items():
                ours = tables.level_cell(result, name) or "never"
                authors = tables.format_performance(result, theirs.get(name), name)
                rows.append([f"{folder}, {key[0]}", measure, ours, authors])
    for file in ("copying.json", "multihead.json"):
        for row in sections.success_table(sections.read_copying_rows(SHIPPED / file))[0].rows:
            setting, count, fraction = list(row.values())[:3]
            interval = fraction.partition(" ")[2]
            rows.append(["copying", f"{setting}: {list(row)[1]}", f"{count} {interval}", None])
    for row in sections.mean_drops(read_json(SHIPPED / "papa.json", "results")):
        if row["epoch"] == "last":
            heads = f"{row['model']}, {row['share']:.0%} of heads constant"
            measure = f"{heads}: relative drop, mean of {row['tasks']} tasks"
            ours = f"{format_percent(row['drop'])} ({sections.range_of(row)})"
            rows.append(["PAPA", measure, ours, sections.authors_drop(row)])
    header = ("experiment", "measure", "this repository", "authors' run")
    return format_table([dict(zip(header, row, strict=True)) for row in rows], "markdown")


def _long_table(columns: list[str], rows: list[list]) -> str:
    """A table that is not padded to columns of equal width: its cells are sentences."""
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (columns, *rows)]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]])


def departures() -> str:
    """The numbered departures from the published code (results/departures.json).

    An ``effect`` may refer to numbers: ``{Furd[here]:.3f}`` is measured[number]["Furd"]["here"],
    and ``{papa[...]}`` an entry of results/papa_departures.json.
    """
    content = read_json(SHIPPED / "departures.json", "departures")
    of_papa = read_json(SHIPPED / "papa_departures.json", "results")
    rows = []
    for one in content["departures"]:
        measured = content["measured"].get(str(one["number"]), {})
        effect = one["effect"].format(**measured, papa=of_papa)
        tests = re.sub(r"[\w*]+", r"`\g<0>`", one["test"])
        rows.append([one["number"], one["published"], one["here"], effect, tests])
    return _long_table(["number", "published", "here", "effect", "test"], rows)


def reproduce() -> str:
    """What of the papers is made by which command, and how long our runs took in all."""
    content = read_json(SHIPPED / "times.json", "times")

    def hours(experiment: str, dataset: str) -> float:
        return sum(
            numbers["runs"] * numbers.get("seconds", numbers.get("training_seconds")) / 3600
            for by_dataset in content.get(experiment, {}).values()
            for name, numbers in by_dataset.items()
            if name.startswith(dataset)
        )

    rows = []
    for one in results.read_papers()["reproduce"]:
        spent = [(label, hours(*of)) for label, *of in one.get("times", [])]
        spent = [f"{label}: {total:.1f} h" for label, total in spent if total]
        rows.append([one["what"], one["command"], "; ".join(spent) or "-", one["results"]])
    table = _long_table(["paper and experiment", "command", "time", "results"], rows)
    machine = f"on a machine that did other work too ({_machine(content)})"
    return f"{table}\n\nTime: elapsed, of all runs together, {machine}."


def _machine(content: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in content["machine"].items())


def times() -> str:
    """How long the scripts took (results/times.json)."""
    content = read_json(SHIPPED / "times.json", "times")
    rows = []
    for experiment in results.EXPERIMENTS:
        for script, by_what in content.get(experiment, {}).items():
            for what, numbers in by_what.items():
                row = {"script": f"{experiment}/{script}", "of": what, "runs": numbers["runs"]}
                seconds = numbers.get("seconds", numbers.get("training_seconds"))
                row |= {"seconds (median)": f"{seconds:,.0f}"}
                row |= {"seconds per step": numbers.get("seconds_per_step")}
                memory = numbers.get("peak_memory_mb")
                rows.append({**row, "peak memory (MB)": None if memory is None else round(memory)})
    return f"{format_table(rows, 'markdown')}\n\nMachine: {_machine(content)}."


def benchmarks(name: str) -> str:
    """Speed and memory next to the plain reference (benchmarks/results/NAME.json)."""
    content = read_json(Path("benchmarks/results") / f"{name}.json", "benchmark results")
    rows = []
    for section, one in content.items():
        for row in one["rows"]:
            digits = {k: row.get(k) for k in ("reference", "ours", "ratio", "at most")}
            cells = {k: None if v is None else f"{v:.3g}" for k, v in digits.items()}
            what = f"{row['what']} ({row['unit']})" if row["unit"] else row["what"]
            rows.append({"section": section, "workload": row["workload"], "what": what, **cells})
    return format_table(rows, "markdown")


def modules(folder: str) -> str:
    """Every module of a folder with the first line of its docstring (CONTRIBUTING.md)."""
    rows = []
    for path in sorted(Path(folder).rglob("*.py")):
        if path.name != "__init__.py" and "reference" not in path.parts:
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            line = docstring.partition("\n")[0].rstrip(".").replace("|", "\\|")
            rows.append([f"`{path.relative_to(folder).as_posix()}`", line])
    return _long_table(["module", "content"], rows)


GENERATORS: dict[str, Callable[..., str]] = {
    "results-at-a-glance": results_at_a_glance,
    "levels": functools.partial(agreement, column="statistic"),
    "curves": functools.partial(agreement, column="iteration"),
    **{
        f.__name__: f
        for f in (
            findings, datasets, copying, heads, papa, departures, reproduce, times, benchmarks,
            modules,
        )
    },
}  # fmt: skip

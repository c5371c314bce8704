"""Generated blocks of Markdown pages: tables and findings that come from files.

A block stands between two markers, the first of which names its generator and its arguments::

    <!-- generated: levels results/translation.pkl acc -->
    <!-- end -->

GENERATORS lists the generators. ``python report.py --markdown`` writes the blocks, ``--check``
compares them. Measured numbers stand inside blocks only.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path

from attention_dynamics.cli import InputError
from attention_dynamics.names import METRICS
from attention_dynamics.reporting.results import (
    SHIPPED,
    authors_curve,
    authors_value,
    read_object,
    read_papers,
    read_results,
)
from attention_dynamics.reporting.sections import (
    Table,
    agreement_tables,
    experiment_of,
    fisher_tables,
    mean_drops,
    papa_tables,
    read_copying_rows,
    read_experiment,
    success_table,
)
from attention_dynamics.reporting.tables import (
    agreements_of,
    curve_rows,
    format_cell,
    format_interval,
    format_percent,
    format_performance,
    format_table,
    level_cell,
    titled,
)

_BLOCK = re.compile(r"(<!-- generated: ([^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_DEPARTURES = SHIPPED / "departures.json"


def pages() -> list[Path]:
    """The pages whose blocks are generated, relative to the root of the repository."""
    return [
        Path("README.md"),
        Path("CONTRIBUTING.md"),
        *sorted(Path("docs").glob("*.md")),
        *sorted(SHIPPED.glob("*.md")),
    ]


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
        if name not in GENERATORS:
            known = ", ".join(GENERATORS)
            raise InputError(f"{page}: unknown generated block {name} (expected one of {known})")
        try:
            return f"{begin}\n{GENERATORS[name](*arguments)}\n\n{end}"
        except InputError as error:
            raise InputError(f"{page}: block {call}: {error}") from None
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{page}: block {call}: wrong arguments, or a file that lacks {error}; see "
                "GENERATORS in attention_dynamics/reporting/blocks.py"
            ) from None

    return _BLOCK.sub(generate, text)


def _markdown(tables: list[Table]) -> str:
    return "\n\n".join(titled(table.title, table.rows, "markdown") for table in tables)


def _shipped(experiment: str) -> list:
    """The groups of the results that come with the repository."""
    groups, problems = read_experiment(experiment)
    if problems:
        raise InputError(problems[0])
    return [group for group in groups if f"from {SHIPPED}" in group.source]


def findings(experiment: str) -> str:
    """The findings of an experiment as a list of sentences."""
    return "\n".join(f"- {line}" for group in _shipped(experiment) for line in group.findings)


def levels(file: str, kind: str, *metric: str) -> str:
    """The levels in a results file of a collect script, for a kind of performance (acc, bleu)."""
    return _agreement(file, kind, " ".join(metric), curves=False)


def curves(file: str, kind: str, *metric: str) -> str:
    """The agreement and the performance over training in a results file of a collect script."""
    return _agreement(file, kind, " ".join(metric), curves=True)


def _agreement(file: str, kind: str, metric: str, curves: bool) -> str:
    """Tables of one metric, or of all; those of the levels, or those of the curves."""
    path = Path(file)
    results, tables = read_results(path), []
    for name in [metric] if metric else METRICS:
        first, *rest = agreement_tables(experiment_of(results), results, name, kind) or [None]
        tables += rest if curves else [first] if first else []
    if not tables:
        raise InputError(f"{path} has no results with {kind} and {metric or 'any metric'}")
    return _markdown(tables)


def authors(file: str) -> str:
    """The authors' values in papers.json next to the values of a results file."""
    results = read_results(Path(file))
    rows = []
    for key, result in results.items():
        suffix = ", BLEU" if key[3].endswith("_bleu") else ""
        names = ["best_perf", *(f"xi_{name}" for name in agreements_of(result))]
        if not suffix:
            names = [*(f"agr_{name}" for name in agreements_of(result)), "baseline", *names]
        for name in names:
            if (theirs := authors_value(key, name)) is not None:
                rows.append(
                    {
                        "statistic": name + suffix,
                        "this repository": level_cell(result, name),
                        "authors' run": format_performance(result, theirs, name),
                    }
                )
        if not suffix and (curve := authors_curve(key)):
            last = int(max(result["iterations"]))
            rows += [
                {
                    "statistic": f"α agreement at step {row['iteration']}",
                    "this repository": row["agreement of α"],
                    "authors' run": row["authors' run"],
                }
                for row in curve_rows(result, "performance", curve)
                if row["iteration"] in {*curve, last}
            ]
    return format_table(rows, "markdown")


def copying(file: str) -> str:
    """How many seeds or combinations of heads learn to copy, and Fisher's exact test of pairs."""
    kind, rows = read_copying_rows(Path(file))
    table, _ = success_table(rows, kind)
    return _markdown([table, *fisher_tables(table)])


def papa(file: str) -> str:
    """Scores and drops with constant heads in a results file of collect_papa_stats.py."""
    return _markdown(papa_tables(read_object(Path(file), "results")))


def results_at_a_glance() -> str:
    """One row for each main result: this repository next to the authors' run."""
    rows: list[dict] = []

    def add(experiment: str, measure: str, ours: object, theirs: object = None) -> None:
        rows.append(
            {
                "experiment": experiment,
                "measure": measure,
                "this repository": ours,
                "authors' run": theirs,
            }
        )

    for folder in ("translation", "classification"):
        results = read_results(SHIPPED / f"{folder}.pkl")
        for key, result in results.items():
            dataset, metric, split, perf = key
            if metric != METRICS[0] or split != "val":
                continue
            title, is_bleu = f"{folder}, {dataset}", perf.endswith("_bleu")
            label = "BLEU" if is_bleu else "accuracy"
            chance = format_cell(result["baseline"])
            measures = {
                "agr_unif": f"agreement of attention with β^uf (random order: {chance})",
                "xi_unif": f"{label} when attention first agrees more than that (ξ)",
                "best_perf": f"best {label} of the gold run",
            }
            for name, measure in list(measures.items())[is_bleu:]:
                value = level_cell(result, name)
                if value is None:
                    value = "never"
                theirs = format_performance(result, authors_value(key, name), name)
                add(title, measure, value, theirs)
    for file in ("copying.json", "multihead.json"):
        table, _ = success_table(*reversed(read_copying_rows(SHIPPED / file)))
        for row in table.rows:
            setting, count, fraction = list(row.values())[:3]
            what = list(row)[1]
            interval = format_interval(tuple(map(float, re.findall(r"[\d.]+", fraction)[1:])), 2)
            add("copying", f"{setting}: {what}", f"{count} {interval}")
    theirs = f"about {format_percent(read_papers()['papa']['drop'])}"
    for row in mean_drops(read_object(SHIPPED / "papa.json", "results")):
        if row["epoch"] == "last":
            low, high = format_percent(row["lowest"]), format_percent(row["highest"])
            add(
                "PAPA",
                f"{row['model']}, {row['share']:.0%} of heads constant: relative drop, mean of "
                f"{row['tasks']} tasks",
                f"{format_percent(row['drop'])} ({low} to {high})",
                theirs if row["share"] == 1 else None,
            )
    return format_table(rows, "markdown")


def departures() -> str:
    """The numbered departures from the published code (results/departures.json).

    An ``effect`` may refer to numbers: ``{Furd[here]:.3f}`` is measured[number]["Furd"]["here"],
    and ``{papa[...]}`` an entry of results/papa_departures.json.
    """
    content = read_object(_DEPARTURES, "departures")
    of_papa = read_object(SHIPPED / "papa_departures.json", "results")
    columns = ("number", "published", "here", "effect", "test")
    # Not padded to columns of equal width: the cells are sentences.
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for departure in content["departures"]:
        measured = content["measured"].get(str(departure["number"]), {})
        cells = {
            **departure,
            "effect": departure["effect"].format(**measured, papa=of_papa),
            "test": re.sub(r"[\w*]+", r"`\g<0>`", departure["test"]),
        }
        lines.append(f"| {' | '.join(str(cells[name]) for name in columns)} |")
    return "\n".join(lines)


def times() -> str:
    """How long the scripts took (results/times.json)."""
    content = read_object(SHIPPED / "times.json", "times")
    rows = [
        {
            "script": f"{experiment}/{script}",
            "of": what,
            "runs": numbers["runs"],
            "seconds (median)": f"{numbers.get('seconds', numbers.get('training_seconds')):,.0f}",
            "seconds per step": numbers.get("seconds_per_step"),
            "peak memory (MB)": _rounded(numbers.get("peak_memory_mb")),
        }
        for experiment, scripts in content.items()
        if experiment != "machine"
        for script, by_what in scripts.items()
        for what, numbers in by_what.items()
    ]
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    return f"{format_table(rows, 'markdown')}\n\nMachine: {machine}."


def _rounded(number: float | None) -> str | None:
    return None if number is None else f"{number:.0f}"


def benchmarks(name: str) -> str:
    """Speed and memory next to the plain reference (benchmarks/results/NAME.json)."""
    content = read_object(Path("benchmarks/results") / f"{name}.json", "benchmark results")
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
        if path.name == "__init__.py" or "reference" in path.parts:
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        line = docstring.partition("\n")[0].rstrip(".").replace("|", "\\|")
        rows.append(f"| `{path.relative_to(folder).as_posix()}` | {line} |")
    return "\n".join(["| module | content |", "|---|---|", *rows])


GENERATORS: dict[str, Callable[..., str]] = {
    "results-at-a-glance": results_at_a_glance,
    "findings": findings,
    "levels": levels,
    "curves": curves,
    "authors": authors,
    "copying": copying,
    "papa": papa,
    "departures": departures,
    "times": times,
    "benchmarks": benchmarks,
    "modules": modules,
}

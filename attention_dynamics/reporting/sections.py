"""What the result files of each experiment say: findings in sentences, and tables.

The report (report.py) and the generated blocks of the Markdown pages (blocks.py) share them.
"""

import contextlib
import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scipy.stats import fisher_exact

from attention_dynamics.cli import InputError
from attention_dynamics.names import PERFORMANCES
from attention_dynamics.reporting.results import (
    SHIPPED,
    authors_curve,
    authors_value,
    read_object,
    read_papers,
    read_results,
    result_files,
)
from attention_dynamics.reporting.tables import (
    curve_rows,
    format_cell,
    format_interval,
    format_percent,
    format_performance,
    level_cell,
    level_rows,
)

# Settings of the copying experiment -> their names in the paper.
_SETTINGS = {f"vocab{vocab}seq_length40bsize128no_rep": f"40 of {vocab}" for vocab in (40, 60)}


class Table(NamedTuple):
    """A table: its title, and rows with the same keys."""

    title: str
    rows: list[dict]


class Group(NamedTuple):
    """The results of one dataset, setting or file.

    Attributes:
        title: what the results are of.
        source: the file that they come from, with the remark of the record next to it.
        findings: what the results say, a sentence or two each.
        table: the main table.
        details: all tables, the main one in full, or further tables.
    """

    title: str
    source: str
    findings: list[str]
    table: Table
    details: list[Table]


def read_experiment(experiment: str) -> tuple[list[Group], list[str]]:
    """The groups of all result files of an experiment, and a line for each file left out.

    A file that is corrupt or of another kind costs its own groups only.
    """
    groups, problems = [], []
    copying: dict[tuple[Path, str], list[dict]] = {}
    sources: dict[tuple[Path, str], list[str]] = {}
    for path in result_files(experiment):
        try:
            if experiment == "SequenceCopying":
                kind, rows = read_copying_rows(path)
                copying.setdefault((path.parent, kind), []).extend(rows)
                sources.setdefault((path.parent, kind), []).append(str(path))
            else:
                groups += read_groups(experiment, path)
        except InputError as error:
            problems.append(str(error))
    for (folder, kind), rows in copying.items():
        table, findings = success_table(rows, kind)
        title = _titled(table.title, folder)
        source = f"from {', '.join(sources[folder, kind])}"
        groups.append(Group(title, source, findings, table, fisher_tables(table)))
    return groups, problems


def read_groups(experiment: str, path: Path) -> list[Group]:
    """The groups of a result file; InputError when the file is corrupt or of another kind."""
    with _checked(experiment, path):
        if experiment == "papa":
            return [_papa_group(path)]
        return _agreement_groups(experiment, path)


@contextlib.contextmanager
def _checked(experiment: str, path: Path) -> Iterator[None]:
    """Turn what malformed content raises into an InputError that names the file."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):
        raise InputError(
            f"results {path}: not what the scripts of {experiment} write; run the script that "
            "writes this file again with --overwrite"
        ) from None


def _titled(name: str, folder: Path) -> str:
    """``name``, with a remark if the results come with the repository."""
    return f"{name} (results that come with the repository)" if folder == SHIPPED else name


def _source(path: Path) -> str:
    """The file, with the "note" of the record next to it."""
    try:
        note = read_object(path.with_suffix(".json"), "record").get("note")
    except InputError:
        note = None
    return f"from {path}" if note is None else f"from {path}. {note}"


# --- classification and translation ---


def performance_label(experiment: str, perf: str) -> str:
    """What a performance such as ``val_bleu`` measures, in words."""
    performance = PERFORMANCES[experiment].get(perf.rpartition("_")[2])
    if performance is None:
        return "performance"
    # Translation runs to 100, classification to 1.
    has_unit = experiment == "translation" and performance.unit
    return f"{performance.label} ({performance.unit})" if has_unit else performance.label


def experiment_of(results: dict) -> str:
    """The experiment that a results file of a collect script belongs to, by its performances."""
    for experiment, performances in PERFORMANCES.items():
        known = {perf for one in performances.values() for perf, _ in one.splits.values()}
        if {key[3] for key in results} <= known:
            return experiment
    raise InputError("the results have performances of neither classification nor translation")


def _agreement_groups(experiment: str, path: Path) -> list[Group]:
    results = read_results(path)
    groups = []
    for dataset in dict.fromkeys(key[0] for key in results):
        own = {key: result for key, result in results.items() if key[0] == dataset}
        tables = []
        for metric, kind in dict.fromkeys((key[1], key[3].rpartition("_")[2]) for key in own):
            tables += agreement_tables(experiment, own, metric, kind)
        main = next((key for key in own if key[1:3] == ("top 5% match", "val")), None)
        findings = agreement_findings(experiment, main, own[main]) if main else []
        main_rows = [row for row in tables[0].rows if _is_main(row["statistic"])]
        table = Table(tables[0].title, main_rows)
        title = _titled(dataset, path.parent)
        groups.append(Group(title, _source(path), findings, table, tables))
    return groups


def _is_main(statistic: str) -> bool:
    """Whether a row of tables.level_rows belongs to the main table of the report."""
    is_other_xi = statistic.startswith("xi_") and statistic != "xi_unif"
    return not is_other_xi and "chosen" not in statistic


def agreement_tables(experiment: str, results: dict, metric: str, kind: str) -> list[Table]:
    """Levels, then curves, of the results with a metric and a kind of performance (acc, bleu)."""
    selected = {
        key: result
        for key, result in results.items()
        if key[1] == metric and key[3].rpartition("_")[2] == kind
    }
    if not selected:
        return []
    datasets = ", ".join(dict.fromkeys(key[0] for key in selected))
    label = performance_label(experiment, next(iter(selected))[3])
    title = f"{datasets}: agreement by {metric}, and {label}"
    tables = [Table(title, level_rows(selected, label, authors_value))]
    for key, result in selected.items():
        title = f"{key[0]}, {key[2]}: agreement of normal runs with the gold run ({metric})"
        if note := result.get("interval_note"):
            title += f"; {note}"
        tables.append(Table(title, curve_rows(result, label, authors_curve(key))))
    return tables


def agreement_findings(experiment: str, key: tuple, result: dict) -> list[str]:
    """What the main comparison of the paper says of one dataset."""
    dataset, label = key[0], performance_label(experiment, key[3])

    def value(name: str) -> str:
        theirs = format_performance(result, authors_value(key, name), name)
        cell = format_cell(level_cell(result, name))
        return cell if theirs is None else f"{cell}; authors' run {format_cell(theirs)}"

    level, chance = result["agr_unif"], result["baseline"]
    compared = "higher than" if level > chance else "not higher than"
    findings = [
        f"{dataset}: the attention of the gold run agrees with β^uf at {value('agr_unif')}; this "
        f"is {compared} for a random order ({value('baseline')})."
    ]
    best = format_cell(format_performance(result, float(max(result["alpha_perfs"])), "best_perf"))
    if result.get("xi_unif") is None:
        findings.append(
            f"{dataset}: the attention of the other normal runs never agrees with the gold run "
            f"more than that, so ξ does not exist; their best {label} is {best}."
        )
    else:
        findings.append(
            f"{dataset}: the attention of the other normal runs agrees with the gold run more than "
            f"that once their {label} is ξ = {value('xi_unif')}; their best is {best}."
        )
    last = curve_rows(result, label)[-1]
    findings.append(
        f"{dataset}: at the last checkpoint ({last['iteration']}) the normal runs agree with the "
        f"gold run at {format_cell(last['agreement of α'])}."
    )
    return findings


# --- sequence copying ---


class Outcome(NamedTuple):
    """What is counted in the rows of seq2seq.py or multihead.py.

    Attributes:
        title: of the table.
        what: the things that are counted, in the plural.
        key: how the key of the count begins; the accuracy follows.
        criterion: the same in words.
    """

    title: str
    what: str
    key: str
    criterion: str


_OUTCOMES = {
    "seeds": Outcome("Seeds that learn to copy", "seeds", "reach ", "at least"),
    "heads": Outcome(
        "Combinations of heads that learn to copy", "combinations", "exceed ", "above"
    ),
}


# Further keys of the rows -> column, decimals.
_MORE = {
    "mean acc at the end": ("mean accuracy at the end", 3),
    "β half right at step": ("β half right at step", 0),
    "α half right at step": ("α half right at step", 0),
}


def read_copying_rows(path: Path) -> tuple[str, list[dict]]:
    """The kind of outcome ("seeds", "heads") and the rows of a record or of results/copying.json.

    Each row has: setting, "{reach or exceed} {accuracy}", of, share, low, high.
    """
    content = read_object(path, "results")
    with _checked("SequenceCopying", path):
        results = content.get("results", content)
        if "shares" in results:
            kind, rows = "heads", results["shares"]
        else:
            kind, rows = "seeds", results.get("settings", [results])
        success_table(rows, kind)  # raises for rows that are not such
        return kind, rows


def success_table(rows: list[dict], kind: str) -> tuple[Table, list[str]]:
    """How many of each setting learn, with a 95% interval (Wilson); a sentence for each."""
    outcome = _OUTCOMES[kind]
    shown, findings = [], []
    for row in rows:
        key = next(key for key in row if key.startswith(outcome.key))
        name = _SETTINGS.get(row["setting"], row["setting"])
        cells = {
            "setting": name,
            f"{outcome.what} that learn": f"{row[key]} of {row['of']}",
            "fraction, 95% interval": f"{row['share']:.2f} "
            + format_interval((row["low"], row["high"]), 2),
        }
        more = {
            title: None if row[key] is None else f"{row[key]:.{digits}f}"
            for key, (title, digits) in _MORE.items()
            if key in row
        }
        shown.append({**cells, **more})
        findings.append(
            f"{name}: {row[key]} of {row['of']} {outcome.what} learn to copy (accuracy "
            f"{outcome.criterion} {key.removeprefix(outcome.key)} at any evaluation)."
        )
    return Table(outcome.title, shown), findings


def fisher_tables(table: Table) -> list[Table]:
    """Fisher's exact test of each pair of settings in a table of :func:`success_table`."""
    counts = {}
    for row in table.rows:
        count, _, of = next(v for k, v in row.items() if k.endswith("learn")).split()
        counts[row["setting"]] = [int(count), int(of) - int(count)]
    pairs = [
        {
            "settings compared": f"{first}, {second}",
            "p (Fisher's exact test)": f"{fisher_exact([counts[first], counts[second]])[1]:.2g}",
        }
        for first, second in itertools.combinations(counts, 2)
    ]
    return [Table("Are the differences beyond chance?", pairs)] if pairs else []


# --- PAPA ---


def mean_drops(content: dict) -> list[dict]:
    """The relative drop of each model, averaged over its tasks.

    Args:
        content: of a results file of collect_papa_stats.py: {name: {model, num_heads, rows, ...}}.

    Returns rows (model, heads, share, tasks, epoch, drop, lowest, highest), one for each number of
    constant heads above 0 and epoch ("last", "best") at which every task of the model has a drop.
    A model with two entries of the same task (other settings) has no mean.
    """
    by_model: dict[tuple[str, int], list[dict]] = {}
    for one in content.values():
        by_model.setdefault((one["model"], one["num_heads"]), []).append(one)
    means = []
    for (model, num_heads), group in by_model.items():
        if len({one["task"] for one in group}) < len(group):
            continue
        tasks = [
            {(row["heads"], row["epoch"]): row["drop"] for row in one["rows"] if row["heads"]}
            for one in group
        ]
        for heads, epoch in sorted(set.intersection(*(set(drops) for drops in tasks))):
            values = [drops[heads, epoch] for drops in tasks]
            if None not in values:
                means.append(
                    {
                        "model": model,
                        "heads": heads,
                        "share": heads / num_heads,
                        "tasks": len(values),
                        "epoch": epoch,
                        "drop": statistics.fmean(values),
                        "lowest": min(values),
                        "highest": max(values),
                    }
                )
    return means


def papa_tables(content: dict) -> list[Table]:
    """The mean drop over tasks, then scores and drops of each model and task."""
    theirs = format_percent(read_papers()["papa"]["drop"])
    means: dict[tuple, dict] = {}
    for row in mean_drops(content):
        key = row["model"], row["heads"]
        cells = means.setdefault(
            key,
            {
                "model": row["model"],
                "constant heads": f"{row['heads']} ({row['share']:.0%})",
                "tasks": row["tasks"],
                "drop, last epoch": None,
                "range over tasks": None,
                "drop, best epoch": None,
                "authors' models": f"about {theirs}" if row["share"] == 1 else None,
            },
        )
        cells[f"drop, {row['epoch']} epoch"] = format_percent(row["drop"])
        if row["epoch"] == "last":
            low, high = format_percent(row["lowest"]), format_percent(row["highest"])
            cells["range over tasks"] = f"{low} to {high}"
    tables = []
    if means:
        tables.append(Table("Relative drop of the score, mean over tasks", list(means.values())))
    for name, one in content.items():
        rows: dict[int, dict] = {}
        for row in one["rows"]:
            cells = rows.setdefault(
                row["heads"],
                {"constant heads": f"{row['heads']} ({row['share']:.0%})", "seeds": row["seeds"]},
            )
            for what in ("score", "drop"):
                cells[f"{what}, {row['epoch']} epoch"] = _mean_and_std(row, what)
        title = f"{name}: {one['metric']} of {one['model']} on {one['task']}"
        tables.append(Table(title, list(rows.values())))
    return tables


def _papa_group(path: Path) -> Group:
    content = read_object(path, "results")
    table, *details = papa_tables(content)
    title = _titled(", ".join(content), path.parent)
    return Group(title, _source(path), papa_findings(content), table, details)


def papa_findings(content: dict) -> list[str]:
    """What each model loses with half and with all of its heads constant, last epoch."""
    findings = []
    for row in mean_drops(content):
        if row["epoch"] == "last" and row["share"] in (0.5, 1):
            heads = "all" if row["share"] == 1 else "half"
            low, high = format_percent(row["lowest"]), format_percent(row["highest"])
            tasks = f"mean of {row['tasks']} tasks, {low} to {high}"
            findings.append(
                f"{row['model']} with {heads} of its heads constant: relative drop of the score "
                f"{format_percent(row['drop'])} ({'one task' if row['tasks'] == 1 else tasks})."
            )
    return findings


def _mean_and_std(row: dict, what: str) -> str | None:
    mean, std = row[what], row[f"{what}_std"]
    if mean is None:
        return None
    scale, digits, unit = (100, 1, "%") if what == "drop" else (1, 3, "")
    spread = "" if std is None else f" ± {scale * std:.{digits}f}"
    return f"{scale * mean:z.{digits}f}{spread}{unit}"

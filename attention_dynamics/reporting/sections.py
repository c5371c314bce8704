"""The findings (sentences) and the rows of the tables of each experiment, from its result files.

The report (report.py) and the generated blocks of the Markdown pages (blocks.py) share them.
"""

import contextlib
import itertools
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scipy.stats import fisher_exact

from attention_dynamics.cli import InputError
from attention_dynamics.names import METRICS, PERFORMANCES
from attention_dynamics.reporting import tables
from attention_dynamics.reporting.results import SHIPPED, authors_numbers, find, read_papers
from attention_dynamics.reporting.tables import Table, format_cell, format_percent
from attention_dynamics.storage.files import read_json
from attention_dynamics.storage.pickles import load_pickle

# What malformed content of a result file raises.
MALFORMED = (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError)


class Group(NamedTuple):
    """The results of one dataset, setting or file.

    Attributes:
        title: what the results are of.
        source: the files that they come from, with the "note" of the record next to them.
        findings: what the results say, a sentence or two each.
        table: the main table.
        details: further tables.
    """

    title: str
    source: str
    findings: list[str]
    table: Table
    details: list[Table]


@contextlib.contextmanager
def leaving_out(path: Path, problems: dict[Path, str]) -> Iterator[None]:
    """The block reads ``path``; if it is corrupt or of another kind, ``problems`` says so."""
    try:
        yield
    except InputError as error:
        problems.setdefault(path, str(error))
    except MALFORMED:
        advice = "run the script that writes it again with --overwrite"
        problems.setdefault(path, f"{path}: not what our scripts write; {advice}")


def read_experiment(experiment: str, problems: dict[Path, str]) -> list[Group]:
    """The groups of all result files of an experiment; ``problems`` gets those left out."""
    groups: list[Group] = []
    copying: dict[str, dict[str, list]] = {}
    for path in find(experiment, "results"):
        remark = " (results that come with the repository)" if path.parent == SHIPPED else ""
        with leaving_out(path, problems):
            if experiment == "SequenceCopying":
                rows = read_copying_rows(path)
                group = copying.setdefault(success_table(rows)[0].title + remark, {})
                group[str(path)] = rows
            elif experiment == "papa":
                content = read_json(path, "results")
                title, (table, *details) = ", ".join(content) + remark, papa_tables(content)
                groups.append(Group(title, _source(path), papa_findings(content), table, details))
            else:
                groups += _agreement_groups(path, remark)
    for title, by_path in copying.items():
        rows = [*itertools.chain(*by_path.values())]
        table, findings = success_table(rows)
        source = f"from {', '.join(by_path)}"
        details = [fisher] if (fisher := fisher_table(rows)).rows else []
        groups.append(Group(title, source, findings, table, details))
    return groups


def _source(path: Path) -> str:
    record = path.with_suffix(".json")
    content = read_json(record, "record") if record.exists() else {}
    return f"from {path}. {content['note']}" if "note" in content else f"from {path}"


# --- classification and translation ---


def performance_label(key: tuple, result: dict) -> str:
    """What the performance of a result measures, in words; translation runs to 100."""
    kind, is_translation = key[3].rpartition("_")[2], result["best_perf"] > 1
    experiment = "translation" if is_translation or kind == "bleu" else "classification"
    performance = PERFORMANCES[experiment][kind]
    has_unit = experiment == "translation" and performance.unit
    return f"{performance.label} ({performance.unit})" if has_unit else performance.label


def select_tables(results: dict, kind: str) -> list[Table]:
    """The tables of the results with a kind of performance (acc, bleu)."""
    selected = {key: result for key, result in results.items() if key[3].endswith(f"_{kind}")}
    if not selected:
        return []
    label = performance_label(*next(iter(selected.items())))
    return tables.agreement_tables(selected, label, authors=True)


def _agreement_groups(path: Path, remark: str) -> list[Group]:
    results = load_pickle(path, "results")
    groups = []
    for dataset in dict.fromkeys(key[0] for key in results):
        own = {key: result for key, result in results.items() if key[0] == dataset}
        table, *details = [*select_tables(own, "acc"), *select_tables(own, "bleu")]
        main = next((key for key in own if key[1:3] == (METRICS[0], "val")), None)
        findings = agreement_findings(main, own[main]) if main else []
        groups.append(Group(dataset + remark, _source(path), findings, table, details))
    return groups


def agreement_findings(key: tuple, result: dict) -> list[str]:
    """What the main comparison of the paper says of one dataset."""
    dataset, label = key[0], performance_label(key, result)

    def value(name: str) -> str:
        theirs = tables.format_performance(result, authors_numbers(key).get(name), name)
        cell = format_cell(tables.level_cell(result, name))
        return cell if theirs is None else f"{cell}; authors' run {format_cell(theirs)}"

    chance = "baseline_exact" if "baseline_exact" in result else "baseline"
    low, _ = result.get("agr_unif_interval", (result["agr_unif"], None))
    compared = "higher than" if low > result[chance] else "not clearly higher than"
    when = "agrees with the gold run less than that at every checkpoint (mean over runs): no ξ"
    if result["xi_unif"] is not None:
        when = (
            f"agrees with the gold run more than that once their {label} is ξ = {value('xi_unif')}"
        )
    best = tables.format_performance(result, float(max(result["alpha_perfs"])), "best_perf")
    last = tables.curve_rows(result, label)[-1]
    return [
        f"{dataset}: the attention of the gold run agrees with β^uf at {value('agr_unif')}; this "
        f"is {compared} for a random order ({value(chance)}).",
        f"{dataset}: the attention of the other normal runs {when}; their best {label} is "
        f"{format_cell(best)}.",
        f"{dataset}: at the last checkpoint ({last['iteration']}) the normal runs agree with the "
        f"gold run at {format_cell(last['agreement of α'])}.",
    ]


# --- sequence copying ---

# How the key of the count begins (the accuracy follows) -> title, what is counted, in words.
_OUTCOMES = {
    "reach": ("Seeds that learn to copy", "seeds", "at least"),
    "exceed": ("Combinations of heads that learn to copy", "combinations", "above"),
}


def read_copying_rows(path: Path) -> list[dict]:
    """The rows of a record of seq2seq.py or multihead.py, or of results/copying.json.

    Each row has: setting, "{reach or exceed} {accuracy}", of, share, low, high.
    """
    content = read_json(path, "results")
    results = content.get("results", content)
    return results.get("shares") or results.get("settings", [results])


def success_table(rows: list[dict]) -> tuple[Table, list[str]]:
    """How many of each setting learn, with a 95% interval (Wilson); a sentence for each."""
    lines, findings = [], []
    for row in rows:
        setting, key = _setting_and_key(row)
        verb, accuracy = key.split()
        title, what, criterion = _OUTCOMES[verb]
        interval = tables.format_interval((row["low"], row["high"]), 2)
        cells = {"setting": setting, f"{what} that learn": f"{row[key]} of {row['of']}"}
        cells["fraction, 95% interval"] = f"{row['share']:.2f} {interval}"
        for name in ("mean acc at the end", "β half right at step", "α half right at step"):
            if name in row:
                digits = 3 if "acc" in name else 0
                value = row[name]
                cells[name.replace("acc", "accuracy")] = value and f"{value:.{digits}f}"
        lines.append(cells)
        findings.append(
            f"{setting}: {row[key]} of {row['of']} {what} learn to copy (accuracy {criterion} "
            f"{accuracy} at any evaluation)."
        )
    return Table(title, lines), findings


def _setting_and_key(row: dict) -> tuple[str, str]:
    """The setting as the paper names it, and the key of the count."""
    vocab = re.fullmatch(r"vocab(40|60)seq_length40bsize128no_rep", row["setting"])
    key = next(key for key in row if key.startswith(tuple(_OUTCOMES)))
    return f"40 of {vocab[1]}" if vocab else row["setting"], key


def fisher_table(rows: list[dict]) -> Table:
    """Fisher's exact test of each pair of settings in the rows of :func:`success_table`."""
    counts = {}
    for row in rows:
        setting, key = _setting_and_key(row)
        counts[setting] = [row[key], row["of"] - row[key]]
    pairs = [
        {
            "settings compared": f"{first}, {second}",
            "p (Fisher's exact test)": f"{fisher_exact([counts[first], counts[second]])[1]:.2g}",
        }
        for first, second in itertools.combinations(counts, 2)
    ]
    return Table("Are the differences beyond chance?", pairs)


# --- PAPA ---

_MEAN_COLUMNS = (
    "model", "constant heads", "tasks", "drop, last epoch", "range over tasks", "drop, best epoch",
    "authors' models",
)  # fmt: skip


def mean_drops(content: dict) -> list[dict]:
    """The relative drop of each model, averaged over its tasks.

    Args:
        content: of a results file of collect_papa_stats.py: {name: {model, num_heads, rows, ...}}.

    Returns rows (model, heads, share, tasks, epoch, drop, lowest, highest), one for each number of
    constant heads above 0 and epoch ("last", "best") at which every task of the model has a drop.
    A model with two entries of the same task (other settings) has no mean.
    """
    by_model: dict[tuple[str, int], dict[str, list[dict]]] = {}
    for one in content.values():
        tasks = by_model.setdefault((one["model"], one["num_heads"]), {})
        tasks.setdefault(one["task"], []).append(
            {(r["heads"], r["epoch"]): r["drop"] for r in one["rows"]}
        )
    means = []
    for (model, num_heads), tasks in by_model.items():
        entries = [*itertools.chain(*tasks.values())]
        for heads, epoch in sorted(set.intersection(*map(set, entries))):
            drops = [drop_of[heads, epoch] for drop_of in entries]
            if heads and None not in drops and len(entries) == len(tasks):
                row = {"model": model, "heads": heads, "share": heads / num_heads}
                row |= {"tasks": len(tasks), "epoch": epoch, "drop": statistics.fmean(drops)}
                means.append({**row, "lowest": min(drops), "highest": max(drops)})
    return means


def papa_tables(content: dict) -> list[Table]:
    """The mean drop over tasks, then scores and drops of each model and task."""
    means: dict[tuple, dict] = {}
    for row in mean_drops(content):
        cells = means.setdefault((row["model"], row["heads"]), dict.fromkeys(_MEAN_COLUMNS))
        cells |= {"model": row["model"], "constant heads": _heads(row), "tasks": row["tasks"]}
        cells |= {"authors' models": authors_drop(row)}
        cells[f"drop, {row['epoch']} epoch"] = format_percent(row["drop"])
        if row["epoch"] == "last":
            cells["range over tasks"] = range_of(row)
    title = "Relative drop of the score, mean over tasks"
    result = [Table(title, [*means.values()])] if means else []
    for name, one in content.items():
        rows: dict[int, dict] = {}
        for row in one["rows"]:
            cells = rows.setdefault(row["heads"], {})
            cells |= {"constant heads": _heads(row), "seeds": row["seeds"]}
            cells[f"score, {row['epoch']} epoch"] = _mean_and_std(row, "score", 1, ".3f", "")
            cells[f"drop, {row['epoch']} epoch"] = _mean_and_std(row, "drop", 100, ".1f", "%")
        title = f"{name}: {one['metric']} of {one['model']} on {one['task']}"
        result.append(Table(title, [*rows.values()]))
    return result


def authors_drop(row: dict) -> str | None:
    """The authors' relative drop next to a row of :func:`mean_drops`, if all heads are constant."""
    drop = read_papers()["papa"]["drop"]
    return f"about {format_percent(drop)}" if row["share"] == 1 else None


def range_of(row: dict) -> str:
    """The lowest and the highest drop in a row of :func:`mean_drops`."""
    return f"{format_percent(row['lowest'])} to {format_percent(row['highest'])}"


def _heads(row: dict) -> str:
    return f"{row['heads']} ({row['share']:.0%})"


def _mean_and_std(row: dict, what: str, scale: int, digits: str, unit: str) -> str | None:
    mean, std = row[what], row[f"{what}_std"]
    spread = "" if std is None else f" ± {scale * std:{digits}}"
    return None if mean is None else f"{scale * mean:z{digits}}{spread}{unit}"


def papa_findings(content: dict) -> list[str]:
    """What each model loses with half and with all of its heads constant, last epoch."""
    findings = []
    for row in mean_drops(content):
        if row["epoch"] == "last" and row["share"] in (0.5, 1):
            heads = "all" if row["share"] == 1 else "half"
            tasks = f"mean of {row['tasks']} tasks, {range_of(row)}"
            findings.append(
                f"{row['model']} with {heads} of its heads constant: relative drop of the score "
                f"{format_percent(row['drop'])} ({'one task' if row['tasks'] == 1 else tasks})."
            )
    return findings

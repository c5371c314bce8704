"""One page that shows what has been found: tables beside the papers' numbers, figures, provenance.

Everything on it comes from files: the results of the collect scripts, the records that runs leave,
figures, and for the papers' own numbers ``papers.json``, which gives a source for each. A file that
cannot be read costs its own part of the page only, and is named in its place.
"""

import base64
import json
import math
import xml.etree.ElementTree
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from scipy.stats import fisher_exact

from attention_dynamics.cli import InputError
from attention_dynamics.names import LEVELS, PERFORMANCES, SHORT
from attention_dynamics.reporting.inventory import (
    COPYING,
    DONE,
    MISSING,
    Step,
    inventory,
    read_results,
)
from attention_dynamics.reporting.viewer import render
from attention_dynamics.runs.records import provenance
from attention_dynamics.storage.files import read_json

TITLES = {
    "classification": "Classification",
    "translation": "Translation",
    "SequenceCopying": "Sequence copying",
    "papa": "PAPA: constant attention",
}
_IDEAS = {
    "classification": "A classifier's score is Σ α β, attention times the vote of each word. It is "
    "trained with attention, and once with its attention frozen uniform: do the votes β^uf of the "
    "frozen run tell where a normal run will attend?",
    "translation": "A translator with one attention head, and one whose attention is frozen "
    "uniform: does β^uf, the probability that the frozen one gives the right target piece from a "
    "single source piece, tell where a normal run will attend?",
    "SequenceCopying": "Permutations of 40 tokens are all the same bag of words, so that nothing "
    "can be learned of single words before the attention; drawn from 60 tokens, they are not.",
    "papa": "The attention of a pretrained encoder is replaced by constants, head by head, and a "
    "classifier is trained on what it then gives: how much is lost?",
}
_LEVELS = {
    **{f"agr_{key}": f"{level.symbol}: {level.label}" for key, level in LEVELS.items()},
    "baseline": "random order, drawn",
    "baseline_exact": "random order, exact",
    **{f"xi_{key}": f"performance once α agrees more than agr_{key}" for key in LEVELS},
    "best_perf": "best performance of the gold run",
    "gold_iteration": "where it has it",
}
# What comes with the repository.
_SHIPPED_RESULTS = Path("results")
_SHIPPED_FIGURES = {
    "classification": ("Furd_*.svg",),
    "translation": ("Multi30k_*.svg",),
    "SequenceCopying": ("copying.svg", "multihead.svg"),
    "papa": ("papa_*.svg",),
}
_METRICS = {short: metric for metric, short in SHORT.items()}
_DASH = "–"


def write_report_text(command: str) -> tuple[str, list[str]]:
    """The page, and a line for each file that had to be left out of it.

    Args:
        command: what the page says it was made by.

    Raises InputError when the working directory is not the root of the repository.
    """
    steps, papers = inventory(), read_papers()
    experiments = [_experiment(name, steps, papers) for name in TITLES]
    made = provenance()
    versions = sorted({line for experiment in experiments for line in experiment.pop("versions")})
    text = render(
        "report.html",
        experiments=experiments,
        command=command,
        commit=made["commit"],
        versions=_table(
            "Versions and machines of the runs", ["versions"], ["wide"], [[v] for v in versions]
        ),
    )
    return text, [line for experiment in experiments for line in experiment["problems"]]


def read_papers() -> dict:
    """The papers' own numbers and findings, each with its source (papers.json)."""
    return json.loads(
        resources.files("attention_dynamics.reporting").joinpath("papers.json").read_text()
    )


def _experiment(name: str, steps: list[Step], papers: dict) -> dict:
    """All that the page shows of one experiment."""
    own = [step for step in steps if step.folder == name]
    begun = {step.dataset for step in own if step.state != MISSING}
    missing = [step for step in own if step.dataset in begun and step.state != DONE]
    not_begun = [d for d in dict.fromkeys(step.dataset for step in own) if d not in begun]
    problems: list[str] = []
    numbers = [number for number in papers["numbers"] if number["experiment"] == name]
    if name == "SequenceCopying":
        tables, takeaways, used = _copying_tables(problems)
    elif name == "papa":
        tables, takeaways, used = _papa_tables(numbers, problems)
    else:
        tables, takeaways, used = _agreement_tables(name, numbers, problems)
    records, versions = _records(name, problems)
    figures = _figures(name, problems)
    first = next((step.command for step in own if step.state != DONE), "")
    return {
        "name": name,
        "title": TITLES[name],
        "idea": _IDEAS[name],
        "findings": [f for f in papers["findings"] if f["experiment"] == name],
        "tables": tables,
        "takeaways": takeaways,
        "sources": list(dict.fromkeys(number["source"] for number in used)),
        "figures": figures,
        "pages": _pages(name),
        "missing": _table(
            "Missing steps",
            ["data set", "step", "state", "command, in the root"],
            ["", "", "", "code"],
            [[s.dataset, s.what, f"{s.state}: {s.detail}", s.command] for s in missing],
        )
        if missing
        else None,
        "not_begun": ", ".join(not_begun),
        "start": f"Begin with: {first}" if first else "",
        "records": records,
        "problems": problems,
        "versions": versions,
    }


def _table(title: str, head: list[str], kinds: list[str], rows: list[list]) -> dict:
    """A table for the template; ``kinds`` says of each column: number, paper, code, wide or ""."""
    return {"title": title, "head": head, "kinds": kinds, "rows": rows}


def result_files(folder: str) -> list[Path]:
    """The results of an experiment: its own, and those that come with the repository."""
    ending = "json" if folder == "papa" else "pkl"
    shipped = _SHIPPED_RESULTS / f"{folder}.{ending}"
    return [*sorted(Path(folder).glob(f"results/*.{ending}")), *([shipped] * shipped.exists())]


def _sourced(name: str, path: Path) -> str:
    """``name``, and whether its results do not stem from runs in this copy."""
    return f"{name} (comes with the repository)" if path.parent == _SHIPPED_RESULTS else name


def _agreement_tables(folder: str, numbers: list[dict], problems: list[str]) -> tuple:
    """Tables of classification or translation: groups, takeaways, the papers' numbers used."""
    groups, takeaways, used = [], [], []
    for path in result_files(folder):
        try:
            results = read_results(path)
        except InputError as error:
            problems.append(str(error))
            continue
        for dataset in dict.fromkeys(key[0] for key in results):
            own = {key: result for key, result in results.items() if key[0] == dataset}
            tables = []
            for metric, kind in dict.fromkeys((key[1], _kind(key[3])) for key in own):
                some = {k: r for k, r in own.items() if k[1] == metric and _kind(k[3]) == kind}
                perf = _performance(folder, kind)
                title = f"{dataset}: {metric}, performance is {perf}"
                tables.append(_level_table(title, folder, some, numbers, used))
                for key, result in some.items():
                    tables.append(_curve_table(key, perf, result, numbers, used))
            groups.append(
                {
                    "title": _sourced(dataset, path),
                    "note": _note(path),
                    "shown": tables[:1],
                    "folded": tables[1:],
                }
            )
            key = next((k for k in own if k[1] == "top 5% match" and k[2] == "val"), None)
            if key:
                takeaways.append(_takeaway(folder, _sourced(dataset, path), key[3], own[key]))
    return groups, takeaways, used


def _note(path: Path) -> str:
    """Where results come from, and what the record beside them remarks."""
    try:
        record = read_json(path.with_suffix(".json"), "record")
    except InputError:
        return f"from {path}"
    note = record.get("note") if isinstance(record, dict) else None
    return f"from {path}" if note is None else f"from {path}. {note}"


def _kind(perf: str) -> str:
    """ "acc" or "bleu"."""
    return perf.rpartition("_")[2]


def paper_number(numbers: list[dict], key: tuple, statistic: str, iteration=None) -> dict | None:
    """The paper's number of a statistic, or None.

    Agreements do not depend on the performance, so that one number serves accuracy and BLEU.
    """
    dataset, metric, split, perf = key
    for number in numbers:
        wanted = (dataset, metric, split, statistic, iteration)
        there = tuple(number[k] for k in ("dataset", "metric", "split", "statistic", "iteration"))
        any_perf = not statistic.startswith(("xi_", "best_"))
        if there == wanted and (any_perf or number["performance"] == perf):
            return number
    return None


def _performance(folder: str, kind: str) -> str:
    """What the performance of this kind is, in words."""
    performance = PERFORMANCES[folder].get(kind)
    return performance.label if performance else "performance"


def _level_table(title: str, folder: str, results: dict, numbers: list, used: list) -> dict:
    """A row per statistic; a column per split, and beside it one of the paper's numbers if any."""
    names = [n for n in _LEVELS if any(n in result for result in results.values())]
    head, kinds, columns = ["statistic"], [""], []
    for key, result in results.items():
        head.append(key[2])
        kinds.append("number")
        columns.append([level_cell(folder, name, result) for name in names])
        found = {name: number for name in names if (number := paper_number(numbers, key, name))}
        if found:
            used += found.values()
            head.append(f"{key[2]}, paper")
            kinds.append("paper")
            columns.append(
                [shown(folder, n, found[n]["value"]) if n in found else "" for n in names]
            )
    rows = [[(name, _LEVELS[name]), *cells] for name, *cells in zip(names, *columns, strict=True)]
    return _table(title, head, kinds, rows)


def level_cell(folder: str, name: str, result: dict) -> str:
    """A statistic as it is shown: with its interval where it has one."""
    value = result.get(name)
    if value is None:
        return _DASH
    if math.isnan(value):
        return "not defined"
    text = shown(folder, name, value)
    if f"{name}_interval" in result:
        low, high = result[f"{name}_interval"]
        text += f" [{low:.3f}, {high:.3f}]"
    return text


def shown(folder: str, name: str, value: float) -> str:
    """The number of a statistic; performance out of 100 has one digit after the point."""
    if name == "gold_iteration":
        return str(value)
    is_percent = folder == "translation" and name.startswith(("xi_", "best_"))
    return f"{value:.1f}" if is_percent else f"{value:.3f}"


def _curve_table(key: tuple, perf: str, result: dict, numbers: list, used: list) -> dict:
    """A row per iteration, the paper's too: agreement of α with the gold run, performance."""
    dataset, metric, split, _ = key
    papers = {
        n["iteration"]: n
        for n in numbers
        if n["iteration"] is not None
        and n == paper_number(numbers, key, "alpha_corrs", n["iteration"])
    }
    used += papers.values()
    places = {int(t): place for place, t in enumerate(result["iterations"])}
    rows = []
    for t in sorted({*places, *papers}):
        place = places.get(t)
        cells = [_DASH, _DASH, _DASH]
        if place is not None:
            spread = _spread(result, "alpha_corrs_std", place)
            interval = result.get("alpha_corrs_interval")
            cells = [
                f"{result['alpha_corrs'][place]:.3f}{spread}",
                _DASH if interval is None else "[{:.3f}, {:.3f}]".format(*interval[place]),
                f"{result['alpha_perfs'][place]:.3f}" + _spread(result, "alpha_perfs_std", place),
            ]
        if papers:
            cells.insert(1, f"{papers[t]['value']:.3f}" if t in papers else "")
        rows.append([str(t), *cells])
    head = ["iteration", "agreement of α", "95% interval", perf]
    kinds = ["", "number", "number", "number"]
    if papers:
        head.insert(2, "paper")
        kinds.insert(2, "paper")
    title = f"{dataset}, {split}: {metric} of normal runs with the gold run, and {perf}"
    return _table(title, head, kinds, rows)


def _spread(result: dict, name: str, place: int) -> str:
    std = result.get(name)
    return f" ± {std[place]:.3f}" if std is not None and any(std) else ""


def _takeaway(folder: str, name: str, perf: str, result: dict) -> str:
    """What the paper's main comparison says of one data set, in a sentence."""
    line = (
        f"{name}: the attention of the gold run agrees with β^uf at {result['agr_unif']:.3f} "
        f"(top 5% match; random order: {result['baseline']:.3f})"
    )
    if result.get("xi_unif") is None:
        return f"{line}. The attention of other normal runs never agreed with it more than that."
    perf = _performance(folder, _kind(perf))
    return (
        f"{line}. The attention of other normal runs agrees with it more than that once their "
        f"{perf} is {shown(folder, 'xi_unif', result['xi_unif'])} (best of the gold run: "
        f"{shown(folder, 'best_perf', result['best_perf'])})."
    )


def _copying_tables(problems: list[str]) -> tuple:
    """Tables of sequence copying, from the records beside histories and combinations, and of those
    that come with the repository."""
    groups, takeaways = [], []
    base, shipped = Path("SequenceCopying"), _SHIPPED_RESULTS
    histories = []
    for path in sorted(base.glob("logs/*.json")):
        try:
            histories.append(_history_row(_results_of(path)))
        except InputError as error:
            problems.append(str(error))
        except (KeyError, TypeError, ValueError, StopIteration):
            problems.append(f"{path} is no record of seq2seq.py: make it again with --overwrite")
    if histories:
        groups.append(_histories_group(histories, base / "logs", takeaways))
    if (path := shipped / "copying.json").exists():
        try:
            histories = [_history_row(row) for row in read_json(path, "results")["settings"]]
            groups.append(_histories_group(histories, path, takeaways))
        except InputError as error:
            problems.append(str(error))
        except (KeyError, TypeError, ValueError, StopIteration):
            problems.append(f"results {path} are not those of the copying runs")
    for path in [*sorted(base.glob("re_*headcomb.json")), *shipped.glob("multihead.json")]:
        try:
            rows = [
                [
                    row["setting"],
                    f"{row[next(k for k in row if k.startswith('exceed '))]} of {row['of']}",
                    f"{row['share']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
                ]
                for row in _results_of(path)["shares"]
            ]
        except InputError as error:
            problems.append(str(error))
            continue
        except (KeyError, TypeError, ValueError, StopIteration):
            problems.append(f"{path} is no record of multihead.py: make it again with --overwrite")
            continue
        head = ["heads", "combinations that learn", "share, 95% interval"]
        table = _table("Good and bad heads", head, ["", "number", "number"], rows)
        note = f"from {path}; a combination learns when its accuracy exceeds 0.95"
        takeaways += [f"{_sourced(row[0], path)}: {row[1]} combinations learn." for row in rows]
        title = _sourced("Good and bad heads", path)
        groups.append({"title": title, "note": note, "shown": [table], "folded": []})
    return groups, takeaways, []


def _history_row(result: dict) -> tuple[str, int, int, str, str]:
    """Setting, seeds that learn, seeds, and two cells of the table, of a row of seq2seq.py."""
    count = next(result[key] for key in result if key.startswith("reach "))
    share = f"{result['share']:.2f} [{result['low']:.2f}, {result['high']:.2f}]"
    name = COPYING.get(result["setting"], result["setting"])
    return name, count, result["of"], share, f"{result['mean acc at the end']:.3f}"


def _histories_group(histories: list[tuple], source: Path, takeaways: list[str]) -> dict:
    """The table of :func:`_history_row` rows; what they say is added to ``takeaways``."""
    counts = {name: [count, of - count] for name, count, of, _, _ in histories}
    takeaways += [
        f"{_sourced(name, source)}: {count} of {of} seeds learn to copy."
        for name, count, of, _, _ in histories
    ]
    if all(name in counts for name in COPYING.values()):
        p = fisher_exact([counts[name] for name in COPYING.values()]).pvalue
        compared = _sourced(" against ".join(COPYING.values()), source)
        takeaways.append(f"{compared}: Fisher's exact test gives p = {p:.2g}.")
    head = ["setting", "seeds that learn", "share, 95% interval", "mean accuracy at the end"]
    rows = [[name, f"{count} of {of}", *cells] for name, count, of, *cells in histories]
    table = _table("Seeds that learn to copy", head, ["", *["number"] * 3], rows)
    note = f"from {source}; a seed learns when it reaches an accuracy of 0.95"
    title = _sourced("Learning to copy", source)
    return {"title": title, "note": note, "shown": [table], "folded": []}


def _results_of(path: Path) -> dict:
    """The "results" of a record."""
    content = read_json(path, "record")
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, dict):
        raise InputError(f"record {path} holds no results: make it again with --overwrite")
    return results


def _papa_tables(numbers: list[dict], problems: list[str]) -> tuple:
    """Tables of constant heads: a group per results file."""
    groups, takeaways, used = [], [], []
    for path in result_files("papa"):
        try:
            content = read_json(path, "results")
            tables, drops = papa_file(content)
        except InputError as error:
            problems.append(str(error))
            continue
        except (AttributeError, KeyError, TypeError, ValueError):
            problems.append(f"results {path} are not those of collect_papa_stats.py: collect again")
            continue
        rows = []
        for model, by_task in drops.items():
            drop = _percent(sum(by_task) / len(by_task))
            tasks, spread = "1 task", _DASH
            if len(by_task) > 1:
                spread = f"{_percent(min(by_task))} to {_percent(max(by_task))}"
                tasks = f"{len(by_task)} tasks, from {spread}"
            rows.append([model, str(len(by_task)), drop, spread])
            takeaways.append(
                f"{_sourced(model, path)} loses {drop} of its score (mean over {tasks}) when all "
                "its heads are constant."
            )
        number = next((n for n in numbers if n.get("share") == 1.0), None)
        if rows:
            head, kinds = ["model", "tasks", "drop", "over tasks"], ["", *["number"] * 3]
            if number:
                used.append(number)
                head.append("paper's models")
                kinds.append("paper")
                rows = [[*row, f"about {100 * number['value']:.0f}%"] for row in rows]
            title = "Mean relative drop over tasks, all heads constant (last epoch)"
            tables.insert(0, _table(title, head, kinds, rows))
        title = _sourced(", ".join(content), path)
        groups.append(
            {"title": title, "note": f"from {path}", "shown": tables[:3], "folded": tables[3:]}
        )
    return groups, takeaways, used


def papa_file(content: dict) -> tuple[list[dict], dict[str, list[float]]]:
    """What collect_papa_stats.py has written: a table per folder; model -> drops of its tasks.

    The drops are those with all heads constant.
    """
    tables, drops = [], {}
    for name, one in content.items():
        by_heads: dict[int, dict] = {}
        for row in one["rows"]:
            by_heads.setdefault(row["heads"], {})[row["epoch"]] = row
            if row["share"] == 1 and row["epoch"] == "last" and row["drop"] is not None:
                drops.setdefault(one["model"], []).append(row["drop"])
        rows = [
            [
                f"{heads} ({epochs['last']['share']:.0%})",
                str(epochs["last"]["seeds"]),
                *(
                    _mean_and_std(epochs[epoch], what)
                    for epoch in ("last", "best")
                    for what in ("score", "drop")
                ),
            ]
            for heads, epochs in sorted(by_heads.items())
        ]
        head = ["constant heads", "seeds"]
        head += [
            f"{what}, {epoch} epoch" for epoch in ("last", "best") for what in ("score", "drop")
        ]
        title = f"{name}: {one['metric']} of {one['model']} on {one['task']}"
        tables.append(_table(title, head, ["", *["number"] * 5], rows))
    return tables, drops


def _percent(share: float) -> str:
    """A share in percent; what rounds to zero has no sign."""
    return f"{100 * share:z.1f}%"


def _mean_and_std(row: dict, what: str) -> str:
    mean, std = row[what], row[f"{what}_std"]
    if mean is None:
        return _DASH
    scale, digits, unit = (100, 1, "%") if what == "drop" else (1, 3, "")
    spread = "" if std is None else f" ± {scale * std:.{digits}f}"
    return f"{scale * mean:z.{digits}f}{spread}{unit}"


def _record_paths(folder: str) -> Iterable[Path]:
    base = Path(folder)
    patterns = {
        "SequenceCopying": ("logs/*.json", "re_*headcomb.json"),
        "papa": ("outputs/*/sorted/run.json", "outputs/*/results/*/run.json"),
    }.get(folder, ("models/*/*/run.json", "outputs/*.json"))
    for pattern in patterns:
        yield from sorted(base.glob(pattern))


def _records(folder: str, problems: list[str]) -> tuple[dict | None, list[str]]:
    """The records of all runs and outputs as a table; their versions and machines."""
    rows, versions = [], []
    for path in _record_paths(folder):
        try:
            record = read_json(path, "record")
            if not isinstance(record, dict) or not isinstance(record.get("command"), str):
                raise InputError(f"record {path} says no command: make what it describes again")
        except InputError as error:
            problems.append(str(error))
            continue
        settings = record.get("settings")
        settings = settings if isinstance(settings, dict) else {}
        checksums = settings.get("checksums")
        data = checksums.get("data") if isinstance(checksums, dict) else settings.get("data")
        seed = settings.get("seed", settings.get("seeds"))
        where = path.parent if path.name == "run.json" else path
        if isinstance(record.get("versions"), dict):
            named = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
            versions.append(f"{named}; {record.get('machine', 'unknown machine')}")
        rows.append(
            [
                str(Path(*where.parts[1:])),
                record["command"],
                _DASH if seed is None else str(seed),
                str(record.get("commit") or "unknown")[:12],
                _DASH if data is None else str(data),
            ]
        )
    if not rows:
        return None, []
    head = ["what", "command", "seed", "commit", "checksum of the data"]
    title = f"Provenance: commands, seeds, commits, data ({len(rows)})"
    return _table(title, head, ["wide", "code", "", "", "wide"], rows), versions


def _figures(folder: str, problems: list[str]) -> list[dict]:
    """The svg figures of an experiment, as data addresses with a title and a text for the blind."""
    paths = sorted(Path(folder).glob("figures/*.svg"))
    for pattern in _SHIPPED_FIGURES[folder]:
        paths += sorted(_SHIPPED_RESULTS.glob(pattern))
    figures = []
    for path in paths:
        content = path.read_bytes()
        try:
            root = xml.etree.ElementTree.fromstring(content)
            if not root.tag.endswith("svg"):
                raise ValueError
        except (xml.etree.ElementTree.ParseError, ValueError):
            problems.append(f"figure {path} is damaged: draw it again")
            continue
        titles = [element.text for element in root.iter() if element.tag.endswith("}title")]
        title = next(filter(None, titles), path.stem)
        metric = _METRICS.get(path.stem.rpartition("_")[2])
        what = "the numbers of the tables above"
        if metric:
            title += f", {metric}"
            what = "above, agreement of attention over training, and the levels of its rivals; "
            what += "below, performance"
        numbers = path.with_suffix(".csv")
        figures.append(
            {
                "file": str(path),
                "numbers": str(numbers) if numbers.exists() else "",
                "title": title,
                "alt": f"{title}: {what}",
                "uri": "data:image/svg+xml;base64," + base64.b64encode(content).decode(),
            }
        )
    return figures


def _pages(folder: str) -> list[dict]:
    """The pages with a slider, as texts to be embedded."""
    titles = {"tokens": "sentences, coloured by α", "matrices": "sentence pairs, α beside β^uf"}
    return [
        {
            "file": str(path),
            "title": f"{path.stem.rpartition('_')[0]}: {title}, checkpoint by checkpoint",
            "text": path.read_text(encoding="utf-8", errors="replace"),
        }
        for kind, title in titles.items()
        for path in sorted(Path(folder).glob(f"figures/*_{kind}.html"))
    ]

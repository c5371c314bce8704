"""Numbers and tables in Markdown pages that come from result files, rewritten by a command.

A table stands between two comments, of which the first says where it comes from::

    <!-- tables: results/translation.pkl | acc | top 5% match, kendall tau -->
    <!-- end -->

with the kind of performance (acc, bleu) and the metrics; instead of both, ``papers`` gives the
numbers beside those of the paper, ``papa`` those of a results file of collect_papa_stats.py, and
``rows`` with keys such as ``results / shares`` a list of objects in any JSON file. A
number in running text is followed by such a comment; it is the statistic of a result, or of the
paper (papers.json), or an entry of a JSON file (keys of objects, indices of lists), in the given
format::

    0.301<!-- = results/translation.pkl multi30k / top 5% match / val / val_acc / agr_unif .3f -->
    0.310<!-- = paper multi30k / top 5% match / val / val_acc / agr_unif .3f -->
    1.34<!-- = benchmarks/results/papa.json forward / rows / 0 / ratio .2f -->

A format that ends in % gives the number in percent, without the sign.
"""

import re
import statistics
from pathlib import Path

from attention_dynamics.cli import InputError
from attention_dynamics.reporting.inventory import read_results
from attention_dynamics.reporting.report import (
    level_cell,
    papa_file,
    paper_number,
    read_papers,
    shown,
)
from attention_dynamics.reporting.tables import format_table, result_tables
from attention_dynamics.storage.files import read_json

_TABLES = re.compile(r"(<!-- tables: ([^|>]+?) \|([^>]*?)-->\n)(.*?)(<!-- end -->)", re.DOTALL)
_NUMBER = re.compile(
    r"(-?\d+(?:\.\d+)?)(<!-- = (paper|\S+\.pkl|\S+\.json) ([^>]+?) (\.\d[f%]) -->)"
)
_ANY_NUMBER = "<!-- = "
_PERF = {
    ("classification", "acc"): "accuracy",
    ("translation", "acc"): "token accuracy",
    ("translation", "bleu"): "BLEU",
}


def rewritten(page: Path) -> str:
    """The text of ``page`` with all its tables and numbers as the result files have them now.

    Raises InputError for a comment that cannot be followed, naming page and comment.
    """
    text = page.read_text(encoding="utf-8")
    for what, pattern, sign in (("tables", _TABLES, "<!-- tables:"), ("=", _NUMBER, _ANY_NUMBER)):
        if len(pattern.findall(text)) != text.count(sign):
            raise InputError(
                f"{page}: a comment <!-- {what} ... --> is not of the form that "
                "attention_dynamics/reporting/quotes.py describes"
            )
    try:
        text = _TABLES.sub(_tables, text)
        return _NUMBER.sub(_number, text)
    except InputError as error:
        raise InputError(f"{page}: {error}") from None


def _tables(match: re.Match) -> str:
    begin, file, what, _, end = match.groups()
    path, experiment = Path(file), Path(file).stem
    kind, _, metrics = (part.strip() for part in what.strip().partition("|"))
    if kind == "papa":
        return f"{begin}\n{_papa_tables(path)}\n\n{end}"
    if kind == "rows":
        rows = _entry(read_json(path, "results"), tuple(metrics.split(" / ")))
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InputError(f"{path} has no list of rows {metrics}")
        return f"{begin}\n{format_table(rows, 'markdown')}\n\n{end}"
    results = read_results(path)
    if kind == "papers":
        made = format_table(_paper_rows(experiment, results), "markdown")
    else:
        wanted = [metric.strip() for metric in metrics.split(",")]
        some = {
            key: result
            for key, result in results.items()
            if key[1] in wanted and key[3].endswith(f"_{kind}")
        }
        if not some or (experiment, kind) not in _PERF:
            raise InputError(f"{path} has nothing of {kind} and {metrics}")
        made = result_tables(some, _PERF[experiment, kind], "markdown")
    return f"{begin}\n{made}\n\n{end}"


def _papa_tables(path: Path) -> str:
    """A table per task, and the mean drop over tasks at the shares that all of them have."""
    content = read_json(path, "results")
    tables, _ = papa_file(content)
    blocks = [
        f"### {table['title']}\n\n"
        + format_table(
            [dict(zip(table["head"], row, strict=True)) for row in table["rows"]], "markdown"
        )
        for table in tables
    ]
    drops = [
        {(row["share"], row["epoch"]): row["drop"] for row in one["rows"]}
        for one in content.values()
    ]
    shares = sorted({share for of_one in drops for share, _ in of_one})
    rows = [
        {
            "constant heads": f"{share:.0%}",
            **{
                f"drop, {epoch} epoch": f"{statistics.fmean(d[share, epoch] for d in drops):.1%}"
                for epoch in ("last", "best")
            },
        }
        for share in shares
        if all((share, "last") in of_one for of_one in drops)
    ]
    blocks.append(f"### Mean over {len(drops)} tasks\n\n{format_table(rows, 'markdown')}")
    return "\n\n".join(blocks)


def _number(match: re.Match) -> str:
    _, comment, source, path, form = match.groups()
    keys = tuple(path.split(" / "))
    value = None
    if source.endswith(".json"):
        value = _entry(read_json(Path(source), "results"), keys)
    elif len(keys) == 5:
        *key, statistic = keys
        if source == "paper":
            numbers = [n for n in read_papers()["numbers"] if "dataset" in n]
            value = (paper_number(numbers, tuple(key), statistic) or {}).get("value")
        else:
            value = read_results(Path(source)).get(tuple(key), {}).get(statistic)
    if type(value) not in (int, float):
        raise InputError(f"{source} has no number {path}")
    return f"{value:{form}}".removesuffix("%") + comment


def _entry(content: object, keys: tuple[str, ...]) -> object:
    """What stands under ``keys`` in JSON; None when there is nothing."""
    for key in keys:
        if isinstance(content, dict):
            content = content.get(key)
        elif isinstance(content, list) and key.isdecimal() and int(key) < len(content):
            content = content[int(key)]
        else:
            return None
    return content


def _paper_rows(experiment: str, results: dict) -> list[dict]:
    """The paper's numbers that the results have too, and all of its curve, beside ours."""
    rows = []
    numbers = [n for n in read_papers()["numbers"] if n["experiment"] == experiment]
    curves: dict[tuple, dict] = {}
    for number in numbers:
        key = tuple(number[k] for k in ("dataset", "metric", "split", "performance"))
        statistic, iteration, result = number["statistic"], number["iteration"], results.get(key)
        if result is None:
            raise InputError(f"the results have nothing of {' / '.join(key)}")
        if iteration is not None:
            curves.setdefault(key, {})[iteration] = number["value"]
            continue
        if statistic not in result:
            raise InputError(f"the results have no {statistic} of {' / '.join(key)}")
        ours = level_cell(experiment, statistic, result)
        bleu = ", BLEU" if key[3].endswith("_bleu") else ""
        theirs = shown(experiment, statistic, number["value"])
        rows.append({"statistic": f"{statistic}{bleu}", "here": ours, "the authors": theirs})
    for key, theirs in curves.items():
        ours = dict(zip(results[key]["iterations"], results[key]["alpha_corrs"], strict=True))
        for t in sorted({*theirs, max(ours)}):
            rows.append(
                {
                    "statistic": f"α agreement at step {t}",
                    "here": f"{ours[t]:.3f}" if t in ours else None,
                    "the authors": f"{theirs[t]:.3f}" if t in theirs else None,
                }
            )
    return rows

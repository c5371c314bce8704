"""Tasks of sequence classification: those of GLUE and your own, from files or the hub."""

import dataclasses
import math
import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

import readers
from arguments import DataArguments
from readers import Split, Table, Task

from attention_dynamics.cli import InputError

_ENTAILMENT = ("entailment", "not_entailment")
# The names of the labels in the order of their numbers; none for a regression.
GLUE = {
    "cola": ("unacceptable", "acceptable"),
    "mnli": ("entailment", "neutral", "contradiction"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qnli": _ENTAILMENT,
    "qqp": ("not_duplicate", "duplicate"),
    "rte": _ENTAILMENT,
    "sst2": ("negative", "positive"),
    "stsb": (),
    "wnli": _ENTAILMENT[::-1],
}
SUBMITS_NAMES = ("mnli", "qnli", "rte")  # submissions of the others have numbers
GLUE_ON_HUB = "nyu-mll/glue"
_COLA_HEADER = ("source", "label", "mark", "sentence")  # of its files, which have none
# The columns of one or two texts and of labels, in GLUE's files, on the hub, and in your own files.
_TEXTS = (
    ("sentence1", "sentence2"), ("#1 String", "#2 String"), ("question1", "question2"),
    ("premise", "hypothesis"), ("question", "sentence"), ("sentence",), ("text",),
)  # fmt: skip
_LABELS = ("label", "gold_label", "Quality", "is_duplicate", "score")
_MISSING = {"", "na", "n/a", "nan", "none", "null", "<na>"}  # as labels, in any case


def load_sequence_task(
    data: DataArguments,
    cache_dir: str | None = None,
    splits: Iterable[str] = ("train", "validation"),
) -> Task:
    """Load the task of GLUE, or your own, that the command line names.

    Args:
        data: a task of GLUE without files, folder and dataset is read from the hub.
        cache_dir: cache directory of the hub's library.
        splits: the splits to read; the labels of your own task come from "train", which is then
            always read. MNLI's validation and test come in two: ``validation_matched`` and so on.

    The columns are the first of ``_TEXTS`` and of ``_LABELS``. Labels are names or numbers. Your
    own task is a regression if all labels are numbers and some are not integers. Only "test" may
    have no labels: no column, or all missing (``_MISSING``; for GLUE and the hub also -1).

    Raises InputError for an unknown task, a missing split or column, and an invalid label.
    """
    name = data.task_name and data.task_name.lower().replace("-", "")
    names, files = GLUE.get(name), data.files
    if name and name not in GLUE:
        raise InputError(
            f"--task_name {data.task_name} is not a task of GLUE (expected {', '.join(GLUE)}); for "
            "your own task, omit it and give --train_file and --validation_file"
        )
    if data.task_dir and (any(files.values()) or not name):
        raise InputError("--task_dir needs the --task_name of a task of GLUE, and no --train_file")
    wanted = list(splits) if name else list(dict.fromkeys(("train", *splits)))
    if name and not any(files.values()) and (data.task_dir or not data.dataset_name):
        if name == "mnli":
            halves = ("_matched", "_mismatched")
            wanted = [s + half for s in wanted for half in (("",) if s == "train" else halves)]
        if data.task_dir:
            files = dict.fromkeys(wanted, data.task_dir)
        data = dataclasses.replace(data, dataset_name=GLUE_ON_HUB, dataset_config_name=name)

    def read(path: str, split: str) -> Table:
        header = _COLA_HEADER if name == "cola" else ()
        if not data.task_dir:
            return readers.read_table(path, header)
        # The submission of a test set needs a prediction for every row.
        file = split.replace("validation", "dev") + ".tsv"
        return readers.read_table(path, header, file, not split.startswith("test"))

    tables = readers.read_splits(data, files, wanted, read, cache_dir)
    examples = {split: _examples(table, split) for split, table in tables.items()}
    if names is None:
        names = examples["train"][1]
    is_numbered = names is not None
    if not is_numbered:
        names = _label_names(tables["train"].where, examples["train"][0])
    encoded = {}
    for split, (rows, _) in examples.items():
        numbers = _label_numbers(rows, split, names, is_numbered)
        encoded[split] = Split([row.texts for row in rows], numbers)
    return Task(name, names, encoded)


class _Row(NamedTuple):
    """An example: where it is, for errors; one or two texts; its label ("": none)."""

    place: str
    texts: tuple[str, ...]
    label: str


def _examples(table: Table, split: str) -> tuple[list[_Row], tuple[str, ...] | None]:
    """The rows of a table, and the names of the labels where the source has some."""
    columns = list(table.rows[0][1])
    texts = next((names for names in _TEXTS if {*names} <= {*columns}), None)
    label = next((name for name in _LABELS if name in columns), None)
    if not texts or not (label or split.startswith("test")):
        raise InputError(
            f"{table.where} has no columns of texts and labels (expected sentence, or sentence1 "
            f"and sentence2; label); it has {', '.join(columns[:12])}"
        )
    rows = []
    for place, row in table.rows:
        values, name = tuple(map(row.get, texts)), row.get(label)
        if not all(isinstance(text, str) for text in values):
            raise InputError(f"{place}: a text is not a string (got {values!a}); fix the row")
        rows.append(_Row(place, values, "" if name is None else str(name).strip()))
    undecided = [row for row in rows if row.label == "-"]
    if undecided and any(row.label == "entailment" for row in rows):  # in MNLI and SNLI
        rows = [row for row in rows if row.label != "-"]
        left_out = f"{len(undecided)} pair(s) have no agreed label (-) and are left out"
        print(f"note: {left_out} (the first one: {undecided[0].place})", file=sys.stderr)
    return rows, table.label_names.get(label)


# --- labels ---


def _label_names(where: str, rows: list[_Row]) -> tuple[str, ...]:
    """The sorted labels of your own task; none if they are the values of a regression.

    Integers are classes in any spelling (1, 1.0), named and sorted as integers.
    """
    names = {_class(row.label) for row in rows if row.label.lower() not in _MISSING}
    if len(names) < 2:
        raise InputError(f"{where} has {len(names)} different label(s): training needs two or more")
    if None in map(_number, names):
        return tuple(sorted(names))
    is_class = all(re.fullmatch(r"-?\d+", name) for name in names)
    return tuple(sorted(names, key=int)) if is_class else ()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _class(label: str) -> str:
    """The name of a class: that of an integer in any spelling (1.0, 01) is as in 1."""
    value = _number(label)
    return label if value is None or not value.is_integer() else str(int(value))


def _label_numbers(
    rows: list[_Row], split: str, names: tuple[str, ...], is_numbered: bool
) -> list[int] | list[float] | None:
    """The labels of a split as numbers; None for a test set that has none.

    ``is_numbered``: numbers in the source are those of ``names``, and -1 is a missing label.
    """
    number_of = {str(number): number for number in range(len(names))} if is_numbered else {}
    number_of |= {name: number for number, name in enumerate(names)}
    labels = [row.label if row.label in number_of else _class(row.label) for row in rows]
    missing = {label for label in {*labels} - {*number_of} if label.lower() in _MISSING}
    missing |= {"-1"} if is_numbered else set()
    if split.startswith("test") and missing.issuperset(labels):
        return None
    numbers = []
    for (place, *_), label in zip(rows, labels, strict=True):
        if label in missing:
            raise InputError(f"{place} has no label; only a test set may have none, in all rows")
        number = number_of.get(label) if names else _number(label)
        if number is None:
            raise readers.unknown_label(place, label, names or ("numbers",))
        numbers.append(number)
    return numbers

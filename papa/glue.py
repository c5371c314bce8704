"""Tasks of sequence classification: those of GLUE and your own, from files or the hub."""

import dataclasses
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import readers
from arguments import DataArguments
from readers import Split, Table, Task

from attention_dynamics.cli import InputError


class Glue(NamedTuple):
    """A task of GLUE.

    Attributes:
        columns: the one or two columns of text, as the hub names them.
        labels: names in the order of their numbers; none for a regression.
        file_columns, file_label: the same columns in the tsv files of the distribution.
        submits_names: whether submissions to the benchmark have names, not numbers.
    """

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    file_columns: tuple[str, ...]
    file_label: str = "label"
    submits_names: bool = False


_PAIR = ("sentence1", "sentence2")
_QUESTIONS = ("question1", "question2")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
GLUE = {
    "cola": Glue(("sentence",), ("unacceptable", "acceptable"), ("sentence",)),
    "mnli": Glue(("premise", "hypothesis"), _THREE_WAY, _PAIR, "gold_label", True),
    "mrpc": Glue(_PAIR, ("not_equivalent", "equivalent"), ("#1 String", "#2 String"), "Quality"),
    "qnli": Glue(("question", "sentence"), _ENTAILMENT, ("question", "sentence"), "label", True),
    "qqp": Glue(_QUESTIONS, ("not_duplicate", "duplicate"), _QUESTIONS, "is_duplicate"),
    "rte": Glue(_PAIR, _ENTAILMENT, _PAIR, "label", True),
    "sst2": Glue(("sentence",), ("negative", "positive"), ("sentence",)),
    "stsb": Glue(_PAIR, (), _PAIR, "score"),
    "wnli": Glue(_PAIR, _ENTAILMENT[::-1], _PAIR),
}
GLUE_ON_HUB = "nyu-mll/glue"
_COLA_HEADER = ("source", "label", "mark", "sentence")  # of its files, which have none
_OWN_COLUMNS = (_PAIR, ("sentence",), ("text",))
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

    The columns are those of the task, or ``sentence1`` and ``sentence2``, ``sentence`` or ``text``;
    and ``label``. Labels are names or numbers. Your own task is a regression if all labels are
    numbers and some are not integers. Only "test" may have no labels: no column, or all of them
    missing (empty, NA, NaN, None, null; for GLUE and the hub also -1).

    Raises InputError for an unknown task, a missing split or column, and an invalid label.
    """
    name = data.task_name and data.task_name.lower().replace("-", "")
    glue, files = GLUE.get(name), data.files
    if name and not glue:
        raise InputError(
            f"--task_name {data.task_name} is not a task of GLUE (expected {', '.join(GLUE)}); for "
            "your own task, omit it and give --train_file and --validation_file"
        )
    wanted = list(splits) if glue else list(dict.fromkeys(("train", *splits)))
    if data.task_dir and (any(files.values()) or not glue):
        raise InputError("--task_dir needs the --task_name of a task of GLUE, and no --train_file")
    if glue and not any(files.values()) and (data.task_dir or not data.dataset_name):
        if name == "mnli":
            halves = ("_matched", "_mismatched")
            wanted = [s + half for s in wanted for half in (("",) if s == "train" else halves)]
        if data.task_dir:
            files = {split: _glue_file(data.task_dir, split) for split in wanted}
        data = dataclasses.replace(data, dataset_name=GLUE_ON_HUB, dataset_config_name=name)

    def read(path: str, split: str) -> Table:
        # The submission of a test set needs a prediction for every row.
        skip_malformed = data.task_dir is not None and not split.startswith("test")
        return readers.read_table(path, _COLA_HEADER if name == "cola" else (), skip_malformed)

    tables = readers.read_splits(data, files, wanted, read, cache_dir)
    examples = {split: _examples(table, split, glue) for split, table in tables.items()}
    names = glue.labels if glue else examples["train"][2]
    numbered = names is not None
    if not numbered:
        names = _label_names(tables["train"].where, examples["train"][1])
    read = {}
    for split, (texts, labels, _) in examples.items():
        read[split] = Split(texts, _label_numbers(tables[split], split, labels, names, numbered))
    return Task(name, names, read)


def _glue_file(task_dir: str, split: str) -> str:
    path = Path(task_dir, split.replace("validation", "dev") + ".tsv")
    return str(path if path.exists() else path.with_suffix(".tsv.gz"))


def _examples(
    table: Table, split: str, glue: Glue | None
) -> tuple[list[tuple[str, ...]], list[str], tuple[str, ...] | None]:
    """Texts, labels ("": none), and the names of the labels where the source has some."""
    possible = _OWN_COLUMNS
    if glue:
        number = len(glue.columns)
        possible = (glue.file_columns, glue.columns, *(c for c in possible if len(c) == number))
    texts = next((names for names in possible if {*names} <= {*table.columns}), None)
    label = glue.file_label if glue and glue.file_label in table.columns else "label"
    absent = " or ".join(dict.fromkeys(map(" + ".join, possible))) if texts is None else ""
    if not absent and label not in table.columns and not split.startswith("test"):
        absent = label
    if absent:
        raise InputError(
            f"{table.where} has no column {absent}; it has {', '.join(table.columns[:12])}"
        )
    examples, labels = [], []
    for place, row in table.rows:
        examples.append(tuple(row.get(column) for column in texts))
        if not all(isinstance(text, str) for text in examples[-1]):
            raise InputError(f"{place}: a text is not a string (got {examples[-1]!a}); fix the row")
        labels.append("" if row.get(label) is None else str(row[label]).strip())
    return examples, labels, table.label_names.get(label)


# --- labels ---


def _label_names(where: str, labels: list[str]) -> tuple[str, ...]:
    """The sorted labels of your own task; none if they are the values of a regression.

    Integers are classes in any spelling (1, 1.0), named and sorted as integers.
    """
    names = {_class(label) for label in labels if label.lower() not in _MISSING}
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
    table: Table, split: str, labels: list[str], names: tuple[str, ...], numbered: bool
) -> list[int] | list[float] | None:
    """The labels of a split as numbers; None for a test set that has none.

    ``numbered``: numbers in the source are those of ``names``, and -1 is a missing label.
    """
    number_of = {str(number): number for number in range(len(names))} if numbered else {}
    number_of |= {name: number for number, name in enumerate(names)}
    labels = [label if label in number_of else _class(label) for label in labels]
    missing = {label for label in {*labels} - {*number_of} if label.lower() in _MISSING}
    missing |= {"-1"} if numbered else set()
    if split.startswith("test") and missing.issuperset(labels):
        return None
    numbers = []
    for (place, _), label in zip(table.rows, labels, strict=True):
        if label in missing:
            raise InputError(f"{place} has no label; only a test set may have none, in all rows")
        number = number_of.get(label) if names else _number(label)
        if number is None:
            raise readers.unknown_label(place, label, names or ("numbers",))
        numbers.append(number)
    return numbers

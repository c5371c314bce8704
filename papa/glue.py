"""Tasks of sequence classification: those of GLUE and your own, from files or the hub."""

import functools
import math
import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

import readers
from arguments import DataArguments
from readers import Split, Table, Task

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source


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


def glue_name(task_name: str) -> str:
    """The name of a GLUE task in any spelling (COLA, SST-2); InputError for an unknown one."""
    name = task_name.lower().replace("-", "")
    if name not in GLUE:
        raise InputError(
            f"--task_name {task_name} is not a task of GLUE (expected one of {', '.join(GLUE)}); "
            "for your own task, omit it and give --train_file and --validation_file"
        )
    return name


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
    name = glue_name(data.task_name) if data.task_name else None
    glue = GLUE.get(name)
    wanted = list(splits) if glue else list(dict.fromkeys(("train", *splits)))
    header = _COLA_HEADER if name == "cola" else ()
    if any(data.files.values()):
        if data.task_dir:
            raise InputError(
                "give either --task_dir, or --train_file and --validation_file; not both"
            )
        read = functools.partial(readers.read_table, header=header)
        tables = readers.read_files(data.files, wanted, read)
    elif data.task_dir:
        if glue is None:
            raise InputError("--task_dir needs the --task_name of a task of GLUE")
        tables = _read_directory(data.task_dir, name, _mnli_splits(name, wanted), header)
    elif data.dataset_name or glue:
        dataset, config = data.dataset_name, data.dataset_config_name
        if not dataset:
            dataset, config, wanted = GLUE_ON_HUB, name, _mnli_splits(name, wanted)
        advice = "--task_dir, or --train_file and --validation_file"
        tables = readers.read_hub(dataset, config, cache_dir, wanted, advice)
    else:
        raise InputError(
            "no data: give --task_name for a task of GLUE, or --train_file and --validation_file"
        )
    examples = {split: _examples(table, split, glue) for split, table in tables.items()}
    names = glue.labels if glue else examples["train"][2]
    numbered = names is not None
    if not numbered:
        names = _label_names(tables["train"].where, examples["train"][1])
    read = {}
    for split, (texts, labels, _) in examples.items():
        read[split] = Split(texts, _label_numbers(tables[split], split, labels, names, numbered))
    return Task(name, names, read)


def _mnli_splits(name: str, splits: list[str]) -> list[str]:
    if name != "mnli":
        return splits
    halves = ("_matched", "_mismatched")
    return [s + half for s in splits for half in (("",) if s == "train" else halves)]


def _read_directory(task_dir: str, name: str, splits: list[str], header: tuple) -> dict[str, Table]:
    source, tables = Source(task_dir), {}
    for split in splits:
        wanted = split.replace("validation", "dev") + ".tsv"
        found = [member for member in source.names if PurePosixPath(member).name == wanted]
        if len(found) != 1:
            raise InputError(
                f"--task_dir must be the directory of {name}, with one {wanted} (or {wanted}.gz); "
                + source.described()
            )
        # The submission of a test set needs a prediction for every row.
        skip_malformed = not split.startswith("test")
        tables[split] = readers.read_table(source, found[0], header, skip_malformed)
    return tables


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
        if not all(map(readers.is_text, examples[-1])):
            raise InputError(f"{place}: not a text of valid Unicode: {examples[-1]!a}; fix the row")
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

"""Tasks of sequence classification: those of GLUE and your own, from files or the hub."""

import math
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import NamedTuple

import readers
from readers import Table

from attention_dynamics.cli import InputError
from attention_dynamics.storage.text import has_lone_surrogate


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


class SequenceSplit(NamedTuple):
    """Examples of one or two sentences: ``texts[i]``, and ``labels[i]``, a number (None for a test
    set without labels)."""

    texts: list[tuple[str, ...]]
    labels: list[int] | list[float] | None


@dataclass(frozen=True)
class SequenceTask:
    """A task of sequence classification.

    Attributes:
        name: in GLUE (lower case), or None.
        labels: names in the order of their numbers; none for a regression.
        splits: name -> examples, in the requested order; MNLI's validation and test come in two,
            ``validation_matched`` and ``validation_mismatched``.
    """

    name: str | None
    labels: tuple[str, ...]
    splits: dict[str, SequenceSplit]


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
    task_name: str | None = None,
    *,
    files: dict[str, str | None] | None = None,
    task_dir: str | None = None,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    cache_dir: str | None = None,
    splits: Iterable[str] = ("train", "validation"),
) -> SequenceTask:
    """Load a task of GLUE, or your own.

    Args:
        task_name: of GLUE, in any case; None for another task. Without any of the next three
            arguments it is read from the hub.
        files: "train", "validation", "test" -> path of a csv, tsv or json file (also .gz).
        task_dir: directory (or archive) of the tsv files of the GLUE distribution.
        dataset_name, dataset_config_name: another dataset of the hub.
        cache_dir: cache directory of the hub's library.
        splits: the splits to read; the labels of your own task come from "train", which is then
            always read.

    The columns are those of the task, or ``sentence1`` and ``sentence2``, ``sentence`` or ``text``;
    and ``label``. Labels are names or numbers. Your own task is a regression if all labels are
    numbers and some are not integers. Only "test" may have no labels: no column, or all of them
    missing (empty, NA, NaN, None, null; for GLUE and the hub also -1).

    Raises InputError for an unknown task, a missing split or column, and an invalid label.
    """
    name = glue_name(task_name) if task_name else None
    glue = GLUE[name] if name else None
    files = {split: path for split, path in (files or {}).items() if path}
    wanted = list(splits) if glue else list(dict.fromkeys(("train", *splits)))
    if files and task_dir:
        raise InputError("give either --task_dir, or --train_file and --validation_file; not both")
    if task_dir:
        if glue is None:
            raise InputError("--task_dir needs the --task_name of a task of GLUE")
        tables = _read_directory(task_dir, name, _mnli_splits(name, wanted))
    elif files:
        sources = {split: readers.split_source(files, split) for split in wanted}
        tables = {s: _read(source, source.names[0], glue) for s, source in sources.items()}
    elif dataset_name or glue:
        if not dataset_name:
            dataset_name, dataset_config_name = GLUE_ON_HUB, name
            wanted = _mnli_splits(name, wanted)
        advice = "--task_dir, or --train_file and --validation_file"
        tables = readers.load_hub(dataset_name, dataset_config_name, cache_dir, wanted, advice)
    else:
        raise InputError(
            "no data: give --task_name for a task of GLUE, or --train_file and --validation_file"
        )
    examples = {split: _examples(table, split, glue) for split, table in tables.items()}
    if name == "mnli":
        examples = {split: _without_undecided(one) for split, one in examples.items()}
    names = glue.labels if glue else examples["train"].label_names
    numbered = names is not None
    if not numbered:
        names = _label_names(examples["train"])
    read = {
        split: SequenceSplit(one.texts, _label_numbers(one, split, names, numbered))
        for split, one in examples.items()
    }
    return SequenceTask(name, names, read)


# --- files ---


def _mnli_splits(name: str, splits: list[str]) -> list[str]:
    if name != "mnli":
        return splits
    halves = ("matched", "mismatched")
    return [
        whole
        for split in splits
        for whole in ([split] if split == "train" else [f"{split}_{half}" for half in halves])
    ]


def _read_directory(task_dir: str, name: str, splits: list[str]) -> dict[str, Table]:
    source = readers.open_source(task_dir, "--task_dir")
    tables = {}
    for split in splits:
        wanted = split.replace("validation", "dev") + ".tsv"
        found = [member for member in source.names if PurePosixPath(member).name == wanted]
        if not found:
            raise InputError(
                f"--task_dir {task_dir} has no split {split}: no {wanted} (or {wanted}.gz) among "
                f"its files; {source.described()}"
            )
        if len(found) > 1:
            raise InputError(
                f"--task_dir {task_dir} has several tasks ({', '.join(found[:3])}): give the "
                f"directory of {name}"
            )
        # The submission of a test set needs a prediction for every row.
        skip = not split.startswith("test")
        tables[split] = _read(source, found[0], GLUE[name], skip)
    return tables


def _read(source, name: str, glue: Glue | None, skip_malformed: bool = False) -> Table:
    is_cola = glue is GLUE["cola"] and readers.file_suffix(name) == ".tsv"
    return readers.read_table(source, name, _COLA_HEADER if is_cola else (), skip_malformed)


# --- examples ---


class _Examples(NamedTuple):
    """A split before its labels are numbers; ``label_names``: those of the hub, if it has any."""

    where: str
    places: list[str]
    texts: list[tuple[str, ...]]
    labels: list[str]
    label_names: tuple[str, ...] | None


def _examples(table: Table, split: str, glue: Glue | None) -> _Examples:
    texts, label = _select_columns(table, split, glue)
    rows = list(zip(*(table.columns[column] for column in texts), strict=True))
    for place, row in zip(table.places, rows, strict=True):
        if not all(isinstance(text, str) for text in row):
            raise InputError(f"{place}: a text is not a string (got {row!r}); fix the row")
        if any(map(has_lone_surrogate, row)):
            raise InputError(f"{place}: a text has a lone surrogate (invalid Unicode); fix the row")
    labels = table.columns[label] if label else [None] * len(rows)
    names = ["" if label is None else str(label).strip() for label in labels]
    return _Examples(table.where, list(table.places), rows, names, table.label_names.get(label))


def _select_columns(
    table: Table, split: str, glue: Glue | None
) -> tuple[tuple[str, ...], str | None]:
    """The columns of text, and that of labels (None: a test set without one)."""
    possible = _OWN_COLUMNS
    if glue:
        number = len(glue.columns)
        possible = (glue.file_columns, glue.columns, *(c for c in possible if len(c) == number))
    present = ", ".join(list(table.columns)[:12])
    texts = next((names for names in possible if {*names} <= {*table.columns}), None)
    if texts is None:
        wanted = " or ".join(dict.fromkeys(map(" + ".join, possible)))
        raise InputError(f"{table.where} has no columns {wanted}; it has {present}")
    for label in (glue.file_label if glue else "label", "label"):
        if label in table.columns:
            return texts, label
    if split.startswith("test"):
        return texts, None
    raise InputError(f"{table.where} has no column 'label'; it has {present}")


def _without_undecided(examples: _Examples) -> _Examples:
    """Without the pairs that MNLI's annotators did not agree on: their label is a dash."""
    agreed = [number for number, label in enumerate(examples.labels) if label != "-"]
    left_out = len(examples.labels) - len(agreed)
    if not agreed:
        raise InputError(f"{examples.where} has no pair with an agreed label: all are a dash")
    if left_out:
        print(
            f"note: {examples.where}: {left_out} pairs have no agreed label (-) and are left out",
            file=sys.stderr,
        )
    where, *lists, names = examples
    return _Examples(where, *([one[number] for number in agreed] for one in lists), names)


# --- labels ---


def _label_names(train: _Examples) -> tuple[str, ...]:
    """The sorted labels of your own task; none if they are the values of a regression.

    Integers are classes in any spelling (1, 1.0), named and sorted as integers.
    """
    labels = {label for label in train.labels if label.lower() not in _MISSING}
    integers = {_integer(label) for label in labels}
    if None not in integers:
        names = list(map(str, sorted(integers)))
    elif all(map(_is_number, labels)):
        return ()
    else:
        names = sorted(labels)
    if len(names) < 2:
        raise InputError(
            f"{train.where} has {len(names)} different label(s): training needs two or more"
        )
    return tuple(names)


def _integer(text: str) -> int | None:
    """The value of an integer in any spelling (1, 1.0, 1e0); None for anything else."""
    if not re.fullmatch(r"[+-]?(\d{1,18}(\.0*)?|\d{1,18}\.?\d{0,18}[eE][+-]?\d{1,2})", text):
        return None
    value = Decimal(text)
    return int(value) if value == int(value) else None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _label_numbers(
    examples: _Examples, split: str, names: tuple[str, ...], numbered: bool
) -> list[int] | list[float] | None:
    """The labels of a split as numbers; None for a test set that has none.

    ``numbered``: numbers in the source are those of ``names``, and -1 is a missing label.
    """
    number_of = {str(number): number for number in range(len(names))} if numbered else {}
    number_of |= {name: number for number, name in enumerate(names)}
    missing = {
        label
        for label in examples.labels
        if (label.lower() in _MISSING and label not in number_of)
        or (numbered and _integer(label) == -1)
    }
    if split.startswith("test") and missing.issuperset(examples.labels):
        return None
    numbers = []
    for place, label in zip(examples.places, examples.labels, strict=True):
        if label in missing:
            raise InputError(
                f"{place} has no label (got {label!r}, which means missing); only a test set may "
                "have none, in all rows"
            )
        if not names and not _is_number(label):
            raise InputError(f"{place} has the label {label[:40]!r}: a regression needs a number")
        number = number_of.get(label, number_of.get(str(_integer(label))))
        if names and number is None:
            raise readers.unknown_label(place, label, names)
        numbers.append(number if names else float(label))
    return numbers

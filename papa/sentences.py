"""Tasks of sequence classification: one or two sentences and a label, from files or the hub."""

import math
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

import rows
import tasks

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import has_lone_surrogate

GLUE_ON_HUB = "nyu-mll/glue"
_OWN_COLUMNS = (("sentence1", "sentence2"), ("sentence",), ("text",))
_COLA_COLUMNS = ["source", "label", "mark", "sentence"]


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
        labels: names, in the order of their numbers; none for a regression.
        splits: name -> examples, in the order asked for; MNLI's validation and test come in two,
            ``validation_matched`` and ``validation_mismatched``.
    """

    name: str | None
    labels: tuple[str, ...]
    splits: dict[str, SequenceSplit]


class _Raw(NamedTuple):
    """A split of sequence classification before its labels are numbers.

    ``label_names`` where the source says them; ``places[i]`` names row i in errors.
    """

    where: str
    places: list[str]
    texts: list[tuple[str, ...]]
    labels: list
    label_names: tuple[str, ...] | None = None


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
    """A task of GLUE, or one's own.

    Args:
        task_name: of GLUE, in whatever case; None for another task. Without any of the next three
            it is read from the hub.
        files: "train", "validation", "test" -> path of a csv, tsv or json file (also .gz).
        task_dir: a folder (or archive) with the tsv files of the GLUE distribution.
        dataset_name, dataset_config_name: another data set of the hub.
        cache_dir: of the hub's library.
        splits: those to read; the labels of one's own task come from "train", which is then read
            too.

    Columns are those of the task, or ``sentence1`` and ``sentence2``, ``sentence`` or ``text``; and
    ``label``. A task of one's own is a regression when its labels are numbers that are not all
    whole; else its labels are sorted. Labels are names or numbers; -1 or nothing is no label, which
    only "test" may lack.

    Raises InputError for an unknown task, a missing split or column, and a label that is none.
    """
    name = tasks.glue_name(task_name) if task_name else None
    glue = tasks.GLUE[name] if name else None
    files = {split: path for split, path in (files or {}).items() if path}
    wanted = list(splits) if glue else list(dict.fromkeys(("train", *splits)))
    if files and task_dir:
        raise InputError("give either --task_dir, or --train_file and --validation_file; not both")
    if task_dir:
        if glue is None:
            raise InputError("--task_dir needs the --task_name of a task of GLUE")
        raw = _from_folder(task_dir, name, _of_mnli(name, wanted))
    elif files:
        raw = {split: _from_file(files, split, glue) for split in wanted}
    elif dataset_name or glue:
        if not dataset_name:
            dataset_name, dataset_config_name = GLUE_ON_HUB, name
            wanted = _of_mnli(name, wanted)
        raw = _from_hub(dataset_name, dataset_config_name, cache_dir, wanted, glue)
    else:
        raise InputError(
            "no data: give --task_name for a task of GLUE, or --train_file and --validation_file"
        )
    if name == "mnli":
        raw = {split: _without_undecided(one) for split, one in raw.items()}
    given = glue.labels if glue else raw["train"].label_names
    labels = _label_names(raw["train"]) if given is None else given
    read = {
        split: SequenceSplit(one.texts, _numbers(one, split, labels, given is not None))
        for split, one in raw.items()
    }
    return SequenceTask(name, labels, read)


def _of_mnli(name: str, splits: list[str]) -> list[str]:
    if name != "mnli":
        return splits
    kinds = ("matched", "mismatched")
    return [
        whole
        for split in splits
        for whole in ([split] if split == "train" else [f"{split}_{kind}" for kind in kinds])
    ]


def _from_folder(task_dir: str, name: str, splits: list[str]) -> dict[str, _Raw]:
    source = rows.open_source(task_dir, "--task_dir")
    raw = {}
    for split in splits:
        wanted = split.replace("validation", "dev") + ".tsv"
        there = [member for member in source.names if PurePosixPath(member).name == wanted]
        if not there:
            raise InputError(
                f"--task_dir {task_dir} has no split {split}: no {wanted} (or {wanted}.gz) among "
                f"its files; {source.described()}"
            )
        if len(there) > 1:
            raise InputError(
                f"--task_dir {task_dir} holds several tasks ({', '.join(there[:3])}): name the "
                f"folder of {name}"
            )
        raw[split] = _from_source(source, there[0], split, tasks.GLUE[name], skip_short=True)
    return raw


def _from_file(files: dict[str, str], split: str, glue: tasks.Glue | None) -> _Raw:
    source = rows.split_source(files, split)
    return _from_source(source, source.names[0], split, glue)


def _from_source(
    source: Source, name: str, split: str, glue: tasks.Glue | None, skip_short: bool = False
) -> _Raw:
    def choose(columns: list[str], where: str) -> list[str]:
        return _sentence_columns(columns, where, split, glue)

    def default_columns(first: list[str]) -> list[str] | None:
        """CoLA's files have no header, but for those of the test split."""
        cola = glue is tasks.GLUE["cola"] and file_is_tsv and "sentence" not in first
        return _COLA_COLUMNS if cola and len(first) == len(_COLA_COLUMNS) else None

    file_is_tsv = rows.file_suffix(name) == ".tsv"
    read = rows.read_rows(source, name, choose, default_columns, skip_short)
    return _raw(source.place(name), read)


def _raw(where: str, read: rows.Rows, label_names: list[str] | None = None) -> _Raw:
    """A split from its rows, whose last column is the label."""
    texts = [tuple(row[:-1]) for row in read.values]
    for place, row in zip(read.places, texts, strict=True):
        if not all(isinstance(text, str) for text in row):
            raise InputError(f"{place}: a text is {row!r}: not a string")
        if any(map(has_lone_surrogate, row)):
            raise InputError(f"{place}: a text holds half of a surrogate pair: it is no text")
    names = tuple(label_names) if label_names else None
    return _Raw(where, read.places, texts, [row[-1] for row in read.values], names)


def _sentence_columns(
    columns: list[str], where: str, split: str, glue: tasks.Glue | None
) -> list[str | None]:
    """The columns of text, then that of labels (None where there is none, as test may do)."""
    possible = _OWN_COLUMNS
    if glue:
        sentences = len(glue.columns)
        possible = (glue.file_columns, glue.columns, *(c for c in possible if len(c) == sentences))
    for texts in possible:
        if set(texts) <= set(columns):
            break
    else:
        raise InputError(
            f"{where} has no columns {' or '.join(dict.fromkeys(map(' + '.join, possible)))}; it "
            f"has {', '.join(columns[:12])}"
        )
    for label in ([glue.file_label] if glue else []) + ["label"]:
        if label in columns:
            return [*texts, label]
    if split.startswith("test"):
        return [*texts, None]
    raise InputError(f"{where} has no column 'label'; it has {', '.join(columns[:12])}")


def _from_hub(
    name: str,
    config: str | None,
    cache_dir: str | None,
    splits: list[str],
    glue: tasks.Glue | None,
) -> dict[str, _Raw]:
    files = "--task_dir, or --train_file and --validation_file"
    raw = {}
    for split, table in rows.load_hub(name, config, cache_dir, splits, files).items():
        where = f"{name} {split}"
        columns = _sentence_columns(table.column_names, where, split, glue)
        names = getattr(table.features.get(columns[-1]), "names", None)
        raw[split] = _raw(where, rows.hub_rows(table, where, columns), names)
    return raw


def _without_undecided(raw: _Raw) -> _Raw:
    """Without the pairs that MNLI's annotators did not agree on: their label is a dash."""
    kept = [number for number, label in enumerate(raw.labels) if label != "-"]
    if not kept:
        raise InputError(f"{raw.where} has no pair with an agreed label: all are a dash")
    if len(kept) < len(raw.labels):
        print(
            f"note: {raw.where}: {len(raw.labels) - len(kept)} pairs have no agreed label (-) and "
            "are left out",
            file=sys.stderr,
        )
    lists = ([values[number] for number in kept] for values in (raw.places, raw.texts, raw.labels))
    return _Raw(raw.where, *lists, raw.label_names)


def _label_names(train: _Raw) -> tuple[str, ...]:
    """The labels of one's own task, sorted; none when they are the values of a regression."""
    there = {_as_name(label) for label in train.labels} - {""}
    if all(re.fullmatch(r"[+-]?\d{1,18}", label) for label in there):
        names = sorted(there, key=int)
    elif all(_is_number(label) for label in there):
        return ()
    else:
        names = sorted(there)
    if len(names) < 2:
        raise InputError(
            f"{train.where} has {len(names)} different label(s): training needs two or more"
        )
    return tuple(names)


def _as_name(label: object) -> str:
    return "" if label is None else str(label).strip()


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _numbers(
    raw: _Raw, split: str, names: tuple[str, ...], numbered: bool
) -> list[int] | list[float] | None:
    """The labels of a split as numbers; None for a test set that has none.

    ``numbered``: the source's numbers are those of ``names``, and -1 is no label.
    """
    labels = [_as_name(label) for label in raw.labels]
    unknown = {"", "-1", "-1.0"} if numbered else {""}
    if split.startswith("test") and unknown.issuperset(labels):
        return None
    number_of = {str(number): number for number in range(len(names))} if numbered else {}
    number_of |= {name: number for number, name in enumerate(names)}
    numbers = []
    for place, label in zip(raw.places, labels, strict=True):
        if label in unknown:
            raise InputError(f"{place} has no label; only a test set may lack them, and then all")
        if names and label not in number_of:
            raise rows.unknown_label(place, label, names)
        if not names and not _is_number(label):
            raise InputError(f"{place} has the label {label[:40]!r}: a regression needs a number")
        numbers.append(number_of[label] if names else float(label))
    return numbers

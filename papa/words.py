"""Tasks of token classification: sentences of labelled words, from files or the hub."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import conll
import rows
import tasks

from attention_dynamics.cli import InputError
from attention_dynamics.storage.text import has_lone_surrogate


class TokenSplit(NamedTuple):
    """Sentences of words, and the label (a name) of each word."""

    words: list[list[str]]
    labels: list[list[str]]


@dataclass(frozen=True)
class TokenTask:
    """A task of token classification: its name, the names of its labels in the order of their
    numbers, and its splits by name."""

    name: str
    labels: tuple[str, ...]
    splits: dict[str, TokenSplit]


def load_token_task(
    task_name: str = "ner",
    *,
    files: dict[str, str | None] | None = None,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    cache_dir: str | None = None,
    splits: Iterable[str] = ("train", "validation"),
) -> TokenTask:
    """A task of labelled words.

    Args:
        task_name: ner, pos or chunk, in whatever case.
        files: "train", "validation", "test" -> path of a CoNLL-U file (.conllu), a json file (rows
            with a list of words and one of labels), or else a CoNLL file; each also .gz.
        dataset_name, dataset_config_name: a data set of the hub, when there are no files.
        text_column_name: default "tokens" (json, hub), else the first column; "form" (CoNLL-U).
        label_column_name: default "{task_name}_tags", else the second column (json, hub); "upos"
            (CoNLL-U); as :data:`conll.COLUMNS` says (CoNLL). In CoNLL files columns are numbers.
        cache_dir: of the hub's library.
        splits: those to read; labels come from "train", which is always read too.

    The labels are those of the hub in their order, or those of "train" sorted. Raises InputError
    for a missing split or column, a malformed line, and a label that "train" has not: no model
    trained on it could be right there.
    """
    task_name = tasks.token_task_name(task_name)
    files = {split: path for split, path in (files or {}).items() if path}
    chosen = (text_column_name, label_column_name)
    wanted = list(dict.fromkeys(("train", *splits)))
    names = None
    if files:
        read = {split: _token_file(files, split, task_name, *chosen) for split in wanted}
    elif dataset_name:
        read, names = _tokens_from_hub(
            dataset_name, dataset_config_name, cache_dir, wanted, task_name, *chosen
        )
    else:
        raise InputError("no data: give --dataset_name, or --train_file and --validation_file")
    names = names or tuple(sorted({label for row in read["train"].labels for label in row}))
    if len(names) < 2:
        raise InputError(
            f"{read['train'].places[0]} and all others have {len(names)} different label(s): "
            "training needs two or more"
        )
    for sentences in read.values():
        for place, labels in zip(sentences.places, sentences.labels, strict=True):
            if unknown := {*labels} - {*names}:
                raise rows.unknown_label(f"the sentence at {place}", min(unknown), names)
    return TokenTask(
        task_name,
        names,
        {split: TokenSplit(one.words, one.labels) for split, one in read.items()},
    )


def _token_file(
    files: dict[str, str], split: str, task_name: str, text: str | None, label: str | None
) -> conll.Sentences:
    source = rows.split_source(files, split)
    name = source.names[0]
    where, suffix = source.place(name), rows.file_suffix(name)
    if suffix in rows.JSON:
        read = rows.read_rows(source, name, _token_columns(task_name, text, label))
        return _sentences(where, read)
    if suffix == ".csv":
        raise InputError(f"{where}: sentences of words are read from CoNLL, CoNLL-U or json files")
    if suffix == ".conllu" and task_name != "pos" and not label:
        raise InputError(
            f"{where}: of the columns of CoNLL-U only parts of speech are read by themselves: give "
            "--task_name pos, or --label_column_name"
        )
    sentences = None
    for _, stream in source.open_all([name]):
        if suffix == ".conllu":
            sentences = conll.read_conllu(stream, where, text, label)
        else:
            sentences = conll.read_conll(stream, where, task_name, text, label)
    if not sentences.words:
        raise InputError(f"{where} has no sentences")
    return sentences


def _token_columns(task_name: str, text: str | None, label: str | None) -> rows.Choose:
    def choose(columns: list[str], where: str) -> list[str]:
        if len(columns) < 2:
            raise InputError(f"{where} has no columns but {', '.join(columns)}: two are needed")
        tags = f"{task_name}_tags"
        chosen = [
            text or ("tokens" if "tokens" in columns else columns[0]),
            label or (tags if tags in columns else columns[1]),
        ]
        for column, option in zip(chosen, ("text", "label"), strict=True):
            if column not in columns:
                raise InputError(
                    f"{where} has no column {column!r}; it has {', '.join(columns[:12])}: choose "
                    f"with --{option}_column_name"
                )
        return chosen

    return choose


def _sentences(where: str, read: rows.Rows, names=None) -> conll.Sentences:
    """Sentences from rows of (words, labels); ``names``: of labels that are numbers."""
    sentences = conll.Sentences([], [], [])
    for place, (words, labels) in zip(read.places, read.values, strict=True):
        lists = isinstance(words, list) and isinstance(labels, list)
        if not lists or len(words) != len(labels) or not all(isinstance(w, str) for w in words):
            raise InputError(
                f"{place}: not a list of words and one of as many labels; choose the columns with "
                "--text_column_name and --label_column_name"
            )
        if any(map(has_lone_surrogate, words)):
            raise InputError(f"{place}: a word holds half of a surrogate pair: it is no text")
        if words:
            sentences.places.append(place)
            sentences.words.append(words)
            sentences.labels.append([names[label] if names else str(label) for label in labels])
    if not sentences.words:
        raise InputError(f"{where} has no sentences")
    return sentences


def _tokens_from_hub(
    name: str,
    config: str | None,
    cache_dir: str | None,
    splits: list[str],
    task_name: str,
    text: str | None,
    label: str | None,
) -> tuple[dict[str, conll.Sentences], tuple[str, ...] | None]:
    """The splits, and the names of the labels where the hub has them."""
    files = "--train_file and --validation_file"
    read, names = {}, None
    for split, table in rows.load_hub(name, config, cache_dir, splits, files).items():
        where = f"{name} {split}"
        columns = _token_columns(task_name, text, label)(table.column_names, where)
        names = getattr(getattr(table.features[columns[1]], "feature", None), "names", None)
        read[split] = _sentences(where, rows.hub_rows(table, where, columns), names)
    return read, tuple(names) if names else None

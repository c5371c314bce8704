"""Tasks of token classification (entities, parts of speech, chunks), from files or the hub."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import readers
from readers import Sentences, Table

from attention_dynamics.cli import InputError
from attention_dynamics.storage.text import has_lone_surrogate

TOKEN_TASKS = ("ner", "pos", "chunk")
OUTSIDE = "O"
_TAG = re.compile(r"([BIESLUMW])(?:-(.+))?")  # BIO, BIOES, BILOU, BMEWO and the like
_STARTS, _ENDS = "BSUW", "ESLUW"


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


def token_task_name(task_name: str) -> str:
    """ner, pos or chunk, given in any case; InputError for anything else."""
    name = task_name.lower()
    if name not in TOKEN_TASKS:
        raise InputError(
            f"--task_name {task_name} is not a task of labelled tokens; give one of "
            f"{', '.join(TOKEN_TASKS)}"
        )
    return name


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
    """Load a task of labelled words.

    Args:
        task_name: ner, pos or chunk, in any case.
        files: "train", "validation", "test" -> path of a CoNLL-U file (.conllu), a json file (rows
            with a list of words and one of labels), or else a CoNLL file; each also .gz.
        dataset_name, dataset_config_name: a dataset of the hub, if there are no files.
        text_column_name: default "tokens" (json, hub), else the first column; "form" (CoNLL-U).
        label_column_name: default "{task_name}_tags", else the second column (json, hub); "upos"
            (CoNLL-U); see :data:`readers.CONLL_COLUMNS` (CoNLL: columns are numbers).
        cache_dir: cache directory of the hub's library.
        splits: the splits to read; labels come from "train", which is always read too.

    The labels are those of the hub in their order, or those of "train" sorted. Labels of ner and
    chunk in other schemes than BIO are converted to it (see :func:`to_bio`).

    Raises InputError for a missing split or column, a malformed line, labels that mark no entities,
    and a label that "train" lacks: no model trained on it could predict that.
    """
    task_name = token_task_name(task_name)
    files = {split: path for split, path in (files or {}).items() if path}
    chosen = (task_name, text_column_name, label_column_name)
    wanted = list(dict.fromkeys(("train", *splits)))
    names = None
    if files:
        read = {split: _read_file(files, split, *chosen) for split in wanted}
    elif dataset_name:
        advice = "--train_file and --validation_file"
        tables = readers.load_hub(dataset_name, dataset_config_name, cache_dir, wanted, advice)
        read = {split: _sentences(table, *chosen) for split, table in tables.items()}
        names = tables["train"].label_names.get(_columns(tables["train"], *chosen)[1])
    else:
        raise InputError("no data: give --dataset_name, or --train_file and --validation_file")
    train = read["train"]
    names = names or tuple(sorted({label for row in train.labels for label in row}))
    if len(names) < 2:
        raise InputError(
            f"{train.places[0]} and all others have {len(names)} different label(s): training "
            "needs two or more"
        )
    if task_name != "pos":
        names = _convert(read, names)
    for sentences in read.values():
        for place, labels in zip(sentences.places, sentences.labels, strict=True):
            if unknown := {*labels} - {*names}:
                raise readers.unknown_label(f"the sentence at {place}", min(unknown), names)
    splits_read = {split: TokenSplit(one.words, one.labels) for split, one in read.items()}
    return TokenTask(task_name, names, splits_read)


# --- files ---


def _read_file(
    files: dict[str, str], split: str, task_name: str, text: str | None, label: str | None
) -> Sentences:
    source = readers.split_source(files, split)
    name = source.names[0]
    where, suffix = source.place(name), readers.file_suffix(name)
    if suffix in readers.JSON:
        return _sentences(readers.read_table(source, name), task_name, text, label)
    if suffix == ".csv":
        raise InputError(f"{where}: sentences of words are read from CoNLL, CoNLL-U or json files")
    if suffix == ".conllu" and task_name != "pos" and not label:
        raise InputError(
            f"{where}: the default label column of CoNLL-U holds parts of speech; give --task_name "
            "pos, or --label_column_name"
        )
    for _, stream in source.open_all([name]):
        if suffix == ".conllu":
            sentences = readers.read_conllu(stream, where, text, label)
        else:
            sentences = readers.read_conll(stream, where, task_name, text, label)
    if not sentences.words:
        raise InputError(f"{where} has no sentences")
    return sentences


def _columns(table: Table, task_name: str, text: str | None, label: str | None) -> tuple[str, str]:
    present = list(table.columns)
    if len(present) < 2:
        raise InputError(f"{table.where} has only the column {present[0]} (expected two or more)")
    tags = f"{task_name}_tags"
    text = text or ("tokens" if "tokens" in present else present[0])
    label = label or (tags if tags in present else present[1])
    for column, option in ((text, "text"), (label, "label")):
        if column not in present:
            raise InputError(
                f"{table.where} has no column {column!r}; it has {', '.join(present[:12])}: choose "
                f"with --{option}_column_name"
            )
    return text, label


def _sentences(table: Table, task_name: str, text: str | None, label: str | None) -> Sentences:
    """Sentences from a column of lists of words and one of lists of labels."""
    text, label = _columns(table, task_name, text, label)
    names = table.label_names.get(label)
    sentences = Sentences([], [], [])
    rows = zip(table.places, table.columns[text], table.columns[label], strict=True)
    for place, words, labels in rows:
        lists = isinstance(words, list) and isinstance(labels, list)
        if not lists or len(words) != len(labels) or not all(isinstance(w, str) for w in words):
            raise InputError(
                f"{place}: not a list of words and one of as many labels; choose the columns with "
                "--text_column_name and --label_column_name"
            )
        if any(map(has_lone_surrogate, words)):
            raise InputError(f"{place}: a word has a lone surrogate (invalid Unicode); fix the row")
        sentences.add(place, words, [names[one] if names else str(one) for one in labels])
    if not sentences.words:
        raise InputError(f"{table.where} has no sentences")
    return sentences


# --- schemes of entity tags ---


def _convert(read: dict[str, Sentences], names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the labels in the BIO scheme; converts the labels of ``read`` in place.

    Raises InputError for labels that mark no entities.
    """
    train = read["train"]
    tagged = [name for name in names if name != OUTSIDE]
    prefixed = [name for name in tagged if _TAG.fullmatch(name)]
    if prefixed and len(prefixed) < len(tagged):
        odd = min({*tagged} - {*prefixed})
        raise InputError(
            f"{train.places[0]}: the labels mix {prefixed[0]!r} and {odd!r} (expected O, and tags "
            "such as B-PER and I-PER); fix the labels, or choose the column with "
            "--label_column_name"
        )
    misspelled = all(re.match("[BIESLUMWbieslumw][-_:/|.]|.*[-_][BIES]$", tag) for tag in tagged)
    if not prefixed and (OUTSIDE not in names or misspelled):
        raise InputError(
            f"{train.places[0]}: {names[0]!r} does not mark an entity (expected O, and tags such "
            "as B-PER and I-PER, or types such as PER); fix the labels, or give --task_name pos if "
            "every word has one"
        )
    if _is_bio(names, train.labels):
        return names
    for sentences in read.values():
        sentences.labels[:] = map(to_bio, sentences.labels)
    types = {_split_tag(name)[1] for name in tagged}
    shown = "tags" if prefixed else "labels without B- and I- (neighbours of a type are one entity)"
    print(f"note: {shown} ({', '.join(tagged[:6])}) are converted to BIO", file=sys.stderr)
    return tuple(sorted({OUTSIDE} | {_bio(prefix, kind) for kind in types for prefix in "BI"}))


def to_bio(tags: list[str]) -> list[str]:
    """A sentence's tags in the BIO scheme (B- begins every entity, I- continues it).

    Converts IOB1 (B- only between neighbours of a type), IOE, BIOES, BILOU, BMEWO, and types
    without a prefix, of which each run is one entity. seqeval would read the type ``ORG`` as
    outside, and knows no L, U and M.
    """
    converted, previous, open_type = [], "", None
    for tag in tags:
        if tag == OUTSIDE:
            converted.append(tag)
            open_type = None
            continue
        prefix, kind = _split_tag(tag)
        begins = prefix in _STARTS or kind != open_type or previous in _ENDS
        converted.append(_bio("B" if begins else "I", kind))
        previous, open_type = prefix, kind
    return converted


def _split_tag(tag: str) -> tuple[str, str]:
    """(prefix, type); the prefix of a tag without one is I."""
    match = _TAG.fullmatch(tag)
    return (match[1], match[2] or "") if match else ("I", tag)


def _bio(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}" if kind else prefix


def _is_bio(names: tuple[str, ...], sentences: list[list[str]]) -> bool:
    """Whether tags are BIO already: B and I only, and some B not after its own type.

    In IOB1, the scheme of CoNLL-2003's own files, every B follows an entity of its type.
    """
    tags = [_split_tag(name) for name in names if name != OUTSIDE]
    if not all(_TAG.fullmatch(name) for name in names if name != OUTSIDE):
        return False
    if {prefix for prefix, _ in tags} - {"B", "I"}:
        return False
    if not any(prefix == "I" for prefix, _ in tags):
        return True
    return any(
        tag[0] == "B" and (before == OUTSIDE or _split_tag(before)[1] != _split_tag(tag)[1])
        for row in sentences
        for before, tag in zip([OUTSIDE, *row], row, strict=False)
    )

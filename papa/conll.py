"""Sentences of labelled words in CoNLL and CoNLL-U files."""

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from attention_dynamics.cli import InputError
from attention_dynamics.storage.text import text_lines

DOCUMENT = "-DOCSTART-"  # the line between the documents of CoNLL-2003
# Where the files of the shared tasks have the tags (2003: word, pos, chunk, ner; 2000: the first
# three). A file with fewer columns has its label in the last one.
COLUMNS = {"pos": 1, "chunk": 2}
CONLLU_FIELDS = (
    "id",
    "form",
    "lemma",
    "upos",
    "xpos",
    "feats",
    "head",
    "deprel",
    "deps",
    "misc",
)


class Sentences(NamedTuple):
    """``places[i]`` says where sentence i begins, for errors; words and labels run in parallel."""

    places: list[str]
    words: list[list[str]]
    labels: list[list[str]]


def read_conll(
    stream: BinaryIO,
    where: str,
    task_name: str,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Sentences:
    """The sentences of a CoNLL file: a word and its labels a line, a blank line after a sentence.

    Fields are separated by tabs where the line has one, else by spaces; a line of white space
    is blank.

    Args:
        stream: the file.
        where: its name, for errors.
        task_name: chooses the column of labels (``COLUMNS``; else the last one).
        text_column, label_column: numbers of columns, from 0, to choose others. The word is in the
            first one.

    Raises InputError for a line that lacks a column, and for one that has not as many as the first.
    """
    text = _number(text_column, "--text_column_name", where) if text_column else 0
    label = _number(label_column, "--label_column_name", where) if label_column else None
    sentences, width = Sentences([], [], []), None
    for start, lines in _blocks(stream, where):
        words, labels = [], []
        for number, line in lines:
            fields = re.split("\t" if "\t" in line else " +", line.strip(" "))
            if fields[0] == DOCUMENT:
                continue
            if width is None:
                width = len(fields)
                if label is None:
                    label = min(COLUMNS.get(task_name, width), width - 1)
                if width < 2 or max(text, label) >= width:
                    raise InputError(
                        f"{where} line {number} has {width} column(s): no word in column {text} "
                        f"with its label in column {label}; choose with --text_column_name and "
                        "--label_column_name (from 0)"
                    )
            if len(fields) != width:
                raise InputError(
                    f"{where} line {number} has {len(fields)} column(s), the first line has "
                    f"{width}: mend the line"
                )
            words.append(fields[text])
            labels.append(fields[label])
        _add(sentences, f"{where} line {start}", words, labels)
    return sentences


def read_conllu(
    stream: BinaryIO,
    where: str,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Sentences:
    """The sentences of a CoNLL-U file; ranges of words (1-2) and empty nodes (8.1) are left out.

    The columns are named as in ``CONLLU_FIELDS``: form and upos unless others are chosen. Raises
    InputError for a line that has not ten fields.
    """
    chosen = []
    for name in (text_column or "form", label_column or "upos"):
        if name.lower() not in CONLLU_FIELDS:
            raise InputError(
                f"{where} has no column {name!r}; CoNLL-U has {', '.join(CONLLU_FIELDS)}"
            )
        chosen.append(CONLLU_FIELDS.index(name.lower()))
    sentences = Sentences([], [], [])
    for start, lines in _blocks(stream, where):
        words, labels = [], []
        for number, line in lines:
            if line.startswith("#"):
                continue
            fields = line.split("\t")
            if len(fields) != len(CONLLU_FIELDS):
                raise InputError(
                    f"{where} line {number} has {len(fields)} field(s), CoNLL-U has "
                    f"{len(CONLLU_FIELDS)}, separated by tabs"
                )
            if fields[0].isdecimal():
                words.append(fields[chosen[0]])
                labels.append(fields[chosen[1]])
        _add(sentences, f"{where} line {start}", words, labels)
    return sentences


def _number(column: str, option: str, where: str) -> int:
    if not column.isdecimal():
        raise InputError(
            f"{option} {column}: the columns of {where} have no names; give a number, from 0"
        )
    return int(column)


def _blocks(stream: BinaryIO, where: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Runs of lines that are not blank: number of the first, (number, line) of each."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text_lines(stream, where), 1):
        if line.strip():
            block.append((number, line.rstrip("\r\n")))
        elif block:
            yield block[0][0], block
            block = []
    if block:
        yield block[0][0], block


def _add(sentences: Sentences, place: str, words: list[str], labels: list[str]) -> None:
    if words:
        sentences.places.append(place)
        sentences.words.append(words)
        sentences.labels.append(labels)

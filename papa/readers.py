"""Tables of csv, tsv and json files, sentences of CoNLL files, and splits of hub datasets.

Own code, since pandas loses data silently: it fills short rows with nothing, shifts the columns of
long ones, drops lone carriage returns, and cannot name the line of a bad value.
"""

import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple

from attention_dynamics.cli import InputError
from attention_dynamics.storage import hub
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.files import parse_json
from attention_dynamics.storage.text import delimited_rows, json_rows, text_lines

JSON = (".json", ".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", *JSON)

DOCUMENT = "-DOCSTART-"  # the line between the documents of CoNLL-2003
# The columns of labels in the files of the shared tasks (2003: word, pos, chunk, ner; 2000: the
# first three). A file with fewer columns has its label in the last one.
CONLL_COLUMNS = {"pos": 1, "chunk": 2}
CONLLU_COLUMNS = (
    "id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"
)  # fmt: skip


class Table(NamedTuple):
    """The rows of a file or of a split of the hub.

    Attributes:
        where: the file or split, for errors.
        places: where each row is, for errors.
        columns: name -> values: strings in csv and tsv files; any type in json (None: missing).
        label_names: name -> the class names of a column of numbers, where the hub gives them.
    """

    where: str
    places: Sequence[str]
    columns: dict[str, Sequence]
    label_names: dict[str, tuple[str, ...]]


class Sentences(NamedTuple):
    """Labelled words: ``places[i]`` is where sentence i begins, for errors."""

    places: list[str]
    words: list[list[str]]
    labels: list[list[str]]

    def add(self, place: str, words: list[str], labels: list[str]) -> None:
        """Append a sentence, unless it has no words."""
        if words:
            self.places.append(place)
            self.words.append(words)
            self.labels.append(labels)


def open_source(path: str, option: str) -> Source:
    """The files at ``path``; InputError names the option if the path does not exist."""
    try:
        return Source(path)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def split_source(files: dict[str, str], split: str) -> Source:
    """The file of a split, from ``files`` (split -> path).

    Raises InputError for a split without a file, a missing path, and several files at one path.
    """
    if split not in files:
        given = ", ".join(f"--{name}_file" for name in files)
        raise InputError(f"the split {split} is needed: give --{split}_file beside {given}")
    source = open_source(files[split], f"--{split}_file")
    if len(source.names) > 1:
        raise InputError(f"--{split}_file must be one file, but {source.described()}")
    return source


def file_suffix(name: str) -> str:
    """The suffix of a file of a source, in lower case."""
    return PurePosixPath(name.lower()).suffix


def unknown_label(place: str, label: str, names: tuple[str, ...]) -> InputError:
    """The error of a label that is none of the task's."""
    more = ", ..." if len(names) > 20 else ""
    return InputError(
        f"{place} has the label {label[:40]!r} (expected one of {', '.join(names[:20])}{more}); "
        "fix the label, or remove the example"
    )


# --- tables ---


def read_table(
    source: Source, name: str, default_header: Sequence[str] = (), skip_malformed: bool = False
) -> Table:
    """The table in one file.

    In csv files quotes enclose a field; in tsv files they are text. A json file has one object per
    line, or is one array of objects; its columns are the keys of the first object.

    Args:
        source: the source of the file.
        name: the file's name in the source.
        default_header: the columns of a tsv file whose first row has as many fields and no name.
        skip_malformed: leave out the rows of a tsv file that have more or fewer fields than the
            first, and print how many; else they are an error.

    Raises InputError for a malformed line, and for a file without rows.
    """
    where, suffix = source.place(name), file_suffix(name)
    if suffix not in SUFFIXES:
        raise InputError(f"{where} must end in {', '.join(SUFFIXES)}, each also with .gz")
    for _, stream in source.open_all([name]):
        if suffix in JSON:
            places, columns = _read_json(stream, where)
        else:
            places, columns = _read_fields(
                stream, where, suffix == ".csv", default_header, skip_malformed
            )
    if not places:
        raise InputError(f"{where} has no rows")
    return Table(where, places, columns, {})


def _read_fields(
    stream: BinaryIO, where: str, csv: bool, default_header: Sequence[str], skip_malformed: bool
) -> tuple[list[str], dict[str, Sequence]]:
    lines = text_lines(stream, where)
    if skip_malformed:
        fields = ((number, line.rstrip("\r\n").split("\t")) for number, line in enumerate(lines, 1))
        rows = [(number, row) for number, row in fields if row != [""]]
    else:
        rows = list(delimited_rows(lines, where, "," if csv else "\t", csv))
    if not rows:
        return [], {}
    header = rows[0][1]
    if len(header) == len(default_header) and not {*header} & {*default_header}:
        header = default_header
    else:
        rows = rows[1:]
    malformed = [number for number, row in rows if len(row) != len(header)]
    if malformed:
        print(
            f"note: {where}: {len(malformed)} row(s) have more or fewer than {len(header)} fields "
            f"and are left out (the first one: line {malformed[0]})",
            file=sys.stderr,
        )
        rows = [(number, row) for number, row in rows if len(row) == len(header)]
    values = zip(*(row for _, row in rows), strict=True)
    columns: dict[str, Sequence] = {}
    for column, of_column in zip(header, values, strict=bool(rows)):
        columns.setdefault(column, of_column)
    return [f"{where} line {number}" for number, _ in rows], columns


def _read_json(stream: BinaryIO, where: str) -> tuple[list[str], dict[str, Sequence]]:
    lines = list(text_lines(stream, where))
    if lines and lines[0].lstrip().startswith("["):
        rows, unit = list(enumerate(parse_json("".join(lines), where), 1)), "element"
        for number, row in rows:
            if not isinstance(row, dict):
                raise InputError(f"{where}: element {number} is not a JSON object")
    else:
        rows, unit = list(json_rows(iter(lines), where)), "line"
    columns = {key: [row.get(key) for _, row in rows] for key in (rows[0][1] if rows else ())}
    return [f"{where} {unit} {number}" for number, _ in rows], columns


def load_hub(
    name: str, config: str | None, cache_dir: str | None, splits: list[str], files: str
) -> dict[str, Table]:
    """Splits of a dataset of the hub.

    Raises InputError for a missing dataset or split; ``files``: the options to use without the hub.
    """
    found = hub.load_cached_splits(
        name,
        *([config] if config else []),
        cache_dir=cache_dir,
        advice=f"check the name and the network, or give local files with {files}",
    )
    tables = {}
    for split in splits:
        if split not in found:
            raise InputError(f"{name} has no split {split} on the hub; it has {', '.join(found)}")
        rows, where = found[split], f"{name} {split}"
        features = {column: getattr(of, "feature", of) for column, of in rows.features.items()}
        tables[split] = Table(
            where,
            [f"{where} row {number}" for number in range(len(rows))],
            {column: rows[column] for column in rows.column_names},
            {c: tuple(of.names) for c, of in features.items() if getattr(of, "names", None)},
        )
    return tables


# --- sentences of labelled words ---


def read_conll(
    stream: BinaryIO,
    where: str,
    task_name: str,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Sentences:
    """The sentences of a CoNLL file: per line a word and its labels, blank lines between sentences.

    Fields are separated by tabs where the line has one, else by spaces. A line with only white
    space or byte-order marks is blank. Comments (see :func:`_is_comment`) are left out and counted.

    Args:
        stream: the file.
        where: its name, for errors.
        task_name: selects the column of labels (``CONLL_COLUMNS``; else the last one).
        text_column, label_column: numbers of other columns, from 0. The default word is the first.

    Raises InputError for a line with a missing column, or with more or fewer than the first line.
    """
    text = _column_number(text_column, "--text_column_name", where) if text_column else 0
    label = _column_number(label_column, "--label_column_name", where) if label_column else None
    blocks = [
        [(number, line, re.split("\t" if "\t" in line else " +", line)) for number, line in block]
        for block in _blocks(stream, where)
    ]
    lines = [
        (number, fields)
        for block in blocks
        for number, line, fields in block
        if not line.startswith("#") and fields[0] != DOCUMENT
    ]
    if not lines:
        return Sentences([], [], [])
    first, width = lines[0][0], len(lines[0][1])
    if label is None:
        label = min(CONLL_COLUMNS.get(task_name, width), width - 1)
    if width < 2 or max(text, label) >= width:
        raise InputError(
            f"{where} line {first} has {width} column(s): no word in column {text} with its label "
            f"in column {label}; choose with --text_column_name and --label_column_name (from 0)"
        )
    known = {fields[label] for _, fields in lines if len(fields) == width}
    sentences, comments = Sentences([], [], []), 0
    for block in blocks:
        words, labels = [], []
        for number, line, fields in block:
            if fields[0] == DOCUMENT:
                continue
            is_word = len(fields) == width and fields[label] in known
            if not words and not is_word and _is_comment(line):
                comments += 1
                continue
            if len(fields) != width:
                raise InputError(
                    f"{where} line {number} has {len(fields)} column(s) (expected {width}, as in "
                    f"line {first}); fix the line"
                )
            words.append(fields[text])
            labels.append(fields[label])
        sentences.add(f"{where} line {block[0][0]}", words, labels)
    if comments:
        print(f"note: {where}: {comments} comment line(s) (#) are left out", file=sys.stderr)
    return sentences


def _is_comment(line: str) -> bool:
    """Whether a line before a sentence may be a comment, such as "# id 7" of MultiCoNER.

    The word "#" is one only if its label is used nowhere else; hashtags (#big) never are.
    """
    return re.match(r"#(\s|$|begin document|end document)", line) is not None


def read_conllu(
    stream: BinaryIO,
    where: str,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Sentences:
    """The sentences of a CoNLL-U file, without ranges of words (1-2) and empty nodes (8.1).

    The default columns are form and upos, of ``CONLLU_COLUMNS``. Raises InputError for a line that
    does not have ten fields.
    """
    chosen = []
    for name in (text_column or "form", label_column or "upos"):
        if name.lower() not in CONLLU_COLUMNS:
            raise InputError(
                f"{where} has no column {name!r}; CoNLL-U has {', '.join(CONLLU_COLUMNS)}"
            )
        chosen.append(CONLLU_COLUMNS.index(name.lower()))
    sentences = Sentences([], [], [])
    for block in _blocks(stream, where):
        words = []
        for number, line in block:
            fields = line.split("\t")
            if line.startswith("#"):
                continue
            if len(fields) != len(CONLLU_COLUMNS):
                raise InputError(
                    f"{where} line {number} has {len(fields)} field(s) (expected "
                    f"{len(CONLLU_COLUMNS)}, separated by tabs); fix the line"
                )
            if fields[0].isdecimal():
                words.append([fields[column] for column in chosen])
        if words:
            sentences.add(f"{where} line {block[0][0]}", *map(list, zip(*words, strict=True)))
    return sentences


def _column_number(column: str, option: str, where: str) -> int:
    if not column.isdecimal():
        raise InputError(
            f"{option} {column}: the columns of {where} have no names; give a number, from 0"
        )
    return int(column)


def _blocks(stream: BinaryIO, where: str) -> Iterator[list[tuple[int, str]]]:
    """Runs of lines that are not blank, as (number, line).

    Byte-order marks, which concatenated files have in their middle, are removed from line starts.
    """
    block: list[tuple[int, str]] = []
    for number, line in enumerate(itertools.chain(text_lines(stream, where), [""]), 1):
        line = line.lstrip("\ufeff").strip(" \r\n")
        if line.strip():
            block.append((number, line))
        elif block:
            yield block
            block = []

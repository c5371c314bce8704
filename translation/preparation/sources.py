"""Sentence pairs from public distributions, from pairs of files, and from the hub.

A reader returns the pairs of each split; sides are stripped, and pairs with an empty side dropped
(and counted). Anything malformed is an InputError with file, line, and what was expected.
"""

import html
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
from data import check_counts, has_text

from attention_dynamics.cli import InputError
from attention_dynamics.preparation import ReadReport
from attention_dynamics.storage import hub
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import text_lines

Pair = tuple[str, str]


class Split(NamedTuple):
    """The (source, target) sentences of a split, and how many were dropped for an empty side."""

    pairs: list[Pair]
    dropped: int


# The complete distributions; iwslt14 as the fairseq preparation cleans it.
FULL = {"multi30k": {"train": 29000, "val": 1014}, "iwslt14": {"train": 160239, "val": 7283}}

# The files of a distribution have the languages of their dataset in their names.
LANGUAGES = {
    "multi30k": ("de", "en"),
    "iwslt14": ("de", "en"),
    "news_commentary_v14_en_nl": ("en", "nl"),
    "news_commentary_v14_en_pt": ("en", "pt"),
    "news_commentary_v14_it_pt": ("it", "pt"),
}

# Every 23rd training pair of IWSLT14 is validation if it has no validation files.
EVERY = 23


def has_validation(dataset: str) -> bool:
    """Whether :func:`read_source` returns the validation split of a known dataset."""
    return dataset in FULL


def read_source(dataset: str, source: Source, report: ReadReport) -> dict[str, Split]:
    """The splits of a known dataset, "train" and perhaps "val", from its public distribution.

    Raises InputError if the source does not look like it, naming the files expected and found.
    """
    if dataset == "multi30k":
        return _multi30k(source, report)
    if dataset == "iwslt14":
        return _iwslt14(source, report)
    return {"train": _news_commentary(dataset, source, report)}


def read_files(paths: list[str], option: str) -> Split:
    """The pairs of two aligned files: lines, or <seg> lines (.xml), or the lines of train.tags.*.

    Raises InputError for paths that contain several files, or files that are not aligned.
    """
    sources = [Source(path) for path in paths]
    sides = [_read_sides(source, [source.only_file(option)])[0] for source in sources]
    return _aligned(sides)


def split_by_seed(split: Split, val_size: int, seed: int) -> dict[str, Split]:
    """``val_size`` pairs, drawn by ``seed``, as "val" and the others as "train", both in order."""
    pairs = split.pairs
    if val_size >= len(pairs):
        raise InputError(
            f"--val_size {val_size:,} leaves no training pair: there are {len(pairs):,}; give a "
            "smaller number"
        )
    drawn = np.zeros(len(pairs), dtype=bool)
    drawn[np.random.default_rng(seed).permutation(len(pairs))[:val_size]] = True
    return _divided(split, drawn)


def _divided(split: Split, is_val) -> dict[str, Split]:
    """Split the pairs by the flags ``is_val``; all dropped ones count as training pairs."""
    val = [pair for pair, chosen in zip(split.pairs, is_val, strict=True) if chosen]
    train = [pair for pair, chosen in zip(split.pairs, is_val, strict=True) if not chosen]
    return {"train": Split(train, split.dropped), "val": Split(val, 0)}


# --- The sides of a split: a file each


class _Side(NamedTuple):
    """The sentences of one file; ``keys`` are (document, segment) names if the file has them."""

    place: str
    sentences: list[str]
    keys: list[tuple[str, str]] | None = None


def _read_sides(source: Source, names: list[str]) -> list[_Side]:
    """The files ``names``, each read in the format of its name."""
    sides = {}
    for name, stream in source.open_all(names):
        place, base = source.place(name), name.rpartition("/")[2].lower()
        if base.endswith(".xml"):
            sides[name] = _Side(place, *_segments(stream, place))
        elif base.startswith("train.tags."):
            lines = (line for line in text_lines(stream, place) if not _TAG_LINE.match(line))
            sides[name] = _Side(place, list(lines))
        else:
            sides[name] = _Side(place, list(text_lines(stream, place)))
    return [sides[name] for name in names]


_TAG_LINE = re.compile(
    r"\s*</?(url|keywords|speaker|talkid|title|description|reviewer|translator|doc|transcript)\b"
)
_DOC = re.compile(r'\s*<doc\b[^>]*\bdocid="([^"]*)"')
_SEG = re.compile(r'\s*<seg\b[^>]*\bid="([^"]*)"[^>]*>(.*)</seg>\s*$')


def _segments(stream: BinaryIO, place: str) -> tuple[list[str], list[tuple[str, str]]]:
    # Read by line, since some of these files are not well-formed XML.
    sentences, keys, doc = [], [], ""
    for number, line in enumerate(text_lines(stream, place), 1):
        if match := _DOC.match(line):
            doc = match[1]
        elif "<seg" in line:
            match = _SEG.match(line)
            if not match:
                raise InputError(
                    f'{place} line {number} is not <seg id="..."> text </seg>: {line[:60]!r}'
                )
            keys.append((doc, match[1]))
            sentences.append(html.unescape(match[2]))
    if not sentences:
        raise InputError(f'{place} holds no line <seg id="..."> text </seg>')
    return sentences, keys


def _aligned(sides: list[_Side]) -> Split:
    """The pairs of two files; InputError when they are not aligned."""
    src, trg = sides
    check_counts((src.place, trg.place), (len(src.sentences), len(trg.sentences)))
    if src.keys and trg.keys:
        for number, (one, other) in enumerate(zip(src.keys, trg.keys, strict=True), 1):
            if one != other:
                raise InputError(
                    f"{src.place} and {trg.place} are not aligned: segment {number} is {one[1]} of "
                    f"document {one[0]!r} here, {other[1]} of {other[0]!r} there"
                )
    return clean_pairs(zip(src.sentences, trg.sentences, strict=True))


def clean_pairs(pairs) -> Split:
    """The pairs without surrounding white space; those with a side without text are dropped."""
    # A carriage return would end a line for readers in text mode, as torchtext's.
    stripped = [tuple(side.replace("\r", " ").strip() for side in pair) for pair in pairs]
    full = [pair for pair in stripped if all(map(has_text, pair))]
    return Split(full, len(stripped) - len(full))


# --- Finding files


def _one_pair(names: list[str], source: Source, stems: str, languages: Pair) -> list[str] | None:
    """The files STEM.SRC and STEM.TRG, or None if one of them is absent."""
    pair = []
    for language in languages:
        pattern = re.compile(rf"(^|/)({stems})\.{language}$")
        matching = [name for name in names if pattern.search(name)]
        if len(matching) > 1:
            raise InputError(
                f"source {source.path} holds more than one such file ({', '.join(matching)}); give "
                "the directory of one of them"
            )
        pair += matching
    return pair if len(pair) == 2 else None


# --- multi30k: {train,val}.{de,en}


def _multi30k(source: Source, report: ReadReport) -> dict[str, Split]:
    report.expected = FULL["multi30k"]
    names, splits = source.names, {}
    for split, stems in (("train", "train"), ("val", "val|valid")):
        pair = _one_pair(names, source, stems, LANGUAGES["multi30k"])
        if pair is None:
            expected = "train.de, train.en, val.de and val.en (.gz or not) of task 1, raw"
            raise source.not_recognized("multi30k", expected)
        splits[split] = _aligned(_read_sides(source, pair))
    return splits


# --- iwslt14: tokenized {train,valid}.{de,en}, or train.tags.de-en.{de,en}


def _iwslt14(source: Source, report: ReadReport) -> dict[str, Split]:
    names = source.names
    # The directory of fairseq's script has the text after BPE; its tmp/ has the text before BPE.
    before_bpe = [name for name in names if re.search(r"(^|/)tmp/", name)]
    for some in filter(None, (before_bpe, names)):
        pairs = [_one_pair(some, source, stem, ("de", "en")) for stem in ("train", "valid|val")]
        if all(pairs):
            report.expected = FULL["iwslt14"]
            splits = [_aligned(_read_sides(source, pair)) for pair in pairs]
            joined = [_without_bpe(split) for split in splits]
            if joined != splits:
                report.notes.append("the text was split by BPE (@@); its parts are joined again")
            return dict(zip(("train", "val"), joined, strict=True))
    tagged = _one_pair(names, source, r"train\.tags\.de-en", ("de", "en"))
    if tagged:
        report.notes.append(
            f"every {EVERY}rd training pair is validation, as usual; the text is not tokenized, "
            "lower-cased or cleaned, and lines with tags (titles, descriptions) are left out: the "
            "fairseq preparation has 160,239 and 7,283 pairs"
        )
        split = _aligned(_read_sides(source, tagged))
        return _divided(split, [number % EVERY == 0 for number in range(1, len(split.pairs) + 1)])
    raise InputError(
        f"source {source.path} lacks the training text of iwslt14: expected train.{{de,en}} beside "
        "valid.{de,en} (tokenized: fairseq's tmp/), or train.tags.de-en.{de,en} (original); "
        f"{source.described()}. To use other files in its place, such as the tuning and "
        "test sets, give --train SRC TRG --val SRC TRG"
    )


def _without_bpe(split: Split) -> Split:
    joined = [tuple(re.sub(r"@@( |$)", "", side) for side in pair) for pair in split.pairs]
    return Split(joined, split.dropped)


# --- news-commentary: SRC<TAB>TRG, or two files of lines


def _news_commentary(dataset: str, source: Source, report: ReadReport) -> Split:
    src, trg = LANGUAGES[dataset]
    names = source.names
    if table := _one_table(names, source, rf"({src}-{trg}|{trg}-{src})\.tsv$"):
        turned = _is_turned(table, source, dataset, report)
        for name, stream in source.open_all([table]):  # open only until the next one is asked for
            return clean_pairs(_columns(stream, source.place(name), turned))
    pair = [[name for name in names if name.endswith(f".{side}")] for side in (src, trg)]
    if max(map(len, pair)) > 1:
        both = re.compile(rf"({src}-{trg}|{trg}-{src})\.({src}|{trg})$")
        pair = [[name for name in side if both.search(name)] for side in pair]
    if [len(side) for side in pair] != [1, 1]:
        expected = (
            f"news-commentary-v14.{src}-{trg}.tsv (two columns), or one file .{src} and one .{trg} "
            "of aligned lines (.gz or not)"
        )
        raise source.not_recognized(dataset, expected)
    return _aligned(_read_sides(source, [side[0] for side in pair]))


def _one_table(names: list[str], source: Source, pattern: str) -> str | None:
    """The file of two columns: the only file, the one named by ``pattern``, or the only .tsv."""
    if len(names) == 1:
        return names[0]
    tables = [name for name in names if name.lower().endswith(".tsv")]
    tables = [name for name in tables if re.search(pattern, name)] or tables
    if len(tables) > 1:
        raise InputError(
            f"source {source.path} holds more than one table ({', '.join(tables)}); give one file"
        )
    return tables[0] if tables else None


def _is_turned(table: str, source: Source, dataset: str, report: ReadReport) -> bool:
    """Whether the target side is in the first column, which the name of the file tells."""
    src, trg = LANGUAGES[dataset]
    columns = re.search(r"(?:^|[/.])([a-z]{2})-([a-z]{2})\.tsv$", table)
    if not columns:
        report.notes.append(
            f"the name of {table.rpartition('/')[2]} does not tell its columns: they are read as "
            f"{src}, {trg}"
        )
        return False
    if {*columns.groups()} != {src, trg}:
        raise InputError(
            f"{source.place(table)} is named {columns[1]}-{columns[2]}, but {dataset} has {src} "
            f"and {trg}"
        )
    return columns.groups() == (trg, src)


def _columns(stream: BinaryIO, place: str, turned: bool) -> Iterator[Pair]:
    """The two columns; a line without a tab lacks its second side (a blank one ends a document)."""
    tabs = 0
    for number, line in enumerate(text_lines(stream, place), 1):
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) > 2:
            raise InputError(
                f"{place} line {number} has {len(fields)} columns, but a line is "
                f"SENTENCE<TAB>SENTENCE: {line[:60]!r}"
            )
        tabs += len(fields) == 2
        first, second = (*fields, "")[:2]
        yield (second, first) if turned else (first, second)
    if not tabs:
        raise InputError(f"{place} holds no line SENTENCE<TAB>SENTENCE")


# --- The hub

# No repository of IWSLT14 or news-commentary v14 is known that `datasets` reads without running
# code of the repository; --repository names one.
REPOSITORIES = {"multi30k": "bentrevett/multi30k"}
_VALIDATION = ("validation", "valid", "val", "dev")


def read_hub(
    repository: str,
    configuration: str | None,
    revision: str,
    languages: Pair,
    val_size: int | None,
    report: ReadReport,
) -> dict[str, Split]:
    """The splits of a repository with a column per language, or a column "translation" of both.

    Raises InputError if the download fails or the repository has other splits or columns.
    """
    there = hub.load_splits(repository, revision, *([configuration] if configuration else []))
    val = next((name for name in _VALIDATION if name in there), None)
    if "train" not in there:
        raise InputError(f"{repository} has no split train; it has {', '.join(there)}")
    splits = {"train": _hub_split(repository, there, "train", languages)}
    if val and val_size:
        report.notes.append(f"--val_size is not used: {repository} has a split {val}")
    if val:
        splits["val"] = _hub_split(repository, there, val, languages)
    return splits


def _hub_split(repository: str, there, split: str, languages: Pair) -> Split:
    rows, where = there[split], f"{repository} {split}"
    nested = "translation" in rows.column_names
    if not nested:
        hub.check_columns(where, rows.column_names, {*languages})

    def pairs() -> Iterator[Pair]:
        for number, row in enumerate(rows):
            sides = row["translation"] if nested else row
            if nested and number == 0:
                hub.check_columns(f"{where} translation", [*sides], {*languages})
            yield tuple(sides[language] or "" for language in languages)

    return clean_pairs(pairs())

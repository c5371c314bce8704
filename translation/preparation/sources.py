"""Sentence pairs from public distributions, from pairs of files, and from the hub.

A reader returns the pairs of each split; sides are stripped, and pairs with an empty side dropped
(and counted).
"""

import html
import re
from typing import NamedTuple

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

# Every 23rd training pair of IWSLT14 is validation if it has no validation files.
EVERY = 23

_EXPECTED = {
    "multi30k": "train.de, train.en, val.de and val.en (.gz or not) of task 1, raw",
    "iwslt14": "train.{de,en} beside valid.{de,en} (tokenized: fairseq's tmp/), or "
    "train.tags.de-en.{de,en} (original), or your own files as --train SRC TRG --val SRC TRG",
}
_TAG_LINE = re.compile(
    r"\s*</?(url|keywords|speaker|talkid|title|description|reviewer|translator|doc|transcript)\b"
)
_SEG = re.compile(r"\s*<seg\b[^>]*>(.*)</seg>\s*$")


def read_source(
    dataset: str, languages: Pair, source: Source, report: ReadReport
) -> dict[str, Split]:
    """The splits of a known dataset, "train" and perhaps "val", from its public distribution.

    Raises InputError if the source does not look like it, naming the files expected and found.
    """
    src, trg = languages
    if dataset not in FULL:
        both = rf"({src}-{trg}|{trg}-{src})"
        if table := _find(source, rf"{both}\.tsv$"):
            return {"train": _read_table(source, table[0], f"{trg}-{src}.tsv")}
        pair = _find(source, rf"{both}\.{src}$", rf"{both}\.{trg}$")
        if pair := pair or _find(source, rf"\.{src}$", rf"\.{trg}$"):
            return {"train": _read_pair(source, pair)}
        expected = f"news-commentary-v14.{src}-{trg}.tsv, or aligned files .{src} and .{trg}"
        raise source.not_recognized(dataset, expected)
    # The directory of fairseq's script has the text after BPE; its tmp/ has the text before BPE.
    for folder in ("(^|/)tmp/", "(^|/)"):
        stems = [
            rf"{folder}{stem}\.{side}$" for stem in ("train", "val(id)?") for side in languages
        ]
        if names := _find(source, *stems):
            report.expected = FULL[dataset]
            is_bpe = dataset == "iwslt14"
            train, val = (_read_pair(source, pair, is_bpe) for pair in (names[:2], names[2:]))
            return {"train": train, "val": val}
    tagged = _find(source, r"train\.tags\.de-en\.de$", r"train\.tags\.de-en\.en$")
    if dataset == "multi30k" or not tagged:
        raise source.not_recognized(dataset, _EXPECTED[dataset])
    report.notes.append(
        f"every {EVERY}rd training pair is validation, as usual; the text is not tokenized, "
        "lower-cased or cleaned, and lines with tags (titles, descriptions) are left out: the "
        "fairseq preparation has 160,239 and 7,283 pairs"
    )
    split = _read_pair(source, tagged)
    return _divided(split, [number % EVERY == 0 for number in range(1, len(split.pairs) + 1)])


def read_files(paths: list[str], option: str) -> Split:
    """The pairs of two aligned files: lines, or <seg> lines (.xml), or the lines of train.tags.*.

    Raises InputError for paths that contain several files, or files that are not aligned.
    """
    sources = [Source(path) for path in paths]
    return _aligned([(source, source.only_file(option)) for source in sources])


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


def _find(source: Source, *patterns: str) -> list[str]:
    """The file that each pattern matches, empty unless all do; InputError if several match one."""
    found = []
    for pattern in patterns:
        matching = [name for name in source.names if re.search(pattern, name)]
        if len(matching) > 1:
            raise InputError(
                f"source {source.path} holds more than one such file ({', '.join(matching)}); give "
                "the directory of one of them"
            )
        found += matching
    return found if len(found) == len(patterns) else []


def _read_pair(source: Source, names: list[str], is_bpe: bool = False) -> Split:
    """The pairs of two files of a source; parts of words that BPE cut (@@) are joined."""
    pairs, dropped = _aligned([(source, name) for name in names])
    if is_bpe:
        pairs = [tuple(re.sub(r"@@( |$)", "", side) for side in pair) for pair in pairs]
    return Split(pairs, dropped)


def _aligned(sides: list[tuple[Source, str]]) -> Split:
    """The pairs of two files; InputError when they have different numbers of sentences."""
    sentences = [_sentences(source, name) for source, name in sides]
    check_counts([source.place(name) for source, name in sides], [*map(len, sentences)])
    return clean_pairs(zip(*sentences, strict=True))


def _sentences(source: Source, name: str) -> list[str]:
    """The sentences of one file, read in the format of its name."""
    for _, stream in source.open_all([name]):
        lines = text_lines(stream, source.place(name))
        if name.lower().endswith(".xml"):  # by line: some of these files are not well-formed XML
            return [html.unescape(match[1]) for match in map(_SEG.match, lines) if match]
        return [line for line in lines if "train.tags." not in name or not _TAG_LINE.match(line)]


def _read_table(source: Source, name: str, turned: str) -> Split:
    """The pairs SRC<TAB>TRG of a file; TRG<TAB>SRC if its name ends with ``turned``.

    A line without a tab lacks its second side (a blank one ends a document).
    """
    pairs = []
    for _, stream in source.open_all([name]):
        for number, line in enumerate(text_lines(stream, source.place(name)), 1):
            fields = line.split("\t")
            if len(fields) > 2:
                raise InputError(
                    f"{source.place(name)} line {number} has {len(fields)} columns, but a line is "
                    f"SENTENCE<TAB>SENTENCE: {line[:60]!r}"
                )
            first, second = (*fields, "")[:2]
            pairs.append((second, first) if name.endswith(turned) else (first, second))
    return clean_pairs(pairs)


def clean_pairs(pairs) -> Split:
    """The pairs without surrounding white space; those with a side without text are dropped."""
    # A carriage return would end a line for readers in text mode, as torchtext's.
    stripped = [tuple(side.replace("\r", " ").strip() for side in pair) for pair in pairs]
    full = [pair for pair in stripped if all(map(has_text, pair))]
    return Split(full, len(stripped) - len(full))


# No repository of IWSLT14 or news-commentary v14 is known that `datasets` reads without running
# code of the repository; --repository names one.
REPOSITORIES = {"multi30k": "bentrevett/multi30k"}
_VALIDATION = ("validation", "valid", "val", "dev")


def read_hub(
    repository: str, configuration: str | None, revision: str, languages: Pair
) -> dict[str, Split]:
    """The splits of a repository with a column per language, or a column "translation" of both.

    Raises InputError if the download fails or the repository has other splits or columns.
    """
    there = hub.load_splits(repository, *filter(None, [configuration]), revision=revision)
    if "train" not in there:
        raise InputError(f"{repository} has no split train; it has {', '.join(there)}")
    val = next((name for name in _VALIDATION if name in there), None)
    splits = {}
    for split, name in {"train": "train", "val": val}.items():
        if name is None:
            continue
        rows, columns = there[name], there[name].column_names
        if "translation" in columns:
            rows = [row["translation"] for row in rows]
            columns = [*rows[0]]
        hub.check_columns(f"{repository} {name}", columns, {*languages})
        splits[split] = clean_pairs(
            tuple(row[language] or "" for language in languages) for row in rows
        )
    return splits

"""Word vectors in text form (GloVe, fastText, word2vec): the words of a vocabulary, as a dict.

Own code because torchtext.vocab.Vectors keeps every vector of the file (GloVe 840B: 2.6 GB) in
memory and writes all of them to a second file, while the data need a few of them.
"""

import os
import re
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source

# Vector files are read line by line, and few lines are stored, so they may be larger than texts.
_MOST_BYTES = 64 << 30
# A word ends at the first of these; a non-breaking space may be part of one.
_SEPARATOR = re.compile(rb"[ \t]")


class Vectors(NamedTuple):
    """Word -> (dim,) float32 vector, and the warnings about them."""

    by_word: dict[str, np.ndarray]
    warnings: list[str]


def read_vectors(path: str | os.PathLike, wanted: set[str]) -> Vectors:
    """The vectors of the ``wanted`` words that the file has, in the file's order.

    The file is plain, .gz, or alone in an archive, and separates by spaces or tabs; a first line
    with count and dimension (fastText, word2vec) is skipped. Entries with a space in the word are
    left out: tokens hold none. There is a warning if fewer than a tenth of the words have a vector.

    Raises InputError naming file and line for what is not a vector, or is one of another dimension.
    """
    source = Source(path, _MOST_BYTES)
    name = source.only_file("--word_vectors")
    where = source.place(name)
    keys = {word.encode(): word for word in wanted}
    vectors: dict[str, np.ndarray] = {}
    other_case: set[bytes] = set()
    dim = None
    for _, stream in source.open_all([name]):
        for number, line in enumerate(tqdm(stream, "vectors", unit=" lines", disable=None), 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if dim is None:
                fields = line.split()
                if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                    continue
                dim = len(fields) - 1
                _values(fields[1:], where, number)
            key = _SEPARATOR.split(line, maxsplit=1)[0]
            if key not in keys:
                if key.lower() in keys:
                    other_case.add(key.lower())
                continue
            if keys[key] in vectors:
                continue
            fields = line.split()
            if len(fields) > dim + 1:
                continue
            if len(fields) <= dim:
                raise InputError(
                    f"{where} line {number} has {len(fields) - 1} numbers, the first vector has "
                    f"{dim}"
                )
            vectors[keys[key]] = _values(fields[1:], where, number)
    if dim is None:
        raise InputError(f"--word_vectors {path} holds no vector")
    return Vectors(vectors, _few_words(where, vectors, keys, other_case))


def _few_words(where: str, vectors: dict, keys: dict[bytes, str], other_case: set) -> list[str]:
    """A warning if fewer than a tenth of the wanted words have a vector."""
    if len(vectors) >= len(keys) / 10:
        return []
    capital = sum(keys[key] not in vectors for key in other_case)
    hint = f", or lower-case it: it has {capital:,} more words in capitals only" if capital else ""
    return [
        f"{where} has vectors for {len(vectors):,} of {len(keys):,} words; check its language and "
        f"encoding{hint}"
    ]


def _values(fields: list[bytes], where: str, number: int) -> np.ndarray:
    try:
        values = np.array(fields, dtype=np.float32)
    except ValueError:
        values = np.empty(0, dtype=np.float32)
    if len(values) < 2 or not np.isfinite(values).all():
        raise InputError(
            f"{where} line {number} is not a word and its numbers, separated by spaces or tabs, as "
            "in the text form of GloVe, fastText or word2vec (their binary forms are not read)"
        )
    return values

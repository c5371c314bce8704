"""Word vectors in text form (GloVe, fastText, word2vec): the words of a vocabulary, as a dict.

Own code because torchtext.vocab.Vectors keeps every vector of the file (GloVe 840B: 2.6 GB) in
memory and writes all of them to a second file, while the data need a few of them.
"""

import os
import re

import numpy as np
from tqdm import tqdm

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source

# Vector files are read line by line, and few lines are stored, so they may be larger than texts.
_MOST_BYTES = 64 << 30
# A word ends at the first of these; a non-breaking space may be part of one.
_SEPARATOR = re.compile(rb"[ \t]")


def read_vectors(path: str | os.PathLike, wanted: set[str]) -> dict[str, np.ndarray]:
    """Word -> (dim,) float32 vector of the ``wanted`` words that the file has, in its order.

    The file is plain, .gz, or alone in an archive, and separates by spaces or tabs; a first line
    with count and dimension (fastText, word2vec) is skipped. Entries with a space in the word are
    left out: tokens hold none.

    Raises InputError naming file and line for what is not a vector, or is one of another dimension.
    """
    source = Source(path, _MOST_BYTES)
    name = source.only_file("--word_vectors")
    where = source.place(name)
    keys = {word.encode(): word for word in wanted}
    vectors: dict[str, np.ndarray] = {}
    dim = None
    for _, stream in source.open_all([name]):
        for number, line in enumerate(tqdm(stream, "vectors", unit=" lines", disable=None), 1):
            line = line.removeprefix(b"\xef\xbb\xbf")
            if number == 1 and len(line.split()) == 2 and b"".join(line.split()).isdigit():
                continue
            if dim is None:
                dim = len(_vector(line, where, number))
            word = keys.get(_SEPARATOR.split(line, maxsplit=1)[0])
            if word is None or word in vectors or len(line.split()) > dim + 1:
                continue
            vectors[word] = _vector(line, where, number)
            if len(vectors[word]) != dim:
                raise InputError(
                    f"{where} line {number} has {len(vectors[word])} numbers, the first vector has "
                    f"{dim}"
                )
    if dim is None:
        raise InputError(f"--word_vectors {path} holds no vector")
    return vectors


def _vector(line: bytes, where: str, number: int) -> np.ndarray:
    try:
        values = np.array(line.split()[1:], dtype=np.float32)
    except ValueError:
        values = np.empty(0, dtype=np.float32)
    if len(values) < 2 or not np.isfinite(values).all():
        raise InputError(
            f"{where} line {number} is not a word and its numbers, separated by spaces or tabs, as "
            "in the text form of GloVe, fastText or word2vec (their binary forms are not read)"
        )
    return values

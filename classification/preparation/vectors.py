"""Word vectors in text form (GloVe, fastText, word2vec): the words of a vocabulary, as a dict."""

import os

import numpy as np
from tqdm import tqdm

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source

# Vector files are read line by line and only some lines are kept, so they may be larger than texts.
_MOST_BYTES = 64 << 30


def read_vectors(path: str | os.PathLike, wanted: set[str]) -> dict[str, np.ndarray]:
    """Word -> (dim,) float32 for those of ``wanted`` words that the file has, in the file's order.

    The file is plain, .gz, or alone in an archive; a first line with count and dimension (fastText,
    word2vec) is passed over. Entries with a space in the word are left out: tokens hold none.

    Raises InputError naming file and line for what is not a vector, or is one of another dimension.
    """
    source = Source(path, _MOST_BYTES)
    if len(source.names) > 1:
        raise InputError(
            f"--word_vectors {path} holds several files ({', '.join(source.names[:6])}); unpack it "
            "and give one of them"
        )
    keys = {word.encode(): word for word in wanted}
    vectors: dict[str, np.ndarray] = {}
    dim = None
    for name, stream in source.open_all(source.names):
        where = source.place(name)
        for number, line in enumerate(tqdm(stream, "vectors", unit=" lines", disable=None), 1):
            if dim is None:
                fields = line.split()
                if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                    continue
                dim = len(fields) - 1
                _values(fields[1:], where, number)
            key = line[: line.find(b" ")]
            if key not in keys or keys[key] in vectors:
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
    return vectors


def _values(fields: list[bytes], where: str, number: int) -> np.ndarray:
    try:
        values = np.array(fields, dtype=np.float32)
    except ValueError:
        values = np.empty(0, dtype=np.float32)
    if len(values) < 2 or not np.isfinite(values).all():
        raise InputError(
            f"{where} line {number} is not a word and its numbers, as in the text form of GloVe, "
            "fastText or word2vec (the binary forms are not read)"
        )
    return values

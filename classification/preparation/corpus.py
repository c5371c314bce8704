"""A tokenized corpus on its way to data/: word indices, counts, duplicates, the JSON files."""

import json
from array import array
from collections.abc import Iterable
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np

from attention_dynamics.analysis.ragged import offsets_of
from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import atomic_write, read_json

SPLITS = ("train", "test")


class Corpus:
    """Examples as flat arrays of word indices, so that millions of reviews fit in memory.

    Attributes:
        words: list of words by index; after ``sort_words`` by descending training count.
        tokens: split -> (tokens,) int32 word indices of all its examples in a row.
        lengths: split -> (examples,) tokens of each.
        labels: split -> (examples,) 0 or 1.
    """

    def __init__(self, examples: Iterable[tuple[str, list[str], int]]):
        """Collect (split, tokens, label) of every example, in order."""
        index: dict[str, int] = {}
        tokens = {split: array("i") for split in SPLITS}
        lengths = {split: array("i") for split in SPLITS}
        labels = {split: array("b") for split in SPLITS}
        for split, words, label in examples:
            tokens[split].extend([index.setdefault(word, len(index)) for word in words])
            lengths[split].append(len(words))
            labels[split].append(label)
        self.words = list(index)
        self.tokens = {s: np.frombuffer(tokens[s], dtype=np.int32) for s in SPLITS}
        self.lengths = {s: np.frombuffer(lengths[s], dtype=np.int32) for s in SPLITS}
        self.labels = {s: np.frombuffer(labels[s], dtype=np.int8) for s in SPLITS}

    def label_counts(self, split: str) -> tuple[int, int]:
        """How many examples have label 0, and how many 1."""
        zeros, ones = np.bincount(self.labels[split], minlength=2)
        return int(zeros), int(ones)

    def duplicates(self) -> tuple[int, np.ndarray]:
        """How many training examples repeat an earlier one's words, and which occur in test.

        Tokens without a letter or digit do not count (public copies differ in them), nor do
        examples that have no others.

        Returns:
            (the number inside train, (train examples,) bool: the same words are a test example).
        """
        keys = {split: self._keys(split) for split in SPLITS}
        test = {key for key in keys["test"] if key}
        shared = np.array([key in test for key in keys["train"]], dtype=bool)
        of_train = [key for key in keys["train"] if key]
        return len(of_train) - len(set(of_train)), shared

    def drop_train(self, dropped: np.ndarray) -> None:
        """Leave out the training examples where ``dropped`` (train examples,) is true."""
        self.tokens["train"] = self.tokens["train"][~np.repeat(dropped, self.lengths["train"])]
        self.lengths["train"] = self.lengths["train"][~dropped]
        self.labels["train"] = self.labels["train"][~dropped]

    def sort_words(self) -> np.ndarray:
        """Order ``words`` by descending training count; returns the (words,) training counts.

        Ties are in order of first occurrence, train before test; words without one are left out.
        """
        both = np.concatenate([self.tokens[split] for split in SPLITS])
        first = np.full(len(self.words), -1, dtype=np.int64)
        # Assigned in reverse, so that the first occurrence is assigned last.
        first[both[::-1]] = np.arange(len(both))[::-1]
        counts = np.bincount(self.tokens["train"], minlength=len(self.words))
        order = np.lexsort((first, -counts))
        order = order[first[order] >= 0]
        new_index = np.empty(len(self.words), dtype=np.int32)
        new_index[order] = np.arange(len(order), dtype=np.int32)
        self.words = [self.words[old] for old in order]
        self.tokens = {split: new_index[self.tokens[split]] for split in SPLITS}
        return counts[order]

    def write(self, path: Path, split: str) -> None:
        """Write one split as ``{"vocab": [...], "XY": [[[word index, ...], label], ...]}``."""
        with atomic_write(path) as stream:
            vocabulary = json.dumps(self.words, ensure_ascii=False)
            stream.write(f'{{"vocab": {vocabulary},\n"XY": [\n'.encode())
            offsets = offsets_of(self.lengths[split]).tolist()
            labels = self.labels[split].tolist()
            for example, label in enumerate(labels):
                words = self.tokens[split][offsets[example] : offsets[example + 1]].tolist()
                end = "\n" if example == len(labels) - 1 else ",\n"
                stream.write(f"[{json.dumps(words)}, {label}]{end}".encode())
            stream.write(b"]}\n")

    def _keys(self, split: str) -> list[bytes]:
        """A digest of each example's words, b"" without any: a set holds those of millions."""
        is_word = np.array([any(map(str.isalnum, word)) for word in self.words], dtype=bool)
        of_word = is_word[self.tokens[split]]
        tokens = self.tokens[split][of_word]
        ends = np.concatenate([[0], np.cumsum(of_word)])[offsets_of(self.lengths[split])].tolist()
        return [
            blake2b(tokens[start:stop].tobytes(), digest_size=16).digest() if start < stop else b""
            for start, stop in pairwise(ends)
        ]


def stored_vocabulary(path: Path) -> list[str]:
    """The words of a data file; files written here have them on a line of their own.

    Raises InputError if the file holds no vocabulary.
    """
    with open(path, "rb") as stream:
        first = stream.readline()
    if first.startswith(b'{"vocab": [') and first.endswith(b"],\n"):
        return json.loads(first[:-2] + b"}")["vocab"]
    content = read_json(path, "data file")
    if not isinstance(content, dict) or not isinstance(content.get("vocab"), list):
        raise InputError(f'data file {path} must be a JSON object with the key "vocab"')
    return content["vocab"]

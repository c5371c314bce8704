"""A tokenized corpus on its way to data/: word indices, counts, duplicates, the JSON files."""

import json
from array import array
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np

from attention_dynamics.analysis.ragged import offsets_of
from attention_dynamics.storage.files import atomic_write
from preparation.sources import SPLITS


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
        tokens, lengths, labels = ({split: array("i") for split in SPLITS} for _ in range(3))
        # A digest of each example's words, None without any: a set holds those of millions.
        self._keys: dict[str, list[bytes | None]] = {split: [] for split in SPLITS}
        for split, words, label in examples:
            tokens[split].extend([index.setdefault(word, len(index)) for word in words])
            lengths[split].append(len(words))
            labels[split].append(label)
            key = " ".join(word for word in words if any(map(str.isalnum, word))).encode()
            self._keys[split].append(blake2b(key, digest_size=16).digest() if key else None)
        self.words = list(index)
        self.tokens, self.lengths, self.labels = (
            {split: np.frombuffer(values[split], dtype=np.int32) for split in SPLITS}
            for values in (tokens, lengths, labels)
        )

    def label_counts(self, split: str) -> tuple[int, int]:
        """How many examples have label 0, and how many 1."""
        return tuple(np.bincount(self.labels[split], minlength=2).tolist())

    def duplicates(self) -> tuple[int, np.ndarray]:
        """How many training examples repeat an earlier one's words, and which occur in test.

        Tokens without a letter or digit do not count (public copies differ in them), nor do
        examples that have no others.

        Returns:
            (the number inside train, (train examples,) bool: the same words are a test example).
        """
        test = {*self._keys["test"]} - {None}
        shared = np.array([key in test for key in self._keys["train"]], dtype=bool)
        of_train = [key for key in self._keys["train"] if key]
        return len(of_train) - len({*of_train}), shared

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
        present, first = np.unique(both, return_index=True)
        counts = np.bincount(self.tokens["train"], minlength=len(self.words))
        order = present[np.lexsort((first, -counts[present]))]
        new_index = np.empty(len(self.words), dtype=np.int32)
        new_index[order] = np.arange(len(order), dtype=np.int32)
        self.words = [self.words[old] for old in order]
        self.tokens = {split: new_index[self.tokens[split]] for split in SPLITS}
        return counts[order]

    def write(self, path: Path, split: str) -> None:
        """Write one split as ``{"vocab": [...], "XY": [[[word index, ...], label], ...]}``."""
        offsets = offsets_of(self.lengths[split])
        with atomic_write(path) as stream:
            vocabulary = json.dumps(self.words, ensure_ascii=False)
            stream.write(f'{{"vocab": {vocabulary},\n"XY": ['.encode())
            for example, label in enumerate(self.labels[split]):
                words = self.tokens[split][offsets[example] : offsets[example + 1]].tolist()
                stream.write(f"{',' if example else ''}\n[{json.dumps(words)}, {label}]".encode())
            stream.write(b"\n]}\n")

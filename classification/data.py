"""Datasets of classification: reading, vocabulary, batches (docs/method.md, section 2)."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from attention_dynamics.analysis.ragged import Ragged, batches_by_length, offsets_of
from attention_dynamics.cli import InputError
from attention_dynamics.runs.configs import absent_data_error
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.files import read_json, sha256
from attention_dynamics.storage.pickles import load_pickle
from attention_dynamics.storage.text import has_lone_surrogate

# The tasks of the papers, as they are called in file names: split of the complete distribution
# ("all" if the split is drawn here) -> examples of label 0 and of label 1.
DATASETS: dict[str, dict[str, tuple[int, int]]] = {
    "IMDB": {"train": (12500, 12500), "test": (12500, 12500)},
    "Furd": {"train": (3310, 3610), "test": (912, 909)},
    "AG_News": {"train": (30000, 30000), "test": (1900, 1900)},
    "Newsgroups": {"train": (597, 600), "test": (397, 399)},
    "Yelp": {"train": (280000, 280000), "test": (19000, 19000)},
    "Amzn": {"train": (1800000, 1800000), "test": (200000, 200000)},
    "SMS": {"all": (4827, 747)},
}
_ALIASES = {"sns": "SMS", "sst": "Furd", "sst2": "Furd"}

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)

# A training word belongs to the vocabulary when it occurs more often than this, or has a vector.
_RARE = 2

# The most sentences and (padded) tokens in one batch of an evaluation: large matrix products that
# fit in the processor's caches.
_EVAL_SENTENCES = 128
_EVAL_TOKENS = 8192


@dataclass(frozen=True)
class Split:
    """Encoded examples: ``ids`` rows with <bos> and <eos>, ``labels`` (examples,) 0 or 1."""

    ids: Ragged
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, examples) -> "Split":
        """The examples with these indices, in this order."""
        return Split(self.ids.take(examples), self.labels[np.asarray(examples, dtype=np.int64)])

    def join(self, other: "Split") -> "Split":
        """These examples, then those of ``other``."""
        return Split(self.ids.join(other.ids), np.concatenate([self.labels, other.labels]))

    def batch(self, examples: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Flat token ids (tokens,), lengths (batch,), labels (batch,) float32 of some examples."""
        return (
            torch.from_numpy(self.ids.values[self.ids.places(examples)]),
            torch.from_numpy(self.ids.lengths[examples]),
            torch.from_numpy(self.labels[examples].astype(np.float32)),
        )


@dataclass(frozen=True)
class Dataset:
    """A dataset.

    Attributes:
        name: as in the file names.
        vocabulary: (vocab,) words by index, the four specials first.
        train, test: encoded.
        vectors: word -> vector, for words of this dataset.
        checksum: of the train file, the test file and the vectors of this dataset.
    """

    name: str
    vocabulary: list[str]
    train: Split
    test: Split
    vectors: dict[str, np.ndarray]
    checksum: str


def canonical_name(dataset: str) -> str:
    """The name used in file names: SNS (in the paper's README) is SMS, and SST or SST2 is Furd.

    Data that exist under the given name are used.

    Raises InputError for a name that is not a plain file name.
    """
    check_name(dataset)
    return dataset if data_paths(dataset)[0].exists() else _ALIASES.get(dataset.lower(), dataset)


def data_paths(dataset: str) -> tuple[Path, Path]:
    """The train and the test file of a dataset."""
    return Path("data") / f"{dataset}_train.json", Path("data") / f"{dataset}_test.json"


def load_dataset(dataset: str) -> Dataset:
    """Read, check and encode a dataset, once.

    The test words are indexed by the vocabulary of the *train* file, as published.

    Raises InputError for an absent dataset (naming those in data/), malformed JSON, a label that is
    not 0 or 1, a word index outside the vocabulary, or a split without examples.
    """
    train_path, test_path = data_paths(dataset)
    for path in (train_path, test_path):
        if not path.exists():
            raise _absent(dataset, path)
    words, train_docs, train_labels = _read(train_path)
    _, test_docs, test_labels = _read(test_path)
    for path, docs in ((train_path, train_docs), (test_path, test_docs)):
        _check_indices(path, docs, len(words))
    vectors = _load_vectors(words)
    vocabulary, index = _build_vocabulary(words, train_docs, vectors)
    return Dataset(
        name=dataset,
        vocabulary=vocabulary,
        train=Split(_encode(train_docs, index), train_labels),
        test=Split(_encode(test_docs, index), test_labels),
        vectors=vectors,
        checksum="+".join(
            digest[:16]
            for digest in (sha256(train_path), sha256(test_path), _vectors_checksum(vectors))
        ),
    )


def require_both_classes(dataset: Dataset) -> None:
    """Raise InputError if the training set has a single class."""
    if len(np.unique(dataset.train.labels)) < 2:
        raise InputError(
            f"{data_paths(dataset.name)[0]} holds a single class: a classifier needs both"
        )


def _absent(dataset: str, path: Path) -> InputError:
    there = (p.name.removesuffix("_train.json") for p in Path("data").glob("*_train.json"))
    return absent_data_error(dataset, path, there, DATASETS, "--train FILE --test FILE")


def _read(path: Path) -> tuple[list[str], Ragged, np.ndarray]:
    """Words, documents as rows of word indices, labels of one data file."""
    content = read_json(path, "data file")
    if not isinstance(content, dict) or not {"vocab", "XY"} <= content.keys():
        raise InputError(f'data file {path} must be a JSON object with the keys "vocab" and "XY"')
    words, pairs = content["vocab"], content["XY"]
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f'data file {path}: "vocab" must be a list of words')
    if surrogate := next((word for word in words if has_lone_surrogate(word)), None):
        raise InputError(
            f'data file {path}: "vocab" holds {surrogate!r}, a lone surrogate (invalid Unicode)'
        )
    if not isinstance(pairs, list) or not pairs:
        raise InputError(f'data file {path}: "XY" must be a list of examples, with one at least')
    labels = np.empty(len(pairs), dtype=np.int64)
    for number, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], list):
            raise InputError(
                f'data file {path}: "XY" entry {number} must be [[word index, ...], label]'
            )
        if isinstance(pair[1], bool) or pair[1] not in (0, 1):
            raise InputError(
                f'data file {path}: "XY" entry {number} has the label {pair[1]!r}; '
                "labels must be 0 or 1"
            )
        labels[number] = pair[1]
    docs = [pair[0] for pair in pairs]
    flat = [word for doc in docs for word in doc]
    if not all(type(word) is int for word in flat):
        raise InputError(f'data file {path}: "XY" holds a word index that is not an integer')
    try:
        values = np.array(flat, dtype=np.int64)
    except OverflowError:
        raise InputError(f'data file {path}: "XY" holds a word index too large to be one') from None
    return words, Ragged(values, offsets_of(map(len, docs))), labels


def _check_indices(path: Path, docs: Ragged, num_words: int) -> None:
    outside = np.flatnonzero((docs.values < 0) | (docs.values >= num_words))
    if len(outside):
        entry = int(np.searchsorted(docs.offsets, outside[0], side="right")) - 1
        raise InputError(
            f'data file {path}: "XY" entry {entry} has the word index {docs.values[outside[0]]}, '
            f"but the vocabulary of the train file has {num_words} words"
        )


def _load_vectors(words: list[str]) -> dict[str, np.ndarray]:
    """The vectors of these words; the file may have those of other datasets as well."""
    path = Path("data") / "w2v.pkl"
    if not path.exists():
        return {}
    vectors = load_pickle(path, "word vectors")
    if not isinstance(vectors, dict):
        raise InputError(f"word vectors {path} must be a dict word -> vector")
    known = {word: vectors[word] for word in words if word in vectors}
    for word, vector in known.items():
        if not isinstance(vector, np.ndarray) or vector.dtype.kind not in "fi" or vector.ndim != 1:
            raise InputError(
                f"word vectors {path}: the vector of {word!r} is not an array of numbers"
            )
        if not np.isfinite(vector).all():
            raise InputError(f"word vectors {path}: the vector of {word!r} is not finite")
    return known


def _vectors_checksum(vectors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for word, vector in vectors.items():
        digest.update(f"{word}\0".encode())
        digest.update(np.asarray(vector, dtype=np.float32).tobytes())
    return digest.hexdigest()


def _build_vocabulary(words: list[str], train: Ragged, vectors) -> tuple[list[str], np.ndarray]:
    """The vocabulary, and (words of the file,) int64: the vocabulary index of each."""
    # A word listed twice in the file is one word: both entries count for the first.
    first_entry: dict[str, int] = {}
    same = np.array([first_entry.setdefault(w, i) for i, w in enumerate(words)], dtype=np.int64)
    occurrences = same[train.values]
    counts = np.bincount(occurrences, minlength=len(words))
    seen, first_seen = np.unique(occurrences, return_index=True)
    order = seen[np.lexsort((first_seen, -counts[seen]))]
    known = [
        i for i in order
        if (counts[i] > _RARE or words[i] in vectors) and words[i] not in SPECIALS
    ]  # fmt: skip
    index = np.full(len(words), UNK, dtype=np.int64)
    index[known] = np.arange(len(SPECIALS), len(SPECIALS) + len(known))
    for special_id, special in enumerate(SPECIALS):  # a word with this spelling is not counted
        if special in first_entry:
            index[first_entry[special]] = special_id
    return [*SPECIALS, *(words[i] for i in known)], index[same]


def _encode(docs: Ragged, index: np.ndarray) -> Ragged:
    """Documents with vocabulary indices between <bos> and <eos>."""
    offsets = docs.offsets + 2 * np.arange(len(docs.offsets))
    values = np.empty(offsets[-1], dtype=np.int64)
    values[offsets[:-1]] = BOS
    values[offsets[1:] - 1] = EOS
    inner = np.ones(len(values), dtype=bool)
    inner[offsets[:-1]] = inner[offsets[1:] - 1] = False
    values[inner] = index[docs.values]
    return Ragged(values, offsets)


def eval_batches(split: Split) -> list[np.ndarray]:
    """The examples of a split in batches of similar length, at most ~8,000 padded tokens each."""
    return batches_by_length(split.ids.lengths, _EVAL_SENTENCES, _EVAL_TOKENS)

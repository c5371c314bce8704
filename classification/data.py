"""Datasets of classification: reading, vocabulary, batches (docs/method.md, section 2)."""

import hashlib
from collections import Counter
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

    Raises InputError for an absent dataset (naming those in data/), a malformed file, a split
    without examples, or a training set of a single class.
    """
    train_path, test_path = paths = data_paths(dataset)
    for path in paths:
        if not path.exists():
            there = (p.name.removesuffix("_train.json") for p in Path("data").glob("*_train.json"))
            own = "--train FILE --test FILE"
            raise absent_data_error(dataset, path, there, DATASETS, own)
    content = _read_object(train_path)
    words = content["vocab"]
    if not all(isinstance(word, str) and not has_lone_surrogate(word) for word in words):
        raise InputError(f'data file {train_path}: "vocab" must be a list of words (valid Unicode)')
    train_docs, train_labels = _read_examples(train_path, content["XY"], len(words))
    test_docs, test_labels = _read_examples(test_path, _read_object(test_path)["XY"], len(words))
    if len(np.unique(train_labels)) < 2:
        raise InputError(f"{train_path} holds a single class: a classifier needs both")
    vectors = _load_vectors(words)
    vocabulary, index = _build_vocabulary(words, train_docs, vectors)
    digests = sha256(train_path), sha256(test_path), _vectors_checksum(vectors)
    return Dataset(
        name=dataset,
        vocabulary=vocabulary,
        train=Split(_encode(train_docs, index), train_labels),
        test=Split(_encode(test_docs, index), test_labels),
        vectors=vectors,
        checksum="+".join(digest[:16] for digest in digests),
    )


def _read_object(path: Path) -> dict:
    content = read_json(path, "data file")
    keys = ("vocab", "XY")
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in keys):
        raise InputError(f'data file {path} must be a JSON object with lists "vocab" and "XY"')
    return content


def _read_examples(path: Path, pairs: list, num_words: int) -> tuple[Ragged, np.ndarray]:
    """Documents as rows of word indices, and labels."""
    if not pairs:
        raise InputError(f'data file {path}: "XY" must be a list of examples, with one at least')
    for number, pair in enumerate(pairs):
        try:
            doc, label = pair
            is_valid = {*map(type, doc)} <= {int} and min(doc, default=0) > -1
            is_valid = is_valid and max(doc, default=0) < num_words and label in (0, 1)
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise InputError(
                f'data file {path}: "XY" entry {number} must be [[word index, ...], label] with '
                f"indices below {num_words} and labels 0 or 1, not {str(pair)[:200]}"
            )
    words = np.array([word for doc, _ in pairs for word in doc], dtype=np.int64)
    labels = np.array([label for _, label in pairs], dtype=np.int64)
    return Ragged(words, offsets_of(len(doc) for doc, _ in pairs)), labels


def _load_vectors(words: list[str]) -> dict[str, np.ndarray]:
    """The vectors of these words; the file may have those of other datasets as well."""
    path = Path("data") / "w2v.pkl"
    vectors = load_pickle(path, "word vectors") if path.exists() else {}
    try:
        known = {word: vectors[word] for word in words if word in vectors}
        is_valid = all(v.ndim == 1 and np.isfinite(v).all() for v in known.values())
    except (AttributeError, TypeError):
        is_valid = False
    if not is_valid:
        raise InputError(f"word vectors {path} must be a dict word -> array of finite numbers")
    return known


def _vectors_checksum(vectors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for word, vector in vectors.items():
        digest.update(f"{word}\0".encode())
        digest.update(np.asarray(vector, dtype=np.float32).tobytes())
    return digest.hexdigest()


def _build_vocabulary(words: list[str], train: Ragged, vectors) -> tuple[list[str], np.ndarray]:
    """The vocabulary, and (words of the file,) int64: the vocabulary index of each."""
    counts = Counter(map(words.__getitem__, train.values.tolist()))
    known = [word for word, count in counts.most_common() if count > _RARE or word in vectors]
    # A word with the spelling of a special is not counted.
    vocabulary = [*SPECIALS, *(word for word in known if word not in SPECIALS)]
    index = {word: number for number, word in enumerate(vocabulary)}
    return vocabulary, np.array([index.get(word, UNK) for word in words], dtype=np.int64)


def _encode(docs: Ragged, index: np.ndarray) -> Ragged:
    """Documents with vocabulary indices between <bos> and <eos>."""
    edges = np.column_stack([docs.offsets[:-1], docs.offsets[1:]]).ravel()
    values = np.insert(index[docs.values], edges, np.tile([BOS, EOS], len(docs)))
    return Ragged(values, docs.offsets + 2 * np.arange(len(docs.offsets)))


def eval_batches(split: Split) -> list[np.ndarray]:
    """The examples of a split in batches of similar length, at most ~8,000 padded tokens each."""
    return batches_by_length(split.ids.lengths, _EVAL_SENTENCES, _EVAL_TOKENS)

"""Where the true word alignment is known: how often do α and β^uf point at the wrong word?

data/FOLDER/truth.json (of the toy languages; for other data it can be put there) holds, for each
sentence pair in the order of the data files, the numbers of words and the true links::

    {"words": {"val": [[source words, target words], ...]},
     "links": {"val": [[[source word, target word], ...], ...]}}     # places, from 0
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from data import BOS, EOS, LAYOUTS, PAD
from sentencepiece import SentencePieceProcessor

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.cli import InputError
from attention_dynamics.names import GOLD, UNIFORM
from attention_dynamics.storage.files import read_json


def truth_path(dataset: str) -> Path:
    """Path of the true word alignment of a dataset, which may not exist."""
    layout = LAYOUTS.get(dataset)
    return Path("data") / (layout.folder if layout else dataset) / "truth.json"


class Pair(NamedTuple):
    """A validation pair in the logs.

    Attributes:
        src, trg: of each source piece, and of each target after <s>, its word; -1 if it has none.
        links: (target words, source words) bool, the true links.
    """

    src: np.ndarray
    trg: np.ndarray
    links: np.ndarray


def true_cells(dataset: str, logs: Logs, pieces: SentencePieceProcessor) -> np.ndarray | None:
    """(scores,) bool: do the words of this target and source piece of a validation pair translate
    each other? None if the dataset has no truth.
    """
    if not truth_path(dataset).exists():
        return None
    parts = []
    for pair in read_truth(dataset, logs, pieces):
        in_words = (pair.trg >= 0)[:, None] & (pair.src >= 0)
        parts.append((pair.links[np.ix_(pair.trg, pair.src)] & in_words).ravel())
    cells = np.concatenate(parts)  # the validation pairs come first
    return np.pad(cells, (0, logs.num_scores - len(cells)))


def alignment_rows(dataset: str, logs: Logs, pieces: SentencePieceProcessor) -> list[dict]:
    """A row per checkpoint: the alignment error rate (AER) on the validation pairs.

    AER = 1 - 2 |A ∩ S| / (|A| + |S|), with S the true links (all of them sure) and A one link for
    each target word, to the source word of the highest score (the first of equals). The score
    between two words is, for α of the gold run, the sum over the pieces of the source word, for β
    of the uniform run the highest of them; then in both the mean over the pieces of the target
    word. "chance" is the exact expectation for source words drawn at random.

    Empty if the dataset has no truth; None where a run has no such checkpoint, or its scores are
    NaN. Raises InputError when the truth does not fit the logs.
    """
    if not truth_path(dataset).exists():
        return []
    pairs = read_truth(dataset, logs, pieces)
    size = sum(len(pair.links) + pair.links.sum() for pair in pairs)  # |A| + |S|
    chance = 1 - 2 * sum(pair.links.mean(axis=1).sum() for pair in pairs) / size
    ends = np.cumsum([len(pair.src) * len(pair.trg) for pair in pairs])

    def error_rate(name: str, t: int, kind: str, over_source: np.ufunc) -> float | None:
        values = logs.scores(name, t, kind, "val").values
        if np.isnan(values).any():
            return None
        found = 0
        for pair, scores in zip(pairs, np.split(values, ends[:-1]), strict=True):
            best = word_scores(pair, scores, over_source).argmax(axis=1)
            found += pair.links[np.arange(len(best)), best].sum()
        return float(1 - 2 * found / size)

    rows = []
    for t in logs.iterations(GOLD):
        row = {"iteration": t, "α of normal_A": error_rate(GOLD, t, "alpha", np.add)}
        has_beta = (UNIFORM, t, "beta") in logs.arrays
        row["β of uniform"] = error_rate(UNIFORM, t, "beta", np.maximum) if has_beta else None
        rows.append({**row, "chance": float(chance)})
    return rows


def word_scores(pair: Pair, scores: np.ndarray, over_source: np.ufunc) -> np.ndarray:
    """(target words, source words), of the scores between all pieces of a pair.

    ``over_source``, np.add or np.maximum, joins the pieces of a source word; those of a target word
    are averaged.
    """
    matrix = scores.astype(np.float64).reshape(len(pair.trg), len(pair.src))
    matrix = matrix[pair.trg >= 0][:, pair.src >= 0]
    trg, src = pair.trg[pair.trg >= 0], pair.src[pair.src >= 0]
    joined = over_source.reduceat(matrix, np.unique(src, return_index=True)[1], axis=1)
    total = np.add.reduceat(joined, np.unique(trg, return_index=True)[1], axis=0)
    return total / np.bincount(trg)[:, None]


def words_of(ids: np.ndarray, pieces: SentencePieceProcessor) -> np.ndarray:
    """The word of each piece of a sentence, counted from 0; -1 for <pad>, <s> and </s>.

    A word starts at a piece that begins with "▁", and at the first piece.
    """
    special = np.isin(ids, [PAD, BOS, EOS])
    begins = np.array([pieces.id_to_piece(piece).startswith("▁") for piece in ids.tolist()])
    starts = ~special & (begins | np.append(True, special[:-1]))
    return np.where(special, -1, np.cumsum(starts) - 1)


def read_truth(dataset: str, logs: Logs, pieces: SentencePieceProcessor) -> list[Pair]:
    """The validation pairs with their true links; InputError when these do not fit the logs."""
    path = truth_path(dataset)
    truth = read_json(path, "true alignment")
    pairs = []
    try:
        for example in logs.examples("val"):
            place = int(logs.index[example])
            src, trg = words_of(logs.src[example], pieces), words_of(logs.trg[example], pieces)[1:]
            links = np.zeros((trg.max() + 1, src.max() + 1), dtype=bool)
            for src_word, trg_word in truth["links"]["val"][place]:
                if min(src_word, trg_word) < 0:
                    raise IndexError
                links[trg_word, src_word] = True
            if truth["words"]["val"][place] != [*links.shape[::-1]]:
                raise IndexError
            pairs.append(Pair(src, trg, links))
    except (KeyError, IndexError, TypeError, ValueError):
        raise InputError(
            f"true alignment {path} does not fit the logs of {dataset}: prepare, train and dump "
            "the dataset again"
        ) from None
    return pairs

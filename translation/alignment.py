"""Where the true word alignment is known: how often do α and β^uf point at the wrong word?

data/FOLDER/truth.json (of the toy languages; for other data it can be put there) holds, for each
sentence pair in the order of the data files, the numbers of words and the true links::

    {"words": {"val": [[source words, target words], ...]},
     "links": {"val": [[[source word, target word], ...], ...]}}     # places, from 0
"""

from pathlib import Path

import numpy as np
from data import BOS, EOS, LAYOUTS, PAD
from sentencepiece import SentencePieceProcessor

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged, offsets_of
from attention_dynamics.cli import InputError
from attention_dynamics.names import GOLD, UNIFORM
from attention_dynamics.storage.files import read_json


def truth_path(dataset: str) -> Path:
    """Path of the true word alignment of a dataset, which may not exist."""
    layout = LAYOUTS.get(dataset)
    return Path("data") / (layout.folder if layout else dataset) / "truth.json"


def true_cells(dataset: str, logs: Logs, pieces: SentencePieceProcessor) -> np.ndarray | None:
    """(scores,) bool: do the words of this target and source piece of a validation pair translate
    each other? None if the dataset has no truth.
    """
    if not truth_path(dataset).exists():
        return None
    grid = WordGrid(logs, pieces)
    cells = np.zeros(logs.num_scores, dtype=bool)  # the validation pairs come first
    cells[grid.kept] = _true_links(dataset, logs, grid).values[grid.cell_of_kept]
    return cells


def alignment_rows(dataset: str, logs: Logs, pieces: SentencePieceProcessor) -> list[dict]:
    """A row per checkpoint: the alignment error rate (AER) on the validation pairs.

    AER = 1 - 2 |A ∩ S| / (|A| + |S|), with S the true links (all of them sure) and A one link for
    each target word, to the source word of the highest score. The score between two words is, for α
    of the gold run, the sum over the pieces of the source word, for β of the uniform run the
    highest of them; then in both the mean over the pieces of the target word. "chance" is the exact
    expectation for source words drawn at random.

    Empty if the dataset has no truth; None where a run has no such checkpoint, or its scores are
    NaN. Raises InputError when the truth does not fit the logs.
    """
    if not truth_path(dataset).exists():
        return []
    grid = WordGrid(logs, pieces)
    links = _true_links(dataset, logs, grid)
    chance = _rate((links.values / np.repeat(links.lengths, links.lengths)).sum(), links)
    rows = []
    for t in logs.iterations(GOLD):
        alpha = grid.scores(logs.scores(GOLD, t, "alpha", "val"), np.add)
        row = {"iteration": t, "α of normal_A": error_rate(alpha, links), "β of uniform": None}
        if (UNIFORM, t, "beta") in logs.arrays:
            beta = grid.scores(logs.scores(UNIFORM, t, "beta", "val"), np.maximum)
            row["β of uniform"] = error_rate(beta, links)
        rows.append({**row, "chance": chance})
    return rows


def error_rate(scores: Ragged, links: Ragged) -> float | None:
    """AER of the first arg-max source word of each target word; None if a score is NaN.

    Args:
        scores: a row for each target word, a value for each source word of its sentence.
        links: bool in the same places; True for a true link.
    """
    if np.isnan(scores.values).any():
        return None
    return _rate(links.values[scores.argmax].sum(), links)


def _rate(found: float, links: Ragged) -> float:
    """AER when the links of the target words, one of each, include ``found`` true ones."""
    return float(1 - 2 * found / (len(links) + links.values.sum()))


class WordGrid:
    """The (target word, source word) cells of the validation pairs, a row for each target word.

    Attributes:
        src_words, trg_words: (pairs,) words of each side of each pair.
        offsets: (target words + 1,) where the cells of each target word begin.
        kept: the scores of the validation pairs that are between words.
        cell_of_kept: the cell that each of these belongs to.
    """

    def __init__(self, logs: Logs, pieces: SentencePieceProcessor):
        examples, rows = logs.examples("val"), logs.rows("val")
        src, trg = logs.src.take(examples), logs.trg.take(examples)
        src_word, self.src_words = word_places(src, pieces)
        trg_word, self.trg_words = word_places(trg, pieces)
        self.offsets = offsets_of(np.repeat(self.src_words, self.trg_words))

        # Of each row of the logs, a target after <s>: its word, or -1.
        row_pair = logs.row_example[rows.start : rows.stop]
        row_word = Ragged(trg_word, trg.offsets).rest
        # Of each score in a row: its source word, or -1.
        of_source = Ragged(src_word, src.offsets).take(row_pair)
        row = np.repeat(np.arange(len(of_source)), of_source.lengths)
        self.kept = np.flatnonzero((of_source.values >= 0) & (row_word[row] >= 0))
        row, source = row[self.kept], of_source.values[self.kept]
        # The pieces of a source word stand side by side: runs of the same row and word.
        new = (np.diff(row, prepend=-1) != 0) | (np.diff(source, prepend=-1) != 0)
        self._runs = np.flatnonzero(new)
        row, source = row[self._runs], source[self._runs]
        first_target = np.cumsum(self.trg_words) - self.trg_words
        self._cell = self.offsets[first_target[row_pair[row]] + row_word[row]] + source
        self.cell_of_kept = self._cell[np.cumsum(new) - 1]

    def scores(self, values: Ragged, over_source: np.ufunc) -> Ragged:
        """Scores between words, of ``values``: all rows of the validation pairs in the logs.

        ``over_source``, np.add or np.maximum, joins the pieces of a source word; those of a target
        word are averaged.
        """
        of_words = over_source.reduceat(values.values[self.kept].astype(np.float64), self._runs)
        total = np.bincount(self._cell, of_words, minlength=self.offsets[-1])
        return Ragged(total / np.bincount(self._cell, minlength=self.offsets[-1]), self.offsets)


def word_places(ids: Ragged, pieces: SentencePieceProcessor) -> tuple[np.ndarray, np.ndarray]:
    """(tokens,) the place of each piece's word in its sentence, and (sentences,) their words.

    A word starts at a piece that begins with "▁"; <pad>, <s> and </s> have the place -1.
    """
    if ids.values.max() >= pieces.vocab_size():
        raise InputError(
            f"the logs hold piece {ids.values.max()}, but the vocabulary has "
            f"{pieces.vocab_size()} pieces: prepare, train and dump the dataset again"
        )
    begins = np.array([pieces.id_to_piece(i).startswith("▁") for i in range(pieces.vocab_size())])
    special = np.isin(ids.values, [PAD, BOS, EOS])
    after_special = np.append(True, special[:-1])
    after_special[ids.offsets[:-1]] = True
    starts = ~special & (begins[ids.values] | after_special)
    number = np.append(0, np.cumsum(starts))
    before = number[ids.offsets[:-1]]
    places = number[1:] - 1 - np.repeat(before, ids.lengths)
    places[special] = -1
    return places, number[ids.offsets[1:]] - before


def _true_links(dataset: str, logs: Logs, grid: WordGrid) -> Ragged:
    """The true links in the cells of ``grid``; InputError when they do not fit it."""
    path = truth_path(dataset)
    truth = read_json(path, "true alignment")
    linked = np.zeros(grid.offsets[-1], dtype=bool)
    first = 0
    try:
        for example in logs.examples("val"):
            place = int(logs.index[example])
            src_words, trg_words = int(grid.src_words[example]), int(grid.trg_words[example])
            if truth["words"]["val"][place] != [src_words, trg_words]:
                raise IndexError
            for src, trg in truth["links"]["val"][place]:
                if not (0 <= src < src_words and 0 <= trg < trg_words):
                    raise IndexError
                linked[first + trg * src_words + src] = True
            first += src_words * trg_words
    except (KeyError, IndexError, TypeError, ValueError):
        raise InputError(
            f"true alignment {path} does not fit the logs of {dataset}: prepare, train and dump "
            "the dataset again"
        ) from None
    return Ragged(linked, grid.offsets)

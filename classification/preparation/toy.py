"""A generated corpus in which it is known how strongly each word is evidence for a label.

Words are invented. ``PAIRS`` pairs of them are evidence: the two words of pair k are equally
frequent and vote for label 1 and label 0 with the same strength s_k. In a sentence with label y
each evidence word votes for y with probability sigmoid(s_k), so that s_k is the log-odds of its
vote. After ``not`` a word votes for the other label: the order matters, and a bag of words loses
this information. ``not`` also precedes words without evidence.
"""

from dataclasses import dataclass

import numpy as np

NEGATION = "not"

_ONSETS = "b d f g h j k l m n p r s t v w z br dr fl gr kl pl sh st tr"

# Sizes: sentences, words, and their lengths in tokens (uniform).
TRAIN, TEST = 4000, 1000
FILLERS, PAIRS = 4000, 120
SHORTEST, LONGEST = 8, 40
# The frequency of the word of rank r = 1, 2, ... is proportional to 1 / (r + offset)
# (Zipf-Mandelbrot).
# Pairs are flatter, so that no single pair decides the corpus.
FILLER_OFFSET, PAIR_OFFSET = 2.7, 10.0
# Strengths s_k in log-odds: equally spaced, assigned to the pairs at random.
WEAKEST, STRONGEST = 0.5, 4.5
# The probability that a word other than `not` is evidence.
EVIDENCE = 0.3
# The odds of drawing `not` for a token. One that would follow another, or end a sentence, is
# discarded, which leaves `not` before 15.6% of the other words.
NEGATED = 0.2
# The probability that a label is flipped.
NOISE = 0.02


@dataclass(frozen=True)
class Toy:
    """The corpus: per split, sentences (lists of words), labels, positions of the evidence words.

    Attributes:
        evidence: word -> strength in log-odds, positive when it votes for label 1.
        sentences, labels, positions: "train" or "test" -> one entry per example; positions are
            0-based indices in the sentence.
    """

    evidence: dict[str, float]
    sentences: dict[str, list[list[str]]]
    labels: dict[str, list[int]]
    positions: dict[str, list[list[int]]]

    def truth(self, seed: int) -> dict:
        """The content of ``data/toy_truth.json``."""
        return {
            "seed": seed,
            "negation": NEGATION,
            "label_noise": NOISE,
            "evidence": self.evidence,
            "positions": self.positions,
        }


def make_toy(seed: int) -> Toy:
    """The corpus of one seed; the same seed gives the same corpus."""
    rng = np.random.default_rng(seed)
    words = np.array(_invented_words(rng, FILLERS + 2 * PAIRS), dtype=object)
    strengths = rng.permutation(np.linspace(WEAKEST, STRONGEST, PAIRS))
    # Evidence word 2k votes for label 1, word 2k + 1 for label 0; the fillers come after them.
    evidence = {
        words[2 * pair + vote]: round(float(sign * strength), 4)
        for pair, strength in enumerate(strengths)
        for vote, sign in ((0, 1), (1, -1))
    }
    toy = Toy(evidence, {}, {}, {})
    for split, examples in (("train", TRAIN), ("test", TEST)):
        _draw(rng, toy, split, examples, words, strengths)
    return toy


def _draw(
    rng: np.random.Generator,
    toy: Toy,
    split: str,
    examples: int,
    words: np.ndarray,
    strengths: np.ndarray,
) -> None:
    """Draw all tokens of one split at once, then split them into sentences."""
    lengths = rng.integers(SHORTEST, LONGEST + 1, examples)
    example = np.repeat(np.arange(examples), lengths)  # (tokens,)
    tokens = len(example)
    label = rng.integers(0, 2, examples)

    start = np.zeros(tokens, dtype=bool)
    start[np.cumsum(lengths)[:-1]] = True
    start[0] = True
    negation = rng.random(tokens) < NEGATED / (1 + NEGATED)
    # Never the last token, and never two in a row: `not` precedes the word that it negates.
    negation &= ~np.append(start[1:], True)
    negation[1:] &= ~(negation[:-1] & ~start[1:])
    negated = np.append(False, negation[:-1])

    is_evidence = ~negation & (rng.random(tokens) < EVIDENCE)
    pair = rng.choice(PAIRS, tokens, p=_zipf(PAIRS, PAIR_OFFSET))
    right = rng.random(tokens) < 1 / (1 + np.exp(-strengths[pair]))
    vote = np.where(right, label[example], 1 - label[example])
    # A negated word is one that votes for the other label.
    polarity = np.where(negated, 1 - vote, vote)
    word = 2 * PAIRS + rng.choice(FILLERS, tokens, p=_zipf(FILLERS, FILLER_OFFSET))
    word[is_evidence] = 2 * pair[is_evidence] + (1 - polarity[is_evidence])
    text = words[word]
    text[negation] = NEGATION

    ends = np.cumsum(lengths)[:-1]
    noisy = rng.random(examples) < NOISE
    toy.labels[split] = np.where(noisy, 1 - label, label).tolist()
    toy.sentences[split] = [part.tolist() for part in np.split(text, ends)]
    toy.positions[split] = [np.flatnonzero(part).tolist() for part in np.split(is_evidence, ends)]


def _zipf(words: int, offset: float) -> np.ndarray:
    """``(words,)`` probabilities by rank."""
    weights = 1 / (np.arange(words) + 1 + offset)
    return weights / weights.sum()


def _invented_words(rng: np.random.Generator, count: int) -> list[str]:
    """Distinct pronounceable words of two to four syllables, in random order."""
    onsets = np.array(_ONSETS.split())
    vowels = np.array(["a", "e", "i", "o", "u", "ai", "ou"])
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = rng.integers(2, 5)
        parts = np.char.add(rng.choice(onsets, syllables), rng.choice(vowels, syllables))
        words.setdefault("".join(parts))
    words.pop(NEGATION, None)
    return list(words)

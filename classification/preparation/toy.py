"""A generated corpus in which it is known how strongly each word is evidence for a label.

Words are invented. ``PAIRS`` pairs of them are evidence: the two words of pair k are equally
frequent and vote for label 1 and label 0 with the same strength s_k. In a sentence with label y
each evidence word votes for y with probability sigmoid(s_k), so that s_k is the log-odds of its
vote. After ``not`` a word votes for the other label: the order matters, and a bag of words loses
this information. ``not`` also precedes words without evidence.
"""

from typing import NamedTuple

import numpy as np

NEGATION = "not"

_ONSETS = "b d f g h j k l m n p r s t v w z br dr fl gr kl pl sh st tr"

# Sizes: sentences, words, and their lengths in tokens (uniform).
TRAIN, TEST = 4000, 1000
FILLERS, PAIRS = 4000, 120
SHORTEST, LONGEST = 8, 40
# The frequency of the word of rank r = 1, 2, ... is proportional to 1 / (r + offset)
# (Zipf-Mandelbrot). Pairs are flatter, so that no single pair decides the corpus.
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


class Toy(NamedTuple):
    """The corpus: (split, words, label) of each example, and the content of data/toy_truth.json.

    ``truth["evidence"]`` is word -> strength in log-odds, positive when it votes for label 1;
    ``truth["positions"]`` is split -> per example, 0-based positions of its evidence words.
    """

    examples: list[tuple[str, list[str], int]]
    truth: dict


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
    examples, positions = [], {}
    for split, size in (("train", TRAIN), ("test", TEST)):
        sentences, labels, positions[split] = _draw(rng, size, words, strengths)
        examples += [(split, *example) for example in zip(sentences, labels, strict=True)]
    truth = {"seed": seed, "negation": NEGATION, "label_noise": NOISE}
    return Toy(examples, {**truth, "evidence": evidence, "positions": positions})


def _draw(rng: np.random.Generator, size: int, words: np.ndarray, strengths: np.ndarray) -> tuple:
    """Sentences, labels, positions of the evidence: all tokens are drawn at once, then split."""
    lengths = rng.integers(SHORTEST, LONGEST + 1, size)
    example = np.repeat(np.arange(size), lengths)  # (tokens,)
    tokens = len(example)
    label = rng.integers(0, 2, size)

    is_last = np.append(np.diff(example) > 0, True)
    negation = rng.random(tokens) < NEGATED / (1 + NEGATED)
    # Never the last token, and never two in a row: `not` precedes the word that it negates.
    negation &= ~is_last
    negation[1:] &= ~(negation[:-1] & ~is_last[:-1])
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
    noisy = rng.random(size) < NOISE
    positions = [np.flatnonzero(part).tolist() for part in np.split(is_evidence, ends)]
    sentences = [part.tolist() for part in np.split(text, ends)]
    return sentences, np.where(noisy, 1 - label, label).tolist(), positions


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

"""A generated pair of languages of which the true word alignment is known.

Words are invented; those of one class (noun, verb, ...) are drawn by Zipf's law. A source sentence
is ``[adverb] NP [auxiliary] verb NP (preposition NP)*`` with ``NP = [determiner] adjective* noun``.
Its translation, word by word through a dictionary, differs in three ways:

- order: adjectives come after their noun, the verb comes last, the adverb before it;
- some verbs are two words (one of a few particles comes before them), and so are some nouns;
- auxiliaries are not translated.

So a translator must attend to a source word at another position, and the arg-max of the attention
can be compared with the truth.
"""

from dataclasses import dataclass, field

import numpy as np

SOURCE, TARGET = "src", "trg"  # the names of the two languages: endings of their files

# Sizes: sentence pairs, and words per sentence on each side.
TRAIN, VAL = 3000, 300
SHORTEST, LONGEST = 4, 14
# Words of each class of the source language.
CLASSES = {
    "noun": 150,
    "adjective": 50,
    "verb": 60,
    "adverb": 20,
    "preposition": 8,
    "determiner": 4,
    "auxiliary": 3,
}
# The fraction of words with two target words, and the number of target particles of verbs.
TWO_WORDS = {"verb": 0.25, "noun": 0.1}
PARTICLES = 6
# The frequency of the word of rank r = 1, 2, ... of a class is proportional to 1 / (r + offset).
ZIPF_OFFSET = 2.7
# The probabilities of the optional parts, and of 0, 1 and 2 adjectives or prepositions.
ADVERB, AUXILIARY, DETERMINER = 0.4, 0.3, 0.7
ADJECTIVES = (0.5, 0.35, 0.15)
PREPOSITIONS = (0.4, 0.4, 0.2)

# Cumulated frequencies of the ranks of each class.
_FREQUENCIES = {
    name: np.cumsum(1 / (np.arange(size) + 1 + ZIPF_OFFSET)) for name, size in CLASSES.items()
}

# Syllables: each language has its own sounds.
_SOUNDS = {
    SOURCE: ("b d g j k l m n r s v z br dr gl", "a e i o ai"),
    TARGET: ("f h p t w y ch fl kr pl sh st th tr", "u oo ea ia ou"),
}


@dataclass(frozen=True)
class Toy:
    """The sentence pairs: per split ("train" or "val") one entry per pair.

    Attributes:
        dictionary: source word -> its target words, in their order; none for an auxiliary.
        pairs: (source words, target words).
        links: the true alignment: 0-based (position of a source word, position of a target word)
            in ascending order of target positions; each target word has exactly one.
    """

    dictionary: dict[str, list[str]]
    pairs: dict[str, list[tuple[list[str], list[str]]]] = field(default_factory=dict)
    links: dict[str, list[list[tuple[int, int]]]] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """Every word of both languages, once, sorted."""
        return sorted({*self.dictionary, *(w for words in self.dictionary.values() for w in words)})

    def truth(self, seed: int) -> dict:
        """The content of ``data/toy/truth.json`` (read by alignment.py)."""
        words = {
            split: [[len(src), len(trg)] for src, trg in pairs]
            for split, pairs in self.pairs.items()
        }
        links = {"links": self.links, "dictionary": self.dictionary}
        return {"seed": seed, "words": words, **links}


def make_toy(seed: int) -> Toy:
    """The languages and sentence pairs of one seed; no source sentence comes twice."""
    rng = np.random.default_rng(seed)
    words = iter(_invented_words(rng, SOURCE, sum(CLASSES.values())))
    classes = {name: [next(words) for _ in range(size)] for name, size in CLASSES.items()}
    toy = Toy(_dictionary(rng, classes))
    seen = set()
    for split, size in (("train", TRAIN), ("val", VAL)):
        toy.pairs[split], toy.links[split] = [], []
        while len(toy.pairs[split]) < size:
            src, order = _sentence(rng, classes)
            translated = [(toy.dictionary[src[place]], place) for place in order]
            trg = [word for words, _ in translated for word in words]
            lengths = sorted((len(src), len(trg)))
            if lengths[0] < SHORTEST or lengths[1] > LONGEST or tuple(src) in seen:
                continue
            seen.add(tuple(src))
            places = [place for words, place in translated for _ in words]
            toy.pairs[split].append((src, trg))
            toy.links[split].append([(src_place, t) for t, src_place in enumerate(places)])
    return toy


def _dictionary(rng: np.random.Generator, classes: dict[str, list[str]]) -> dict[str, list[str]]:
    total = sum(CLASSES.values())
    words = iter(_invented_words(rng, TARGET, 2 * total + PARTICLES))
    particles = [next(words) for _ in range(PARTICLES)]
    dictionary = {}
    for name, members in classes.items():
        twice = set(rng.permutation(len(members))[: round(TWO_WORDS.get(name, 0) * len(members))])
        for number, word in enumerate(members):
            translation = [] if name == "auxiliary" else [next(words)]
            if number in twice:
                first = particles[rng.integers(PARTICLES)] if name == "verb" else next(words)
                translation.insert(0, first)
            dictionary[word] = translation
    return dictionary


def _sentence(rng: np.random.Generator, classes: dict) -> tuple[list[str], list[int]]:
    """The source words, and the order in which their translations follow each other."""
    src: list[str] = []

    def say(name: str) -> int:
        rank = np.searchsorted(
            _FREQUENCIES[name], rng.random() * _FREQUENCIES[name][-1], side="right"
        )
        src.append(classes[name][rank])
        return len(src) - 1

    def noun_phrase() -> list[int]:
        first = [say("determiner")] if rng.random() < DETERMINER else []
        adjectives = [say("adjective") for _ in range(rng.choice(3, p=ADJECTIVES))]
        return [*first, say("noun"), *adjectives]

    adverb = [say("adverb")] if rng.random() < ADVERB else []
    order = noun_phrase()
    if rng.random() < AUXILIARY:
        say("auxiliary")
    verb = say("verb")
    order += noun_phrase()
    for _ in range(rng.choice(3, p=PREPOSITIONS)):
        order += [say("preposition"), *noun_phrase()]
    return src, [*order, *adverb, verb]


def _invented_words(rng: np.random.Generator, language: str, count: int) -> list[str]:
    """Distinct pronounceable words of two syllables, in random order."""
    onsets, vowels = (sounds.split() for sounds in _SOUNDS[language])
    found: dict[str, None] = {}
    while len(found) < count:
        parts = zip(rng.choice(onsets, 2), rng.choice(vowels, 2), strict=True)
        found.setdefault("".join(onset + vowel for onset, vowel in parts))
    return list(found)

"""A small generated task of acceptability, in the format of CoLA, to try PAPA without a download.

    python toy.py
    python run_papa_glue.py --task_name cola --task_dir data/toy ...

Writes ``data/toy/train.tsv`` and ``dev.tsv``: English sentences of one grammar, half of them made
unacceptable by one mistake, of agreement (of the verb, a determiner or a reflexive) or of word
order. What is wrong shows in which words stand where, hardly in which words there are.
"""

import argparse
import random
import sys
from pathlib import Path

from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.cli import seed as seed_number
from attention_dynamics.storage.files import write_text

# (singular, plural, reflexive of the singular)
NOUNS = [
    ("boy", "boys", "himself"),
    ("king", "kings", "himself"),
    ("father", "fathers", "himself"),
    ("brother", "brothers", "himself"),
    ("waiter", "waiters", "himself"),
    ("girl", "girls", "herself"),
    ("queen", "queens", "herself"),
    ("mother", "mothers", "herself"),
    ("sister", "sisters", "herself"),
    ("waitress", "waitresses", "herself"),
    ("dog", "dogs", "itself"),
    ("cat", "cats", "itself"),
    ("horse", "horses", "itself"),
    ("bird", "birds", "itself"),
    ("bear", "bears", "itself"),
]
REFLEXIVE = "themselves"
# All verbs and determiners: (with a singular, with a plural).
INTRANSITIVE = [
    ("sleeps", "sleep"),
    ("laughs", "laugh"),
    ("waits", "wait"),
    ("sings", "sing"),
    ("runs", "run"),
    ("works", "work"),
    ("swims", "swim"),
    ("smiles", "smile"),
]
TRANSITIVE = [
    ("sees", "see"),
    ("likes", "like"),
    ("helps", "help"),
    ("follows", "follow"),
    ("knows", "know"),
    ("admires", "admire"),
    ("hears", "hear"),
    ("trusts", "trust"),
]
COPULA = ("is", "are")
DETERMINERS = [("this", "these"), ("that", "those"), ("a", "many"), ("every", "several")]
ADJECTIVES = ["young", "tall", "happy", "quiet", "clever", "tired", "famous", "hungry"]
PREPOSITIONS = ["near", "behind", "beside"]
ADVERBIALS = ["today", "every day", "in the morning", "very loudly", "with great care"]

TRAIN, DEV = 1000, 300
MISTAKES = ("verb", "determiner", "reflexive", "order")


def make_sentences(number: int, seed: int) -> list[tuple[str, bool]]:
    """``number`` different sentences and whether each is acceptable, by turns."""
    rng = random.Random(seed)
    found: dict[str, bool] = {}
    while len(found) < number:
        acceptable = len(found) % 2 == 0
        found.setdefault(
            make_sentence(rng, None if acceptable else rng.choice(MISTAKES)), acceptable
        )
    return list(found.items())


def make_sentence(rng: random.Random, mistake: str | None) -> str:
    """One sentence, with one of the ``MISTAKES`` or none.

    Between subject and verb there may be another noun, of the other number, for the verb not to
    agree with.
    """
    plural = rng.random() < 0.5
    noun = rng.choice(NOUNS)
    words = _noun_phrase(rng, plural, noun, wrong=mistake == "determiner")
    head = len(words) - 1
    between = rng.random()
    if between < 0.3:
        words += [rng.choice(PREPOSITIONS), *_noun_phrase(rng, not plural)]
    elif between < 0.5:
        words += ["that", *_noun_phrase(rng, not plural), rng.choice(TRANSITIVE)[not plural]]
    verb = len(words)
    agrees = plural != (mistake == "verb")
    kind = "reflexive" if mistake == "reflexive" else rng.choice(["object", "adjective", "none"])
    if kind == "none":
        words += [rng.choice(INTRANSITIVE)[agrees], rng.choice(ADVERBIALS)]
    elif kind == "adjective":
        words += [COPULA[agrees], rng.choice(ADJECTIVES)]
    else:
        words.append(rng.choice(TRANSITIVE)[agrees])
        if kind == "reflexive" or rng.random() < 0.4:
            words.append(REFLEXIVE if plural != (mistake == "reflexive") else noun[2])
        else:
            words += _noun_phrase(rng, rng.random() < 0.5)
    if mistake == "order":
        # The determiner behind the word that follows it, or the verb before its subject's noun.
        place, target = rng.choice([(0, 1), (verb, head)])
        words.insert(target, words.pop(place))
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}."


def _noun_phrase(rng: random.Random, plural: bool, noun=None, wrong: bool = False) -> list[str]:
    """A determiner, perhaps an adjective, and a noun; ``wrong``: they do not agree."""
    determiner = rng.choice(DETERMINERS)[plural != wrong] if wrong or rng.random() < 0.5 else "the"
    adjective = [rng.choice(ADJECTIVES)] if rng.random() < 0.4 else []
    return [determiner, *adjective, (noun or rng.choice(NOUNS))[plural]]


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--seed", type=seed_number, default=0, help="of the sentences (0)")
    parser.add_argument("--output_dir", default="data/toy", help="where to write (data/toy)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    sentences = make_sentences(TRAIN + DEV, args.seed)
    folder = Path(args.output_dir)
    for split, part in (("train", sentences[:TRAIN]), ("dev", sentences[TRAIN:])):
        lines = (f"toy\t{int(good)}\t{'' if good else '*'}\t{text}\n" for text, good in part)
        write_text(folder / f"{split}.tsv", "".join(lines))
    print(f"{TRAIN} and {DEV} sentences in {folder}/", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)

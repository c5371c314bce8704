"""Generate a small task of entailment in the format of RTE, to try PAPA without a download.

    python toy.py
    python run_papa_glue.py --task_name rte --task_dir data/toy ...

Writes data/toy/train.tsv and dev.tsv: "Anna bought plums, rice and tea." entails "Anna
bought rice.", and does not entail "Anna bought soap.". Premise and hypothesis each hold every word
equally often with both labels, so the label is in their relation: some head has to compare words,
which constant attention cannot do.
"""

import argparse
import itertools
import random
import sys
from pathlib import Path

from attention_dynamics.cli import InputError, add_options, run_script, script_parser
from attention_dynamics.cli import seed as seed_number
from attention_dynamics.storage.files import write_text

PEOPLE = ("Anna", "Tom", "Peter", "Lucy", "Mark", "Julia", "David", "Emma")
VERBS = ("bought", "sold", "found", "needed", "wanted", "forgot")
GOODS = (
    "apples", "beans", "bread", "butter", "carrots", "cheese", "eggs", "flour", "grapes", "honey",
    "lemons", "milk", "nuts", "olives", "onions", "pears", "plums", "rice", "salt", "soap",
    "sugar", "tea", "tomatoes", "wine",
)  # fmt: skip
SIZES = {"train": 1000, "dev": 300}
LISTED = (3, 4, 5)  # how many things a premise lists


def make_pairs(number: int, seed: int) -> list[tuple[str, str, bool]]:
    """``number`` different (premise, hypothesis, entailed), every second one entailed."""
    rng = random.Random(seed)
    pairs: dict[tuple[str, str], bool] = {}
    while len(pairs) < number:
        entailed = len(pairs) % 2 == 0
        pairs.setdefault(make_pair(rng, entailed), entailed)
    return [(*pair, entailed) for pair, entailed in pairs.items()]


def make_pair(rng: random.Random, entailed: bool) -> tuple[str, str]:
    """A premise that lists goods, and a hypothesis on one of them (``entailed``) or another."""
    subject = f"{rng.choice(PEOPLE)} {rng.choice(VERBS)}"
    *listed, other = rng.sample(GOODS, rng.choice(LISTED) + 1)
    premise = f"{subject} {', '.join(listed[:-1])} and {listed[-1]}."
    return premise, f"{subject} {rng.choice(listed) if entailed else other}."


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_options(
        parser,
        seed=(seed_number, 0, "random seed"),
        output_dir=(str, "data/toy", "output directory"),
    )
    parser.add_argument("--overwrite", action="store_true", help="replace another toy task there")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    pairs = iter(make_pairs(sum(SIZES.values()), args.seed))
    for split, size in SIZES.items():
        rows = ["index\tsentence1\tsentence2\tlabel\n"]
        for index, (premise, hypothesis, entailed) in enumerate(itertools.islice(pairs, size)):
            label = "entailment" if entailed else "not_entailment"
            rows.append(f"{index}\t{premise}\t{hypothesis}\t{label}\n")
        path, text = Path(args.output_dir, f"{split}.tsv"), "".join(rows)
        if path.exists() and not args.overwrite and path.read_text(encoding="utf-8") != text:
            raise InputError(f"{path} holds other pairs; --overwrite replaces them")
        write_text(path, text)
    print(f"{SIZES['train']} and {SIZES['dev']} pairs in {args.output_dir}/", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)

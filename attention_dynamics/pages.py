"""A page to look at attention with: tokens coloured by α and β^uf, checkpoint by checkpoint.

One html file that needs nothing else (no network, no library): the numbers travel in it as JSON,
the words as escaped text. It shows on single sentences what the statistics say in the mean (method
A): whether the attention of a normal run moves to the words that the uniform run's KTIW knew first.
"""

import os
from collections.abc import Sequence

import jinja2
import numpy as np

from attention_dynamics.errors import InputError
from attention_dynamics.files import write_text
from attention_dynamics.logs import Logs
from attention_dynamics.statistics import GOLD, UNIFORM

SHORTEST, LONGEST = 5, 60  # tokens of an example that is chosen by itself


def choose_examples(logs: Logs, split: str, num_examples: int, seed: int = 0) -> list[int]:
    """Examples of moderate length drawn at random, half of them of each label.

    When a label has too few of 5 to 60 tokens, the other one fills up; when both have, fewer come
    back.

    Returns:
        Numbers of examples in ``logs``, those of label 0 first, each label's in rising order.

    Raises:
        InputError: when no example of the split is of such a length.
    """
    examples = np.array(logs.examples(split), dtype=np.int64)
    lengths = logs.src.lengths[examples]
    examples = examples[(lengths >= SHORTEST) & (lengths <= LONGEST)]
    if not len(examples):
        raise InputError(
            f"no {split} example in the logs of {logs.dataset} has {SHORTEST} to {LONGEST} tokens; "
            "name the examples to show with --examples"
        )
    shuffled = np.random.default_rng(seed).permutation(examples)
    negative, positive = (shuffled[logs.trg[shuffled] == label] for label in (0, 1))
    num_negative = num_examples // 2
    num_negative = max(num_negative, num_examples - len(positive))
    negative = negative[:num_negative]
    positive = positive[: num_examples - len(negative)]
    return [*map(int, np.sort(negative)), *map(int, np.sort(positive))]


def examples_at(logs: Logs, split: str, places: Sequence[int]) -> list[int]:
    """The numbers in ``logs`` of the examples at ``places`` (from 0) of ``split``.

    Raises InputError for a place that the split does not have.
    """
    there = logs.examples(split)
    for place in places:
        if not 0 <= place < len(there):
            raise InputError(
                f"the {split} split of the logs of {logs.dataset} has no example {place}: "
                f"its {len(there)} examples are numbered from 0"
            )
    return [there[place] for place in places]


def write_token_page(path: str | os.PathLike, logs: Logs, *args, **options) -> None:
    """Write the page of :func:`token_page`, which takes the other arguments, to ``path``."""
    write_text(path, token_page(logs, *args, **options))


def token_page(
    logs: Logs,
    words: Sequence[str],
    examples: Sequence[int],
    beta_sign: np.ndarray,
    *,
    perf: str = "test_acc",
    perf_label: str = "test accuracy",
    label_names: Sequence[str] = ("label 0", "label 1"),
    marked: np.ndarray | None = None,
) -> str:
    """The html of the page, the same bytes for the same arguments.

    Args:
        logs: of a classification data set.
        words: (vocab,) the word of each index in ``logs.src``.
        examples: which examples of ``logs``, in the order shown.
        beta_sign: (scores,) +1 or -1 that turns β into a vote for the correct label.
        perf: the accuracy in ``logs.metas`` shown beside the iteration, a fraction; left out where
            it was not dumped.
        perf_label: what ``perf`` measures.
        label_names: names of labels 0 and 1.
        marked: (scores,) bool, tokens to underline (the evidence planted in a made-up data set).

    Raises:
        InputError: when a run or a common iteration is missing, a word index is outside ``words``,
            or a score is not finite.
    """
    iterations = _common_iterations(logs)
    highest = max((int(logs.src[example].max()) for example in examples), default=0)
    if highest >= len(words):
        raise InputError(
            f"the logs of {logs.dataset} use the word index {highest}, but its vocabulary has "
            f"{len(words)} words: the logs were made from other data; run eval_dump.py again"
        )
    shown, scores = [], []
    for example in examples:
        place = slice(logs.row_offsets[example], logs.row_offsets[example + 1])
        alpha = [_plain(logs.arrays[GOLD, t, "alpha"][place]) for t in iterations]
        sign = beta_sign[place]
        beta = [_plain(logs.arrays[UNIFORM, t, "beta"][place] * sign) for t in iterations]
        scores.append({"alpha": alpha, "beta": beta})
        marks = np.zeros(len(alpha[-1]), dtype=bool) if marked is None else marked[place]
        shown.append(
            {
                "place": example - logs.examples(_split(logs, example)).start,
                "split": _split(logs, example),
                "label": label_names[int(logs.trg[example])],
                "tokens": _tokens(logs.src[example], words, marks, alpha[-1], beta[-1]),
            }
        )
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attention_dynamics"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("tokens.html").render(
        dataset=logs.dataset,
        examples=shown,
        iterations=iterations,
        perf_label=perf_label,
        has_marks=marked is not None,
        numbers={
            "iterations": iterations,
            "perfs": {run: _perfs(logs, run, iterations, perf) for run in (GOLD, UNIFORM)},
            "scores": scores,
        },
    )


def _common_iterations(logs: Logs) -> list[int]:
    """The checkpoints that both runs have, rising."""
    for run in (GOLD, UNIFORM):
        if not logs.iterations(run):
            raise InputError(
                f"the logs of {logs.dataset} hold no run {run}: add it to the log config, train "
                "it, and dump again"
            )
    common = sorted(set(logs.iterations(GOLD)) & set(logs.iterations(UNIFORM)))
    if not common:
        raise InputError(
            f"the logs of {logs.dataset} hold no iteration that both {GOLD} and {UNIFORM} have"
        )
    return common


def _split(logs: Logs, example: int) -> str:
    return "val" if example < logs.splits["val"] else "train"


def _perfs(logs: Logs, run: str, iterations: list[int], perf: str) -> list[float | None]:
    return [logs.metas.get((run, t, perf)) for t in iterations]


def _plain(scores: np.ndarray) -> list[float]:
    """As JSON numbers of four significant digits, more than an eye can tell apart in a colour.

    Raises InputError for scores that are not finite, which JSON has no numbers for.
    """
    if not np.isfinite(scores).all():
        raise InputError(
            "the logs hold scores that are not finite numbers: a training run diverged; train it "
            "again and dump again"
        )
    return [float(f"{score:.4g}") for score in scores]


def _tokens(ids: np.ndarray, words: Sequence[str], marks: np.ndarray, alpha, beta) -> list[dict]:
    """The tokens of one example, coloured by one checkpoint for readers without JavaScript."""
    highest = max(alpha) or 1.0
    strongest = max(map(abs, beta)) or 1.0
    return [
        {
            "word": words[index],
            "special": int(index) < 4,
            "marked": bool(mark),
            "alpha": round(a / highest, 3),
            "up": round(max(b, 0) / strongest, 3),
            "down": round(max(-b, 0) / strongest, 3),
        }
        for index, mark, a, b in zip(ids, marks, alpha, beta, strict=True)
    ]

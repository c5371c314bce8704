"""Pages to look at attention with, checkpoint by checkpoint: α of a normal run beside β^uf.

For classification a sentence is a line of coloured tokens, for translation a pair of matrices. A
page is one html file that needs nothing else (no network, no library): the numbers travel in it as
JSON, the words as escaped text. It shows on single sentences what the statistics say in the mean
(method A): whether the attention of a normal run moves to the words that the uniform run's KTIW
knew first.
"""

import os
from collections.abc import Sequence

import jinja2
import numpy as np

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.names import GOLD, UNIFORM
from attention_dynamics.storage.files import write_text

# Tokens of an example that is chosen by itself, both sides of a pair: its matrices fit a screen.
SHORTEST, LONGEST, LONGEST_OF_PAIR = 5, 60, 20


def choose_examples(logs: Logs, split: str, num_examples: int, seed: int = 0) -> list[int]:
    """Examples of moderate length drawn at random, half of them of each label if they have one.

    Moderate are sentences of 5 to 60 tokens, and pairs with 5 to 20 tokens on either side. When a
    label has too few of them, the other one fills up; when there are too few in all, fewer come
    back; when there are none, those come whose length is nearest to it.

    Returns:
        Numbers of examples in ``logs``, those of label 0 first, each label's in rising order.

    Raises:
        InputError: when the split has no example.
    """
    examples = np.array(logs.examples(split), dtype=np.int64)
    is_pair = isinstance(logs.trg, Ragged)
    longest = LONGEST_OF_PAIR if is_pair else LONGEST
    too_much = np.zeros(len(examples), dtype=np.int64)
    for side in (logs.src, logs.trg) if is_pair else (logs.src,):
        lengths = side.lengths[examples]
        too_much = np.maximum(too_much, np.maximum(SHORTEST - lengths, lengths - longest))
    if not len(examples):
        raise InputError(f"the logs of {logs.dataset} hold no {split} example")
    if (too_much <= 0).any():
        examples = examples[too_much <= 0]
    else:
        examples = examples[np.argsort(too_much, kind="stable")[:num_examples]]
    shuffled = np.random.default_rng(seed).permutation(examples)
    if is_pair:
        return sorted(map(int, shuffled[:num_examples]))
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
    _check_ids(logs, [logs.src[example] for example in examples], "word", len(words))
    shown, scores = [], []
    for example in examples:
        place = _place(logs, example)
        alpha = [_plain(logs.arrays[GOLD, t, "alpha"][place]) for t in iterations]
        sign = beta_sign[place]
        beta = [_plain(logs.arrays[UNIFORM, t, "beta"][place] * sign) for t in iterations]
        scores.append({"alpha": alpha, "beta": beta})
        marks = np.zeros(len(alpha[-1]), dtype=bool) if marked is None else marked[place]
        shown.append(
            {
                **_name(logs, example),
                "label": label_names[int(logs.trg[example])],
                "tokens": _tokens(logs.src[example], words, marks, alpha[-1], beta[-1]),
            }
        )
    return render(
        "tokens.html",
        dataset=logs.dataset,
        examples=shown,
        iterations=iterations,
        perf_label=perf_label,
        percent=False,
        unit="%",
        has_marks=marked is not None,
        numbers={
            "iterations": iterations,
            "perfs": {run: _perfs(logs, run, iterations, perf) for run in (GOLD, UNIFORM)},
            "scores": scores,
        },
    )


def write_matrix_page(path: str | os.PathLike, logs: Logs, *args, **options) -> None:
    """Write the page of :func:`matrix_page`, which takes the other arguments, to ``path``."""
    write_text(path, matrix_page(logs, *args, **options))


def matrix_page(
    logs: Logs,
    pieces: Sequence[str],
    examples: Sequence[int],
    *,
    perf: str = "val_acc",
    perf_label: str = "validation token accuracy",
    unit: str = "%",
    marked: np.ndarray | None = None,
) -> str:
    """The html of a page with the matrices α and β^uf of sentence pairs, the same bytes each time.

    Both are (trg_len - 1, src_len): a row per target piece after <s>, a column per source piece. A
    cell is coloured by its share of the highest in its row: α / max α, and p / max p with
    p = exp(β^uf), the probability of the target piece if all attention sat on the source piece. A
    row in which nothing stands out is of one full colour in either matrix.

    Args:
        logs: of a translation data set.
        pieces: (vocab,) the pieces as sentencepiece writes them, "▁" before a word's first.
        examples: which examples of ``logs``, in the order shown.
        perf: the performance in ``logs.metas`` shown beside the iteration, out of 100; left out
            where it was not dumped.
        perf_label: what ``perf`` measures.
        unit: what stands behind its numbers; "" for BLEU.
        marked: (scores,) bool, cells to outline (the true word alignment, where it is known).

    Raises:
        InputError: when a run or a common iteration is missing, a piece is outside ``pieces``, or a
            score is not finite.
    """
    iterations = _common_iterations(logs)
    sides = [side[example] for side in (logs.src, logs.trg) for example in examples]
    _check_ids(logs, sides, "piece", len(pieces))
    shown, scores = [], []
    for example in examples:
        src, trg = logs.src[example], logs.trg[example]
        place, shape = _place(logs, example), (len(trg) - 1, len(src))
        # Six digits: an untrained model's β differ in the fourth, and the highest is marked.
        alpha = [_plain(logs.arrays[GOLD, t, "alpha"][place], 6) for t in iterations]
        beta = [_plain(logs.arrays[UNIFORM, t, "beta"][place], 6) for t in iterations]
        scores.append({"alpha": alpha, "beta": beta})
        marks = np.zeros(shape, dtype=bool) if marked is None else marked[place].reshape(shape)
        last_alpha, last_beta = np.reshape(alpha[-1], shape), np.reshape(beta[-1], shape)
        highest = last_alpha.max(axis=1, keepdims=True)
        shares = {
            "alpha": last_alpha / np.where(highest > 0, highest, 1),
            "beta": np.exp(last_beta - last_beta.max(axis=1, keepdims=True)),
        }
        shown.append(
            {
                **_name(logs, example),
                "src": [_piece(index, pieces) for index in src],
                "trg": [_piece(index, pieces) for index in trg[1:]],
                "texts": [_sentence(ids, pieces) for ids in (src, trg)],
                "matrices": {kind: _cells(share, marks) for kind, share in shares.items()},
            }
        )
    return render(
        "matrices.html",
        dataset=logs.dataset,
        examples=shown,
        iterations=iterations,
        perf_label=perf_label,
        percent=True,
        unit=unit,
        has_marks=marked is not None,
        numbers={
            "iterations": iterations,
            "perfs": {run: _perfs(logs, run, iterations, perf) for run in (GOLD, UNIFORM)},
            "scores": scores,
        },
    )


def render(template: str, **context) -> str:
    """A page of templates/, everything put into it escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attention_dynamics.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(context)


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


def _name(logs: Logs, example: int) -> dict:
    """The split of an example, and its number there."""
    split = "val" if example < logs.splits["val"] else "train"
    return {"split": split, "place": example - logs.examples(split).start}


def _place(logs: Logs, example: int) -> slice:
    """Where the scores of an example lie in an array."""
    first, stop = np.searchsorted(logs.row_example, [example, example + 1])
    return slice(logs.row_offsets[first], logs.row_offsets[stop])


def _check_ids(logs: Logs, sentences: list[np.ndarray], kind: str, vocab: int) -> None:
    highest = max((int(ids.max()) for ids in sentences), default=0)
    if highest >= vocab:
        raise InputError(
            f"the logs of {logs.dataset} use the {kind} index {highest}, but its vocabulary has "
            f"{vocab} {kind}s: the logs were made from other data; run eval_dump.py again"
        )


def _perfs(logs: Logs, run: str, iterations: list[int], perf: str) -> list[float | None]:
    return [logs.metas.get((run, t, perf)) for t in iterations]


def _plain(scores: np.ndarray, digits: int = 4) -> list[float]:
    """As JSON numbers of four significant digits, more than an eye can tell apart in a colour.

    Raises InputError for scores that are not finite, which JSON has no numbers for.
    """
    if not np.isfinite(scores).all():
        raise InputError(
            "the logs hold scores that are not finite numbers: a training run diverged; train it "
            "again and dump again"
        )
    return [float(f"{score:.{digits}g}") for score in scores]


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


def _cells(shares: np.ndarray, marks: np.ndarray) -> list[list[dict]]:
    """A matrix, coloured by one checkpoint for readers without JavaScript."""
    highest = shares.argmax(axis=1)
    return [
        [
            {"share": round(float(share), 3), "top": column == top, "marked": bool(mark)}
            for column, (share, mark) in enumerate(zip(row, row_marks, strict=True))
        ]
        for row, row_marks, top in zip(shares, marks, highest, strict=True)
    ]


def _piece(index: int, pieces: Sequence[str]) -> dict:
    """A piece as a reader expects it: no sign before a word, "·" where one goes on, "␣" alone."""
    piece = pieces[index]
    if piece.startswith("▁"):
        text = piece[1:] or "␣"
    else:  # signs of punctuation, and names of special pieces, stand without a space anyway
        text = f"·{piece}" if piece[:1].isalnum() else piece
    return {"text": text, "special": int(index) < 4}


def _sentence(ids: np.ndarray, pieces: Sequence[str]) -> str:
    """The text between <s> and </s>."""
    return "".join(pieces[index] for index in ids[1:-1]).replace("▁", " ").strip()

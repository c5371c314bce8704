"""Pages that show attention on single examples, checkpoint by checkpoint: α next to β^uf.

In classification a sentence is a line of coloured tokens, in translation a pair is two matrices. A
page is one html file without network or libraries: the numbers are in it as JSON, the words as
escaped text. It shows on single examples what the statistics say on average: whether the attention
of a normal run moves to the words whose β^uf was high first.
"""

import os
from collections.abc import Callable, Sequence

import numpy as np

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.names import GOLD, UNIFORM
from attention_dynamics.reporting.templating import render
from attention_dynamics.storage.files import write_text

# Numbers of tokens of an example that is chosen by itself; of a pair on either side, so that its
# matrices fit on a screen.
SHORTEST, LONGEST, LONGEST_OF_PAIR = 5, 60, 20


def choose_examples(logs: Logs, split: str, num_examples: int, seed: int = 0) -> list[int]:
    """Examples of moderate length drawn at random, half of them of each label if they have one.

    Moderate are sentences of 5 to 60 tokens, and pairs with 5 to 20 tokens on either side. If a
    label has too few of them, the other label fills up. If no example is of moderate length, those
    closest to it are returned.

    Returns:
        Numbers of examples in ``logs``, at most ``num_examples``; those of label 0 first, each
        label's in ascending order.

    Raises:
        InputError: if the split has no example.
    """
    examples = np.array(logs.examples(split), dtype=np.int64)
    if not len(examples):
        raise InputError(f"the logs of {logs.dataset} hold no {split} example")
    is_pair = isinstance(logs.trg, Ragged)
    longest = LONGEST_OF_PAIR if is_pair else LONGEST
    lengths = np.array([side.lengths[examples] for side in (logs.src, logs.trg)[: 1 + is_pair]])
    distance = np.maximum(SHORTEST - lengths, lengths - longest).max(axis=0).clip(0)
    if (distance == 0).any():
        examples = examples[distance == 0]
    else:
        examples = examples[np.argsort(distance, kind="stable")[:num_examples]]
    shuffled = np.random.default_rng(seed).permutation(examples)
    if is_pair:
        return sorted(map(int, shuffled[:num_examples]))
    negative, positive = (shuffled[logs.trg[shuffled] == label] for label in (0, 1))
    negative = negative[: max(num_examples // 2, num_examples - len(positive))]
    positive = positive[: num_examples - len(negative)]
    return [*map(int, np.sort(negative)), *map(int, np.sort(positive))]


def examples_at(logs: Logs, split: str, positions: Sequence[int]) -> list[int]:
    """The numbers in ``logs`` of the examples at ``positions`` (from 0) of ``split``.

    Raises InputError for a position that the split does not have.
    """
    examples = logs.examples(split)
    for position in positions:
        if not 0 <= position < len(examples):
            raise InputError(
                f"the {split} split of the logs of {logs.dataset} has no example {position}: "
                f"its {len(examples)} examples are numbered from 0"
            )
    return [examples[position] for position in positions]


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
    """The html of a page with sentences as coloured tokens; the same arguments give the same bytes.

    Args:
        logs: logs of a classification dataset.
        words: (vocab,) the word of each index in ``logs.src``.
        examples: examples of ``logs``, in the order shown.
        beta_sign: (scores,) +1 or -1, which makes β a vote for the correct label.
        perf: key of the accuracy in ``logs.metas`` shown next to the iteration, a fraction; left
            out if it was not dumped.
        perf_label: label of ``perf``.
        label_names: names of labels 0 and 1.
        marked: (scores,) bool, tokens to underline (the evidence in a generated dataset).

    Raises:
        InputError: if a run or a common iteration is missing, a word index is outside ``words``, or
            a score is not finite.
    """
    _check_ids(logs, [logs.src[example] for example in examples], "word", len(words))

    def describe(example: int, alpha: np.ndarray, beta: np.ndarray, marks: np.ndarray) -> dict:
        return {
            "label": label_names[int(logs.trg[example])],
            "tokens": _tokens(logs.src[example], words, marks, alpha, beta),
        }

    return _page(
        "tokens.html", logs, examples, describe, perf, marked, beta_sign=beta_sign,
        perf_label=perf_label, percent=False, unit="%",
    )  # fmt: skip


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
    """The html of a page with the matrices α and β^uf of sentence pairs; reproducible bytes.

    Both are (trg_len - 1, src_len): a row per target piece after <s>, a column per source piece. A
    cell is coloured by its fraction of the highest in its row: α / max α, and p / max p with
    p = exp(β^uf), the probability of the target piece if all attention is on the source piece.

    Args:
        logs: logs of a translation dataset.
        pieces: (vocab,) the pieces as sentencepiece writes them, "▁" before a word's first.
        examples: examples of ``logs``, in the order shown.
        perf: key of the performance in ``logs.metas`` shown next to the iteration, out of 100; left
            out if it was not dumped.
        perf_label: label of ``perf``.
        unit: unit after its numbers; "" for BLEU.
        marked: (scores,) bool, cells to outline (the true word alignment, where it is known).

    Raises:
        InputError: if a run or a common iteration is missing, a piece is outside ``pieces``, or a
            score is not finite.
    """
    sides = [side[example] for side in (logs.src, logs.trg) for example in examples]
    _check_ids(logs, sides, "piece", len(pieces))

    def describe(example: int, alpha: np.ndarray, beta: np.ndarray, marks: np.ndarray) -> dict:
        src, trg = logs.src[example], logs.trg[example]
        alpha, beta, marks = (x.reshape(len(trg) - 1, len(src)) for x in (alpha, beta, marks))
        highest = alpha.max(axis=1, keepdims=True)
        fractions = {
            "alpha": alpha / np.where(highest > 0, highest, 1),
            "beta": np.exp(beta - beta.max(axis=1, keepdims=True)),
        }
        return {
            "src": [_piece(index, pieces) for index in src],
            "trg": [_piece(index, pieces) for index in trg[1:]],
            "texts": [_sentence(ids, pieces) for ids in (src, trg)],
            "matrices": {kind: _cells(of_kind, marks) for kind, of_kind in fractions.items()},
        }

    # Six digits: an untrained model's β differ in the fourth, and the highest one is marked.
    return _page(
        "matrices.html", logs, examples, describe, perf, marked, digits=6,
        perf_label=perf_label, percent=True, unit=unit,
    )  # fmt: skip


def _page(
    template: str,
    logs: Logs,
    examples: Sequence[int],
    describe: Callable[..., dict],
    perf: str,
    marked: np.ndarray | None,
    beta_sign: np.ndarray | None = None,
    digits: int = 4,
    **context,
) -> str:
    """A page with α of the gold run and β of the uniform run at their common checkpoints.

    ``describe(example, alpha, beta, marks)`` gives what the template shows of an example; its
    scores are those of the last checkpoint, for readers without JavaScript.
    """
    iterations = _common_iterations(logs)
    articles, scores = [], []
    for example in examples:
        first, stop = np.searchsorted(logs.row_example, [example, example + 1])
        own = slice(logs.row_offsets[first], logs.row_offsets[stop])
        sign = 1 if beta_sign is None else beta_sign[own]
        alpha = [_rounded(logs.arrays[GOLD, t, "alpha"][own], digits) for t in iterations]
        beta = [_rounded(logs.arrays[UNIFORM, t, "beta"][own] * sign, digits) for t in iterations]
        scores.append({"alpha": alpha, "beta": beta})
        marks = np.zeros(len(alpha[-1]), dtype=bool) if marked is None else marked[own]
        split = "val" if example < logs.splits["val"] else "train"
        articles.append(
            {
                "split": split,
                "place": example - logs.examples(split).start,
                **describe(example, np.array(alpha[-1]), np.array(beta[-1]), marks),
            }
        )
    perfs = {run: [logs.metas.get((run, t, perf)) for t in iterations] for run in (GOLD, UNIFORM)}
    return render(
        template,
        dataset=logs.dataset,
        examples=articles,
        iterations=iterations,
        has_marks=marked is not None,
        numbers={"iterations": iterations, "perfs": perfs, "scores": scores},
        **context,
    )


def _common_iterations(logs: Logs) -> list[int]:
    """The checkpoints that both runs have, ascending."""
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


def _check_ids(logs: Logs, sentences: list[np.ndarray], kind: str, vocab: int) -> None:
    highest = max((int(ids.max()) for ids in sentences), default=0)
    if highest >= vocab:
        raise InputError(
            f"the logs of {logs.dataset} use the {kind} index {highest}, but its vocabulary has "
            f"{vocab} {kind}s: the logs do not match the current data; run eval_dump.py again"
        )


def _rounded(scores: np.ndarray, digits: int) -> list[float]:
    """Scores with ``digits`` significant digits; InputError if one is not finite.

    JSON has no numbers for scores that are not finite.
    """
    if not np.isfinite(scores).all():
        raise InputError(
            "the logs hold scores that are not finite: a training run diverged; train it again and "
            "dump again"
        )
    return [float(f"{score:.{digits}g}") for score in scores]


def _tokens(ids: np.ndarray, words: Sequence[str], marks: np.ndarray, alpha, beta) -> list[dict]:
    """The tokens of one example, coloured by one checkpoint."""
    highest = max(alpha) or 1.0
    strongest = max(map(abs, beta)) or 1.0
    return [
        {
            "word": words[index],
            "special": int(index) < 4,
            "marked": bool(mark),
            "alpha": round(float(a / highest), 3),
            "up": round(float(max(b, 0) / strongest), 3),
            "down": round(float(max(-b, 0) / strongest), 3),
        }
        for index, mark, a, b in zip(ids, marks, alpha, beta, strict=True)
    ]


def _cells(fractions: np.ndarray, marks: np.ndarray) -> list[list[dict]]:
    """A matrix, coloured by one checkpoint."""
    highest = fractions.argmax(axis=1)
    return [
        [
            {"share": round(float(value), 3), "top": column == top, "marked": bool(mark)}
            for column, (value, mark) in enumerate(zip(row, row_marks, strict=True))
        ]
        for row, row_marks, top in zip(fractions, marks, highest, strict=True)
    ]


def _piece(index: int, pieces: Sequence[str]) -> dict:
    """A piece to read: without the sign of a word's first piece, "·" before a later one, "␣"."""
    piece = pieces[index]
    if piece.startswith("▁"):
        text = piece[1:] or "␣"
    else:  # punctuation and the names of special pieces need no sign
        text = f"·{piece}" if piece[:1].isalnum() else piece
    return {"text": text, "special": int(index) < 4}


def _sentence(ids: np.ndarray, pieces: Sequence[str]) -> str:
    """The text between <s> and </s>."""
    return "".join(pieces[index] for index in ids[1:-1]).replace("▁", " ").strip()

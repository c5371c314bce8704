"""Pages that show attention on single examples, checkpoint by checkpoint: α next to β^uf.

In classification a sentence is a line of colored tokens, in translation a pair is two matrices. A
page is one html file without network or libraries: the numbers are in it as JSON, the words as
escaped text. It shows on single examples what the statistics say on average: whether the attention
of a normal run moves to the words whose β^uf was high first.
"""

from collections.abc import Sequence

import numpy as np

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError
from attention_dynamics.names import GOLD, UNIFORM
from attention_dynamics.reporting.templating import render

# Numbers of tokens of an example that is chosen by itself; of a pair on either side, so that its
# matrices fit on a screen.
SHORTEST, LONGEST, LONGEST_OF_PAIR = 5, 60, 20


def choose_examples(logs: Logs, split: str, num_examples: int, seed: int = 0) -> list[int]:
    """At most ``num_examples`` examples, drawn at random; those of moderate length go first.

    Half of them have each label, if examples have one and there are enough; label 0 comes first.
    """
    is_pair = isinstance(logs.trg, Ragged)
    longest = LONGEST_OF_PAIR if is_pair else LONGEST
    examples = np.array(logs.examples(split), dtype=np.int64)
    shuffled = np.random.default_rng(seed).permutation(examples)
    lengths = np.array([side.lengths[shuffled] for side in (logs.src, logs.trg)[: 1 + is_pair]])
    distance = np.maximum(SHORTEST - lengths, lengths - longest).max(axis=0).clip(0)
    shuffled = shuffled[np.argsort(distance, kind="stable")]
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
    if missing := {*positions} - {*range(len(examples))}:
        raise InputError(
            f"the {split} split of the logs of {logs.dataset} has no example {min(missing)}: "
            f"its {len(examples)} examples are numbered from 0"
        )
    return [examples[position] for position in positions]


def attention_page(
    logs: Logs,
    words: Sequence[str],
    examples: Sequence[int],
    beta_sign: np.ndarray | None = None,
    *,
    perf: str = "",
    perf_label: str = "",
    unit: str = "%",
    label_names: Sequence[str] = ("label 0", "label 1"),
    marked: np.ndarray | None = None,
) -> str:
    """The html of a page with α of the gold run and β of the uniform run; reproducible bytes.

    It shows the checkpoints that both runs have. A cell of the matrices of a pair, (trg_len - 1,
    src_len), is colored by its fraction of the highest in its row: α / max α, and p / max p with
    p = exp(β^uf), the probability of the target piece if all attention is on the source piece.

    Args:
        logs: logs of a dataset of classification or translation.
        words: (vocab,) the word of each index, or the piece as sentencepiece writes it.
        examples: examples of ``logs``, in the order shown.
        beta_sign: (scores,) +1 or -1, which makes β a vote for the correct label.
        perf, perf_label: the performance in ``logs.metas`` shown next to the iteration.
        unit: unit of a performance out of 100; "" for BLEU.
        label_names: names of labels 0 and 1.
        marked: (scores,) bool, scores to mark: planted evidence, or the true word alignment.

    Raises InputError if the runs have no common iteration or a word is not in ``words``.
    """
    is_pair = isinstance(logs.trg, Ragged)
    iterations = sorted(set(logs.iterations(GOLD)) & set(logs.iterations(UNIFORM)))
    if not iterations:
        raise InputError(
            f"the logs of {logs.dataset} hold no iteration that both {GOLD} and {UNIFORM} have"
        )
    if max(side.values.max() for side in (logs.src, logs.trg)[: 1 + is_pair]) >= len(words):
        raise InputError(
            f"the logs of {logs.dataset} use a word that its vocabulary of {len(words)} lacks: "
            "the logs do not match the current data; run eval_dump.py again"
        )
    # Six digits: an untrained translator's β differ in the fourth, and the highest is marked.
    digits = 6 if is_pair else 4
    articles, scores = [], []
    for example in examples:
        first, stop = np.searchsorted(logs.row_example, [example, example + 1])
        own = slice(logs.row_offsets[first], logs.row_offsets[stop])
        sign = 1 if beta_sign is None else beta_sign[own]
        alpha = [logs.arrays[GOLD, t, "alpha"][own] for t in iterations]
        beta = [logs.arrays[UNIFORM, t, "beta"][own] * sign for t in iterations]
        scores.append({"alpha": _rounded(alpha, digits), "beta": _rounded(beta, digits)})
        marks = np.zeros(len(alpha[0]), dtype=bool) if marked is None else marked[own]
        split = "val" if example < logs.splits["val"] else "train"
        article = {"split": split, "place": example - logs.examples(split).start}
        src = [words[index] for index in logs.src[example]]
        if is_pair:
            trg = [words[index] for index in logs.trg[example]]
            article |= {
                "src": [*map(_readable, src)],
                "trg": [*map(_readable, trg[1:])],
                "texts": ["".join(side[1:-1]).replace("▁", " ").strip() for side in (src, trg)],
                "marks": marks.reshape(len(trg) - 1, len(src)).tolist(),
            }
        else:
            is_special = (logs.src[example] < 4).tolist()
            article["label"] = label_names[int(logs.trg[example])]
            article["tokens"] = [*zip(src, is_special, marks.tolist(), strict=True)]
        articles.append(article)
    perfs = {run: [logs.metas.get((run, t, perf)) for t in iterations] for run in (GOLD, UNIFORM)}
    return render(
        "matrices.html" if is_pair else "tokens.html",
        dataset=logs.dataset,
        examples=articles,
        iterations=iterations,
        has_marks=marked is not None,
        numbers={"iterations": iterations, "perfs": perfs, "scores": scores},
        perf_label=perf_label,
        percent=is_pair,
        unit=unit,
    )


def _rounded(rows: list[np.ndarray], digits: int) -> list[list[float]]:
    return [[float(f"{score:.{digits}g}") for score in row] for row in rows]


def _readable(piece: str) -> str:
    """A piece without the sign of a word's first piece, "·" before a later one, "␣"."""
    if piece.startswith("▁"):
        return piece[1:] or "␣"
    # Punctuation and the names of special pieces need no sign.
    return f"·{piece}" if piece[:1].isalnum() else piece

"""The one registry of what the experiments share: runs, metrics, levels, performances, seeds.

A new baseline or metric is one entry here, beside the function that computes it.
"""

from typing import NamedTuple

GOLD, UNIFORM = "normal_A", "uniform"

# The paper's seeds take the paper's names; others follow in ascending order.
PAPER_SEEDS = (20, 13, 14, 15, 16, 17)
PAPER_UNIFORM_SEED = 12

# Agreement metric -> its name in file names. Its functions are in analysis/agreement.py.
SHORT = {"top 5% match": "top5", "kendall tau": "tau"}
METRICS = tuple(SHORT)


class Level(NamedTuple):
    """An agreement ``agr_{key}`` that the attention of normal runs is compared with.

    Attributes:
        formula: in LaTeX, for figures.
        symbol: the same in plain text, for tables.
        label: in words.
        color: of its line; after Okabe and Ito, distinct for color-blind readers.
        dashes: of its line, for matplotlib; distinct in print without color.
    """

    formula: str
    symbol: str
    label: str
    color: str
    dashes: tuple[int, ...]


# In the paper's order.
LEVELS = {
    "unif": Level(
        r"A(\alpha_A, \beta^{uf})", "A(α, β^uf)", "KTIW of the uniform run", "#D55E00", ()
    ),
    "px": Level(
        r"A(\beta^{px}, \beta^{uf})", "A(β^px, β^uf)", "bag of embeddings", "#009E73", (4, 2)
    ),
    "ibm1": Level(
        r"A(\beta^{ibm1}, \beta^{uf})", "A(β^ibm1, β^uf)", "IBM Model 1", "#882255",
        (4, 1, 1, 1, 1, 1),
    ),
    "logistic": Level(
        r"A(\beta^{lr}, \beta^{uf})", "A(β^lr, β^uf)", "logistic regression", "#B0589A",
        (4, 2, 1, 2),
    ),
    "grad": Level(
        r"A(\Delta_A, \beta^{uf})", "A(Δ, β^uf)", "gradient influence", "#B8860B", (7, 2)
    ),
    "normal": Level(
        r"A(\alpha_A, \beta_B)", "A(α, β)", "KTIW of a normal run", "#56B4E9", (1, 1)
    ),
}  # fmt: skip


class Performance(NamedTuple):
    """A measure of performance in the logs of an experiment.

    Attributes:
        label: in words.
        unit: printed after a number out of 100.
        splits: split of the logs -> (its key in ``metas``, label on that split).
    """

    label: str
    unit: str
    splits: dict[str, tuple[str, str]]


# Experiment -> kind -> performance.
PERFORMANCES = {
    "classification": {
        "acc": Performance("accuracy", "%", {
            "val": ("test_acc", "test accuracy"), "train": ("train_acc", "training accuracy"),
        }),
    },
    "translation": {
        "acc": Performance("token accuracy", "%", {
            "val": ("val_acc", "validation token accuracy"),
            "train": ("train_acc", "training token accuracy"),
        }),
        "bleu": Performance("BLEU", "", {
            "val": ("val_bleu", "BLEU"), "train": ("train_bleu", "BLEU on training pairs"),
        }),
    },
}  # fmt: skip

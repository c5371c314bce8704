"""The names that the experiments share: runs, metrics, seeds of the paper."""

METRICS = ("top 5% match", "kendall tau")

GOLD, UNIFORM = "normal_A", "uniform"

# The paper's seeds take the paper's names; others follow, rising.
PAPER_SEEDS = (20, 13, 14, 15, 16, 17)
PAPER_UNIFORM_SEED = 12

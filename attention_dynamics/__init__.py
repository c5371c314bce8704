"""What the experiments of both papers share: agreement, logs, checkpoints, recurrence, figures."""

__version__ = "0.1.0"

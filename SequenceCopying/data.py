"""The sequences to copy; each batch is drawn fresh (docs/method.md, section 4.1)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from attention_dynamics.cli import InputError

# Purposes of a generator: training and evaluation never share one, so evaluating more or less
# often changes no weight.
TRAINING, EVALUATION = range(2)


class Task(NamedTuple):
    """A copying task; the number of tokens includes neither the end nor the start marker."""

    seq_length: int
    num_vocab: int  # number of tokens to draw from
    no_rep: bool  # whether the tokens of a sequence are distinct

    @property
    def vocab(self) -> int:
        """The number of all tokens, the end and start markers included."""
        return self.num_vocab + 2


class Batch(NamedTuple):
    """Sequences of one length: src_len = trg_len = seq_length + 1; each is (length, batch)."""

    src: torch.Tensor  # x + [eos]
    inputs: torch.Tensor  # [sos] + x, the inputs of the decoder
    targets: torch.Tensor  # x + [eos], the outputs to learn

    def to(self, device: torch.device) -> "Batch":
        """The batch on another device."""
        return Batch(*(part.to(device) for part in self))


def check_task(task: Task) -> None:
    """Raise InputError if there are not enough tokens to draw without repetition."""
    if task.no_rep and task.seq_length > task.num_vocab:
        raise InputError(
            f"--num_vocab: too small for --no_rep, which draws distinct tokens (expected at least "
            f"{task.seq_length}, the --seq_length, got {task.num_vocab}); give a larger --num_vocab"
        )


def sequences(task: Task, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` sequences x of ``task``, (size, seq_length), each equally likely."""
    if not task.no_rep:
        return rng.integers(task.num_vocab, size=(size, task.seq_length))
    ordered = np.tile(np.arange(task.num_vocab), (size, 1))
    return rng.permuted(ordered, axis=1)[:, : task.seq_length]


def as_batch(task: Task, rows: np.ndarray) -> Batch:
    """Sequences (batch, seq_length) as a batch for the model."""
    x = torch.from_numpy(np.ascontiguousarray(rows.T))  # (seq_length, batch)
    eos, sos = (torch.full((1, x.shape[1]), task.num_vocab + more) for more in (0, 1))
    src = torch.cat([x, eos])
    return Batch(src, torch.cat([sos, x]), src)


def batches(task: Task, size: int, seed: int, purpose: int) -> Iterator[Batch]:
    """An endless stream of batches of ``size`` fresh sequences, fixed by ``seed`` and
    ``purpose``."""
    rng = np.random.default_rng([seed, purpose])
    while True:
        yield as_batch(task, sequences(task, size, rng))


def stacked(batches_of_seeds: Iterable[Batch]) -> Batch:
    """One batch per seed as one batch with tensors (seed, len, batch)."""
    return Batch(*(torch.stack(parts) for parts in zip(*batches_of_seeds, strict=True)))

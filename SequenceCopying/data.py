"""The sequences to copy, drawn afresh for each batch (A.3)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from attention_dynamics.cli import InputError

# What a generator is for: training and evaluation never share one, so that evaluating more or
# less often changes no weight.
TRAINING, EVALUATION = range(2)


class Task(NamedTuple):
    """What is to be copied.

    Attributes:
        seq_length: tokens of a sequence, the end not counted.
        num_vocab: tokens that it is drawn from; two more mark its end and its start.
        no_rep: whether no token occurs twice in it.
    """

    seq_length: int
    num_vocab: int
    no_rep: bool

    @property
    def eos(self) -> int:
        """The token at the end of source and target."""
        return self.num_vocab

    @property
    def sos(self) -> int:
        """The token that the decoder starts from."""
        return self.num_vocab + 1

    @property
    def vocab(self) -> int:
        """All tokens, with those that mark end and start."""
        return self.num_vocab + 2


class Batch(NamedTuple):
    """Sequences, all of one length: src_len = trg_len = seq_length + 1.

    Attributes:
        src: x + [eos], (src_len, batch).
        inputs: [sos] + x, (trg_len, batch), what the decoder reads.
        targets: x + [eos], (trg_len, batch), what it is to say.
    """

    src: torch.Tensor
    inputs: torch.Tensor
    targets: torch.Tensor

    def to(self, device: torch.device) -> "Batch":
        """The batch on another device."""
        return Batch(*(part.to(device) for part in self))


def check_task(task: Task) -> None:
    """InputError when there are not enough tokens to draw without repetition."""
    if task.no_rep and task.seq_length > task.num_vocab:
        raise InputError(
            f"--no_rep draws each token once at most, so that --seq_length {task.seq_length} needs "
            f"--num_vocab {task.seq_length} at least, not {task.num_vocab}"
        )


def sequences(task: Task, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` sequences x of ``task``, (size, seq_length), each equally likely."""
    if not task.no_rep:
        return rng.integers(task.num_vocab, size=(size, task.seq_length))
    ordered = np.tile(np.arange(task.num_vocab), (size, 1))
    return rng.permuted(ordered, axis=1)[:, : task.seq_length]


def as_batch(task: Task, rows: np.ndarray) -> Batch:
    """Sequences (batch, seq_length) as the model reads them."""
    x = torch.from_numpy(np.ascontiguousarray(rows.T))  # (seq_length, batch)
    eos, sos = (torch.full((1, x.shape[1]), token) for token in (task.eos, task.sos))
    src = torch.cat([x, eos])
    return Batch(src, torch.cat([sos, x]), src)


def batches(task: Task, size: int, seed: int, purpose: int) -> Iterator[Batch]:
    """Batches of ``size`` fresh sequences without end; ``seed`` and ``purpose`` decide them all."""
    rng = np.random.default_rng([seed, purpose])
    while True:
        yield as_batch(task, sequences(task, size, rng))


def stacked(several: list[Batch]) -> Batch:
    """One batch of each seed as one, its tensors (seed, len, batch)."""
    return Batch(*(torch.stack(parts) for parts in zip(*several, strict=True)))

"""Interrupted training resumes to the same bytes: when a state is saved, and what is in it.

The resume state holds the model, the optimizer, the number of updates and the RNG state. The order
of the data is a function of seed and step, so it is drawn again.
"""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from torch import nn

from attention_dynamics.cli import RunError, Terminated
from attention_dynamics.device import rng_state, set_rng_state
from attention_dynamics.runs.checkpoints import save_checkpoint
from attention_dynamics.runs.outputs import load_state, save_state

# Writing states may take this fraction of the time of a run: a slow disk gets fewer states.
_FRACTION = 0.02


@contextlib.contextmanager
def signals_to(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Within the block SIGINT and SIGTERM, unless they are ignored, call ``handler``."""
    earlier = {
        number: signal.signal(number, handler)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, before in earlier.items():
            signal.signal(number, before)


def end_on(number: int) -> NoReturn:
    """End on the signal ``number``: raise Terminated on SIGTERM, else KeyboardInterrupt."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


class Training:
    """Updates of a model that can be interrupted at any time and resumed by another process::

        with Training(path, settings, model, optimizer, every) as training:
            for step in range(training.step, steps):
                with training.update():
                    loss = training.check_finite(loss_of(model, batch), examples)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

    On SIGINT and SIGTERM the current update is finished and the state is saved. A second SIGTERM is
    ignored, since SLURM sends two; a second Ctrl-C ends the run at once. A loss or weights that are
    not finite end the run with a RunError and replace no earlier state.

    Attributes:
        step: updates made, including those of earlier processes.
        notes: data of the caller (plain containers, numbers, tensors) saved with the state; change
            it by one assignment or one append, so that no signal finds it half changed.
    """

    def __init__(
        self,
        path: Path | None,
        settings: dict,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        every: int,
        notes: dict | None = None,
    ):
        """``settings`` determine the weights: a state at ``path`` with different ones is rejected.

        A state is saved ``every`` so many steps (fewer if writing them takes too long), and none if
        ``path`` is None. ``notes`` are the initial value.
        """
        self.path, self.settings, self.every = path, settings, every
        self.model, self.optimizer = model, optimizer
        self.step, self.notes = 0, notes or {}
        self.checkpoint: str | None = None  # the last one that was written
        self._losses: list[tuple] = []  # (step, loss, examples), not checked yet
        self._examples = None
        self._saved_step: int | None = None
        self._next_time = 0.0
        self._updating = self._stopping = False
        self._signal: int | None = None

    def __enter__(self) -> "Training":
        if self.path is not None and (state := load_state(self.path, self.settings)) is not None:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            set_rng_state(state["generators"])
            self.step = self._saved_step = state["step"]
            self.notes, self.checkpoint = state["notes"], state["checkpoint"]
            print(f"{self.path}: resuming at step {self.step}", flush=True)
        self._signals = contextlib.ExitStack()
        self._signals.enter_context(signals_to(self._stop))
        return self

    def __exit__(self, kind, error, traceback) -> None:
        try:
            stopped = kind is not None and issubclass(kind, (KeyboardInterrupt, Terminated))
            if stopped and not self._updating and self._saved_step != self.step:
                self.write()
            if stopped and self._saved_step is not None:
                print(
                    f"{self.path}: interrupted; state saved at step {self._saved_step}", flush=True
                )
        finally:
            self._signals.close()

    def _stop(self, number: int, frame) -> None:
        if self._stopping and number == signal.SIGTERM:
            return
        first, self._stopping = not self._stopping, True
        if first and self._updating:
            self._signal = number  # the update is finished first
            return
        end_on(number)

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """The block is one update: forward, backward, step."""
        self._updating = True
        yield
        self.step += 1
        self._updating = False
        if self._signal is not None:
            end_on(self._signal)
        if self.step % self.every == 0:
            self._check_losses()
            if time.perf_counter() >= self._next_time:
                self.write()

    def check_finite(self, loss: torch.Tensor, examples: np.ndarray | None = None) -> torch.Tensor:
        """Return ``loss`` (); RunError, which names ``examples``, if it is not finite.

        On a GPU the check waits for the next state or checkpoint, so that no step is synchronized.
        """
        self._examples = examples
        self._losses.append((self.step, loss.detach(), examples))
        if loss.device.type == "cpu":
            self._check_losses()
        return loss

    def save_checkpoint(self, path: Path) -> None:
        """Write a checkpoint of the model; RunError if a loss or weight is not finite."""
        self._check_weights()
        save_checkpoint(path, self.model)
        self.checkpoint = str(path)

    def _check_losses(self) -> None:
        losses, self._losses = self._losses, []
        for step, loss, examples in losses:
            if not math.isfinite(value := float(loss)):
                raise self._diverged(f"the loss of step {step} is {value}", examples)

    def _check_weights(self) -> None:
        self._check_losses()
        if not all(bool(weights.isfinite().all()) for weights in self.model.state_dict().values()):
            what = f"the weights are not finite after the update of step {self.step - 1}"
            raise self._diverged(what, self._examples)

    def _diverged(self, what: str, examples: np.ndarray | None) -> RunError:
        if examples is not None:
            what += f" (training examples {', '.join(map(str, examples))})"
        last = f"the last good checkpoint is {self.checkpoint}"
        if self.checkpoint is None:
            last = "no checkpoint has been written"
        return RunError(f"{what}: training has diverged; {last}")

    def write(self) -> None:
        """Write the state, if it has a path; RunError if a loss or weight is not finite."""
        if self.path is None:
            return
        self._check_weights()
        begun = time.perf_counter()
        state = {
            "step": self.step,
            "notes": self.notes,
            "checkpoint": self.checkpoint,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generators": rng_state(),
        }
        save_state(self.path, self.settings, state)
        ended = time.perf_counter()
        self._saved_step = self.step
        self._next_time = ended + (ended - begun) / _FRACTION

"""Training that can be interrupted at any time and resumes to the same bytes.

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

from attention_dynamics.cli import InputError, RunError, Terminated
from attention_dynamics.device import generator_states, set_generator_states
from attention_dynamics.runs.checkpoints import save_checkpoint
from attention_dynamics.runs.outputs import keep, kept

# Writing states may take this share of a run's time: on a slow disk they are written less often.
_SHARE = 0.02


@contextlib.contextmanager
def signals_to(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Within the block SIGINT and SIGTERM, unless they are ignored, call ``handler``."""
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    earlier = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in earlier.items():
            signal.signal(number, before)


def end_on(number: int) -> NoReturn:
    """End on the signal ``number``: raise Terminated on SIGTERM, else KeyboardInterrupt."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


class Training:
    """Updates of a model that can be stopped at any time, and go on in another process::

        with Training(path, settings, model, optimizer, every) as training:
            for step in range(training.step, steps):
                with training.update():
                    loss = training.watched(loss_of(model, batch), examples)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

    On SIGINT and SIGTERM the current update is finished and the state is saved. A second SIGTERM is
    ignored, since SLURM sends two; a second Ctrl-C ends the run at once. A loss or weights that are
    not finite end the run with a RunError and replace no earlier state.

    Attributes:
        step: updates made, those of earlier processes included.
        notes: what the caller has noted of the run (plain containers, numbers, tensors); it is part
            of the state, so that a change of it must be one assignment or one append.
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
        """Nothing is read or changed before ``with``.

        Args:
            path: where the state is kept; None for no state.
            settings: what decides the weights; a state of other settings is refused.
            model, optimizer: what is trained, on their device.
            every: steps between states, when time allows.
            notes: at the start of the run.
        """
        self.path, self.settings, self.every = path, settings, every
        self.model, self.optimizer = model, optimizer
        self.step, self.notes = 0, notes or {}
        self.checkpoint: str | None = None  # the last one that was written
        self._losses: list[tuple] = []  # (step, loss, examples), not looked at yet
        self._examples = None
        self._kept_step: int | None = None
        self._next_time = 0.0
        self._updating = self._stopping = False
        self._signal: int | None = None

    def __enter__(self) -> "Training":
        if self.path is not None and (state := kept(self.path, self.settings)) is not None:
            self._restore(state)
            print(f"{self.path}: goes on after {self.step} steps", flush=True)
        self._signals = contextlib.ExitStack()
        self._signals.enter_context(signals_to(self._stop))
        return self

    def __exit__(self, kind, error, traceback) -> None:
        try:
            stopped = kind is not None and issubclass(kind, (KeyboardInterrupt, Terminated))
            if stopped and not self._updating and self._kept_step != self.step:
                self.write()
            if stopped and self._kept_step is not None:
                print(f"{self.path}: kept after {self._kept_step} steps, to go on", flush=True)
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

    def watched(self, loss: torch.Tensor, examples: np.ndarray | None = None) -> torch.Tensor:
        """``loss`` (), which must be finite: looked at now on the CPU, else before the next state.

        Args:
            loss: of the batch; or anything that is not finite when the loss is not.
            examples: numbers of the examples in the batch, to be named.
        """
        self._examples = examples
        self._losses.append((self.step, loss.detach(), examples))
        if loss.device.type == "cpu":
            self._check_losses()
        return loss

    def save_checkpoint(self, path: Path) -> None:
        """Write a checkpoint of the model, unless it is not finite."""
        self._check_losses()
        self._check_weights()
        save_checkpoint(path, self.model)
        self.checkpoint = str(path)

    def _check_losses(self) -> None:
        losses, self._losses = self._losses, []
        for step, loss, examples in losses:
            if not math.isfinite(value := float(loss)):
                raise self._diverged(f"the loss of step {step} is {value}", examples)

    def _check_weights(self) -> None:
        # A finite sum has finite terms, and is ten times as fast as inspecting each. The converse
        # does not hold: a sum of large float32 weights overflows.
        weights = (w for w in self.model.state_dict().values() if w.is_floating_point())
        if not all(bool(w.sum().isfinite() or w.isfinite().all()) for w in weights):
            raise self._diverged(
                f"the weights are not finite after the update of step {self.step - 1}",
                self._examples,
            )

    def _diverged(self, what: str, examples: np.ndarray | None) -> RunError:
        of = ""
        if examples is not None:
            of = f" (training examples {', '.join(map(str, examples))})"
        last = "no checkpoint has been written"
        if self.checkpoint is not None:
            last = f"the last good checkpoint is {self.checkpoint}"
        return RunError(f"{what}{of}: training has diverged; {last}")

    def write(self) -> None:
        """Write the state, if it has a path, unless it is not finite."""
        if self.path is None:
            return
        self._check_losses()
        self._check_weights()
        begun = time.perf_counter()
        state = {
            "step": self.step,
            "notes": self.notes,
            "checkpoint": self.checkpoint,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generators": generator_states(),
        }
        keep(self.path, self.settings, state)
        ended = time.perf_counter()
        self._kept_step = self.step
        self._next_time = ended + (ended - begun) / _SHARE

    def _restore(self, state: dict) -> None:
        try:
            self.model.load_state_dict(state["model"])
            # Learning rate and the like are those of this process; the settings hold them.
            groups = self.optimizer.state_dict()["param_groups"]
            moments = state["optimizer"]["state"]
            self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
            set_generator_states(state["generators"])
            self.step, self.notes = state["step"], state["notes"]
            self.checkpoint = state["checkpoint"]
            whole = type(self.step) is int and self.step >= 0 and isinstance(self.notes, dict)
            if not whole or not isinstance(self.checkpoint, str | None):
                raise ValueError("not what write() has written")
        except (
            KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError,
            OverflowError,
        ):  # fmt: skip
            raise InputError(
                f"{self.path} does not fit the model and the optimiser: remove it, and the run "
                "starts over"
            ) from None
        self._kept_step = self.step

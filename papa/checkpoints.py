"""Checkpoints of the Trainer, and going on from them as if the run had never been stopped."""

import contextlib
import shutil
from pathlib import Path

from arguments import TrainerArguments
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import TrainOutput

from attention_dynamics.cli import InputError
from attention_dynamics.runs.training import end_on, signals_to
from attention_dynamics.storage.files import read_json, sha256, write_json

# Of the files of a checkpoint; written last, so that a checkpoint without it is not complete.
CHECKSUMS = "checksums.json"


class CheckpointCallback(TrainerCallback):
    """Checkpoints from which a run goes on as if it had never been stopped.

    On SIGINT and SIGTERM the step under way is finished and a checkpoint written before the end; a
    second signal ends the run at once. A checkpoint of the last step of an epoch is written after
    the evaluation of the epoch, not before: a run that goes on from it would leave that out.
    """

    def __init__(self):
        self._signal: int | None = None
        self._waits = False

    def ask(self, number: int, frame: object) -> None:
        """The handler of the signals, as long as the Trainer trains."""
        if self._signal is not None:
            end_on(number)
        self._signal = number

    def on_step_end(self, args, state, control, **kwargs) -> None:
        """Called by the Trainer after an update."""
        wanted = control.should_save or self._signal is not None
        ends = state.epoch.is_integer() or state.global_step == state.max_steps
        self._waits = wanted and ends
        control.should_save = wanted and not self._waits

    def on_epoch_end(self, args, state, control, **kwargs) -> None:
        """Called by the Trainer before it evaluates and saves."""
        control.should_save = control.should_save or self._waits
        self._waits = False

    def on_evaluate(self, args, state, control, **kwargs) -> None:
        """Called by the Trainer after an evaluation, which may take longer than many steps."""
        control.should_save = control.should_save or self._signal is not None

    def on_save(self, args, state, control, **kwargs) -> None:
        """Called by the Trainer after it has written a checkpoint: it is complete."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_json(folder / CHECKSUMS, checksums_of(folder))
        self.end()

    def end(self) -> None:
        """End the run, if a signal has come."""
        if self._signal is not None:
            end_on(self._signal)


def train(trainer: Trainer) -> TrainOutput:
    """Train, from the checkpoint that :func:`checkpoint_to_resume` finds or from the start.

    Of several processes each gets the signal at a step of its own: there it ends the run at once.
    """
    checkpoint = checkpoint_to_resume(trainer.args)
    checkpoints = CheckpointCallback()
    trainer.add_callback(checkpoints)
    several = trainer.args.world_size > 1
    with contextlib.nullcontext() if several else signals_to(checkpoints.ask):
        result = trainer.train(resume_from_checkpoint=checkpoint)
        checkpoints.end()
    if checkpoint is not None:
        # The library's mean loss leaves out the steps before the checkpoint.
        for logged in (result.metrics, *trainer.state.log_history):
            logged.pop("train_loss", None)
    return result


def checkpoint_of(folder: Path) -> Path | None:
    """The last complete checkpoint in a folder; None when there is none."""
    complete = {
        int(number): path.parent
        for path in folder.glob(f"checkpoint-*/{CHECKSUMS}")
        if (number := path.parent.name.removeprefix("checkpoint-")).isdecimal()
    }
    return complete[max(complete)] if complete else None


def checkpoint_to_resume(args: TrainerArguments) -> str | None:
    """The checkpoint that --resume_from_checkpoint names, or the last one in --output_dir.

    A path or ``true``, the last one, which an unfinished run goes on from by itself; ``false``
    begins anew. Raises InputError when it is not there, not complete, or damaged.
    """
    wanted = str(args.resume_from_checkpoint or "true")
    if wanted.lower() == "false":
        return None
    path = checkpoint_of(Path(args.output_dir)) if wanted.lower() == "true" else Path(wanted)
    if path is None:
        return None
    if not (path / CHECKSUMS).is_file():
        raise InputError(
            f"--resume_from_checkpoint {path} is no complete checkpoint: it has no {CHECKSUMS}"
        )
    if read_json(path / CHECKSUMS, "list of checksums") != checksums_of(path):
        raise InputError(
            f"checkpoint {path} is damaged: remove it, and the run goes on from an earlier one, or "
            "starts over"
        )
    return str(path)


def checksums_of(checkpoint: Path) -> dict[str, str]:
    """File name -> SHA-256 of the files of a checkpoint that every process shares."""
    return {
        path.name: sha256(path)
        for path in sorted(checkpoint.iterdir())
        if path.name != CHECKSUMS and not path.name.startswith("rng_state_")
    }


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints that a run has left in its folder."""
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path)

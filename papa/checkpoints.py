"""Checkpoints of the Trainer from which an interrupted run resumes to the same bytes.

Saving and loading are the Trainer's. Own code, since its just-in-time checkpoints wait for three
seconds, ignore Ctrl-C and leave out the evaluation of the epoch, and since its search for the last
checkpoint accepts one that a killed process has half written.
"""

import contextlib
import json
import signal
import zipfile
from pathlib import Path

from arguments import TrainerArguments
from safetensors import SafetensorError, safe_open
from transformers import Trainer, TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import TrainOutput

from attention_dynamics.cli import InputError
from attention_dynamics.runs.training import end_on, signals_to


class CheckpointCallback(TrainerCallback):
    """Save a checkpoint before a signal ends the run, at a moment from which it resumes exactly.

    On SIGINT and SIGTERM the current step is finished and a checkpoint is saved. A second SIGTERM
    is ignored, since SLURM sends two; a second Ctrl-C ends the run at once. The checkpoint of the
    last step of an epoch is saved after the evaluation of the epoch: a run that resumes from an
    earlier one would leave the evaluation out.
    """

    def __init__(self):
        self._signal: int | None = None
        self._delayed = False

    def request_stop(self, number: int, frame: object) -> None:
        """Handle a signal while the Trainer trains."""
        if self._signal is None:
            self._signal = number
        elif number != signal.SIGTERM:
            end_on(number)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        """Request a checkpoint after an update, or delay it to the end of the epoch."""
        wanted = control.should_save or self._signal is not None
        is_last = state.epoch.is_integer() or state.global_step == state.max_steps
        self._delayed = wanted and is_last
        control.should_save = wanted and not is_last

    def on_epoch_end(self, args, state, control, **kwargs) -> None:
        """Request the delayed checkpoint; the Trainer evaluates before it saves."""
        control.should_save = control.should_save or self._delayed
        self._delayed = False

    def on_evaluate(self, args, state, control, **kwargs) -> None:
        """Request a checkpoint after an evaluation, which may take longer than many steps."""
        control.should_save = control.should_save or self._signal is not None

    def on_save(self, args, state, control, **kwargs) -> None:
        """End the run if there was a signal."""
        if self._signal is not None:
            end_on(self._signal)

    on_train_end = on_save


def train(trainer: Trainer) -> TrainOutput:
    """Train, from :func:`checkpoint_to_resume` or from the start.

    Several processes would each get the signal at a different step: there it ends the run at once.
    """
    checkpoint = checkpoint_to_resume(trainer.args)
    callback = CheckpointCallback()
    trainer.add_callback(callback)
    several = trainer.args.world_size > 1
    with contextlib.nullcontext() if several else signals_to(callback.request_stop):
        result = trainer.train(resume_from_checkpoint=checkpoint)
    if checkpoint is not None:
        # The library's mean loss leaves out the steps before the checkpoint.
        for logged in (result.metrics, *trainer.state.log_history):
            logged.pop("train_loss", None)
    return result


def last_checkpoint(folder: Path) -> Path | None:
    """The last complete checkpoint in a directory; None without one."""
    # The Trainer writes its own state last.
    complete = [path.parent for path in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}")]
    return max(complete, key=lambda path: int(path.name.split("-")[1]), default=None)


def checkpoint_to_resume(args: TrainerArguments) -> str | None:
    """The checkpoint to resume from: --resume_from_checkpoint, a path, ``true`` or ``false``.

    ``true``, the default, is the last one in --output_dir; ``false`` starts over. Raises
    InputError when a checkpoint is incomplete or corrupt.
    """
    wanted = str(args.resume_from_checkpoint or "true")
    if wanted.lower() == "false":
        return None
    path = last_checkpoint(Path(args.output_dir)) if wanted.lower() == "true" else Path(wanted)
    if path is None:
        return None
    if not (path / TRAINER_STATE_NAME).is_file():
        raise InputError(
            f"--resume_from_checkpoint {wanted}: not a complete checkpoint (it has no "
            f"{TRAINER_STATE_NAME}); give another, or leave the option out"
        )
    check_files(path)
    return str(path)


def check_files(checkpoint: Path) -> None:
    """Raise InputError, which names the file, for a corrupt or truncated file of a checkpoint."""
    for path in sorted(checkpoint.iterdir()):
        try:
            if path.suffix == ".json":
                json.loads(path.read_bytes())
            elif path.suffix == ".safetensors":
                with safe_open(path, "pt"):
                    pass
            elif path.suffix in (".pt", ".pth") and zipfile.ZipFile(path).testzip():
                raise ValueError("a checksum is wrong")
        except (ValueError, zipfile.BadZipFile, SafetensorError):
            raise InputError(
                f"{path} is corrupt or truncated; delete {checkpoint} to resume from the one before"
            ) from None

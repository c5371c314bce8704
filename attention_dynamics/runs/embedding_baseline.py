"""Train an embedding baseline β^px: a bag of embeddings without order and attention.

The ``embedding_beta.py`` scripts contribute the model and its losses.
"""

import argparse
import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from attention_dynamics.cli import add_options, count, seed
from attention_dynamics.device import add_device_options, set_seed, setup_device
from attention_dynamics.runs.outputs import output
from attention_dynamics.runs.training import Training

# Options that determine how, but not what, is computed.
_HOW = ("overwrite", "device", "threads")

# What a folder builds for its baseline, on a device: the model; training examples -> loss ();
# () -> validation loss.
Baseline = tuple[nn.Module, Callable[[np.ndarray], torch.Tensor], Callable[[], float]]


def add_embedding_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``embedding_beta.py`` has in every folder."""
    add_options(
        parser,
        bsize=(count, 64, "examples in a batch"),
        epochs=(count, 30, "passes over the training set; the paper: 30, in classification 60"),
        embed_dim=(count, 256, "embedding size"),
        seed=(seed, 0, "random seed (initialization and data order)"),
    )
    parser.add_argument("--overwrite", action="store_true", help="retrain from the start")
    add_device_options(parser)


def write_baseline(
    path: Path,
    args: argparse.Namespace,
    checksum: str,
    num_examples: int,
    build: Callable[[torch.device], Baseline],
) -> None:
    """Train a baseline and write the ``beta()`` of its best epoch to ``path``, with a record.

    An output that is up to date is left alone; an interrupted training resumes. ``build`` is called
    after seeding if there is something to do.
    """
    set_seed(args.seed)
    device = setup_device(args.device, args.threads)
    options = {key: value for key, value in vars(args).items() if key not in _HOW}
    settings = {"data": checksum, **options}
    with output(path, settings, args.overwrite) as out:
        if out.is_current:
            print(f"{path} is up to date; --overwrite trains it again")
            return
        baseline = build(device)
        losses = train_baseline(*baseline, num_examples, args, out.state_path, settings)
        beta = baseline[0].beta().cpu().numpy()
        best = int(np.argmin(losses))
        out.write(beta, {"best_epoch": best, "validation_losses": losses})
    print(f"{path}: vocabulary of {len(beta)}, best after epoch {best} of {args.epochs}")


def train_baseline(
    model: nn.Module,
    loss_of: Callable[[np.ndarray], torch.Tensor],
    validation_loss: Callable[[], float],
    num_examples: int,
    args: argparse.Namespace,
    state_path: Path | None = None,
    settings: dict | None = None,
) -> list[float]:
    """Train ``model`` with Adam; it ends as it was after the epoch with the lowest validation loss.

    The untrained model counts as a start; in the published code it never wins. ``args`` has bsize,
    epochs and seed, and may have lr (1e-3); ``settings`` are those of the resume state at
    ``state_path`` (None for none).

    Returns the validation losses after 0, 1, ... epochs. Raises RunError if one is not finite.
    """
    fused = next(model.parameters()).device.type != "mps"
    optimizer = torch.optim.Adam(model.parameters(), lr=getattr(args, "lr", 1e-3), fused=fused)
    rng = np.random.default_rng(args.seed)
    starts = range(0, num_examples, args.bsize)
    notes = {"losses": [validation_loss()], "best": copy.deepcopy(model.state_dict())}
    # Resume states of versions with other gradients (equal up to rounding) are rejected.
    settings = {**(settings or {}), "gradients": "autograd"}
    with Training(state_path, settings, model, optimizer, len(starts), notes) as training:
        for epoch in range(args.epochs):
            order = rng.permutation(num_examples)
            losses, best = training.notes["losses"], training.notes["best"]
            if epoch < len(losses) - 1:
                continue
            rest = starts[training.step - epoch * len(starts) :]
            described = f"epoch {epoch + 1} of {args.epochs}"
            for start in tqdm(rest, described, leave=False, disable=None):
                examples = order[start : start + args.bsize]
                with training.update():
                    loss = training.check_finite(loss_of(examples), examples)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
            loss = validation_loss()
            training.check_finite(torch.tensor(loss))
            if loss < min(losses):
                best = copy.deepcopy(model.state_dict())
            training.notes = {"losses": [*losses, loss], "best": best}
    model.load_state_dict(training.notes["best"])
    return training.notes["losses"]

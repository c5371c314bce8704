"""The frozen encoder's states, computed once and cached on disk (``--cache_encoder_states``).

Departure 13: the published code runs the frozen encoder with its dropout in every epoch. Here it
runs once, in evaluation mode; then only the head is trained, on states read from a memory map: they
may be larger than the memory.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from attention import Positions
from checksums import examples_checksum, weights_checksum
from data import Collator
from models import FrozenHead, PapaModel
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm
from transformers.modeling_outputs import ModelOutput

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import atomic_write

BATCH = 32  # examples of similar length are encoded together


class CachedStates(Dataset):
    """The examples of a dataset with their ``states``, at their valid positions only.

    Attributes:
        examples: the examples, with their masks and labels.
        values: (sum of lengths, layers + 1, hidden) float32, on disk.
        offsets: (examples + 1,), the first row of each example.
    """

    def __init__(self, examples: Sequence[dict], values: np.ndarray, offsets: np.ndarray):
        self.examples, self.values, self.offsets = examples, values, offsets

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> dict:
        """``attention_mask``, ``labels`` if any, and ``states`` (valid, layers + 1, hidden)."""
        states = self.values[self.offsets[number] : self.offsets[number + 1]]
        names = ("attention_mask", "labels")  # in this order: the Trainer counts the first tensor
        example = {n: of for n in names if (of := self.examples[number].get(n)) is not None}
        return {**example, "states": states}


class StatesCollator(Collator):
    """Makes a batch of examples with states, without positions that no example uses."""

    def __call__(self, examples: list[dict]) -> dict[str, Tensor]:
        """Mask, labels, positions if any is unused, states (layers + 1, batch, len, hidden)."""
        values = torch.from_numpy(np.concatenate([example.pop("states") for example in examples]))
        batch = super().__call__(examples)
        mask = batch["attention_mask"].bool()
        batch["states"] = values.new_zeros(values.shape[1], *mask.shape, values.shape[2])
        batch["states"][:, mask] = values.transpose(0, 1)
        return batch


class HeadOnly(nn.Module):
    """The head of a model on states instead of tokens."""

    def __init__(self, head: FrozenHead):
        super().__init__()
        self.head, self.positions = head, Positions()

    def forward(
        self,
        attention_mask: Tensor,
        states: Tensor,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> ModelOutput:
        """Logits and loss, as :meth:`models.PapaModel.forward`, of a batch of states."""
        if positions is None:
            positions = torch.arange(states.shape[2], device=states.device)
        self.positions.used = positions
        return self.head(list(states), attention_mask, self.positions, labels)


def cache_states(
    model: PapaModel, examples: Sequence[dict], collator: Collator, folder: Path, bar: bool
) -> CachedStates:
    """The states of ``examples``, read from ``folder`` or computed and written there.

    The encoder of ``model`` runs in evaluation mode on its current device. ``folder`` has a
    subdirectory for each encoder and dataset, named by checksum.
    """
    lengths = np.array([int(np.sum(example["attention_mask"])) for example in examples])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    shape = (int(offsets[-1]), model.config.num_hidden_layers + 1, model.config.hidden_size)
    checksums = weights_checksum(model.stock.base_model) + examples_checksum([examples])
    path = folder / hashlib.sha256(checksums.encode()).hexdigest()[:32] / "states.bin"
    if not path.exists():
        print(f"encoder states: {4 * np.prod(shape) / 1e9:.2f} GB in {path.parent}")
        with atomic_write(path) as stream:
            write_states(model, examples, collator, lengths, offsets, stream, bar)
    if path.stat().st_size != 4 * np.prod(shape):
        raise InputError(f"{path} is truncated or holds something else; remove it to recompute it")
    # "c": nothing is written to the file, and torch accepts only a writable array.
    return CachedStates(examples, np.memmap(path, np.float32, "c", shape=shape), offsets)


@torch.no_grad()
def write_states(model, examples, collator, lengths, offsets, stream: BinaryIO, bar: bool) -> None:
    """Write the states of all examples (see :class:`CachedStates`) to ``stream``.

    Not through a memory map, where a full disk would kill the process without a message.
    """
    model.eval()
    order = np.argsort(-lengths, kind="stable")  # the largest batch first: memory fails early
    batches = np.array_split(order, range(BATCH, len(order), BATCH))
    for numbers in tqdm(batches, desc="encoding", unit="batch", disable=not bar):
        batch = collator([examples[int(number)] for number in numbers])
        batch.pop("labels", None)
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        states = torch.stack(model.states(**batch), dim=2).float().cpu().numpy()
        mask = batch["attention_mask"].bool().cpu().numpy()
        for row, number in enumerate(numbers):
            values = states[row, mask[row]]
            stream.seek(int(offsets[number]) * values[0].nbytes)
            stream.write(values.tobytes())

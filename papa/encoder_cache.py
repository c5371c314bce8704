"""The frozen encoder's states, computed once and cached on disk (``--cache_encoder_states``).

Departure 13: the published code runs the frozen encoder with its dropout in every epoch. Here it
runs once, in evaluation mode; then only the head is trained, on states read from a memory map: they
may be larger than the memory.
"""

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from attention import Positions
from data import Collator, examples_checksum
from encoders import weights_checksum
from models import FrozenHead, PapaModel
from torch import Tensor, nn
from tqdm import tqdm
from transformers.modeling_outputs import ModelOutput

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import atomic_write

BATCH = 32  # examples of similar length are encoded together


class StatesCollator(Collator):
    """Makes a batch of examples with states, without positions that no example uses."""

    def __call__(self, examples: list[dict]) -> dict[str, Tensor]:
        """Mask, labels, positions if any is unused, states (layers + 1, batch, len, hidden)."""
        examples = [dict(example) for example in examples]
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
) -> list[dict]:
    """The masks and labels of ``examples``, and ``states`` (valid, layers + 1, hidden) float32.

    The states are read from a subdirectory of ``folder``, named by the checksum of encoder and
    dataset, or computed by the encoder of ``model`` in evaluation mode and written there. Raises
    InputError when they are truncated.
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
    values = np.memmap(path, np.float32, "c", shape=shape)
    names = [n for n in ("attention_mask", "labels") if n in examples[0]]
    return [
        {**{name: example[name] for name in names}, "states": values[start:end]}
        for example, (start, end) in zip(examples, itertools.pairwise(offsets), strict=True)
    ]


@torch.no_grad()
def write_states(model, examples, collator, lengths, offsets, stream: BinaryIO, bar: bool) -> None:
    """Write the states of all examples to ``stream``, their first rows at ``offsets``.

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

"""The frozen encoder's states, computed once and cached on disk (``--cache_encoder_states``).

Departure 13: the published code runs the frozen encoder with its dropout in every epoch. Here it
runs once, in evaluation mode; then only the head is trained, on states read from a memory map.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from attention import Positions
from checksums import examples_checksum, weights_checksum
from metrics import IGNORED
from models import FrozenHead, PapaModel
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm
from transformers.modeling_outputs import ModelOutput

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import atomic_write, read_json, write_json

BATCH = 32  # examples of similar length are encoded together


class CachedStates(Dataset):
    """The states of a dataset's examples, at their valid positions only.

    Attributes:
        examples: the examples, with their masks and labels.
        values: (sum of lengths, layers + 1, hidden) float32, on disk.
        offsets: (examples + 1,), the first row of each example.
    """

    def __init__(self, examples: Sequence[dict], values: np.ndarray, offsets: np.ndarray):
        """Join ``examples`` with their states."""
        self.examples, self.values, self.offsets = examples, values, offsets

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> dict:
        """``states`` (len, layers + 1, hidden), ``positions`` (len,), and ``labels`` if any.

        Labels of tokens are those at the valid positions, (len,).
        """
        example = self.examples[number]
        positions = np.flatnonzero(example["attention_mask"])
        states = self.values[self.offsets[number] : self.offsets[number + 1]]
        item = {"states": states, "positions": positions}
        if "labels" in example:
            labels = np.asarray(example["labels"])
            item["labels"] = labels[positions] if labels.ndim else labels
        return item


def collate_states(examples: list[dict]) -> dict[str, Tensor]:
    """A batch: mask, states (layers + 1, batch, len, hidden), positions of the columns, labels.

    The columns are the positions that any example uses; labels are -100 where an example has none.
    The mask is first: the Trainer reads the batch size from it.
    """
    positions = np.unique(np.concatenate([example["positions"] for example in examples]))
    shape = (len(examples), len(positions))
    _, layers, hidden = examples[0]["states"].shape
    states = torch.zeros(layers, *shape, hidden)
    mask = torch.zeros(shape, dtype=torch.bool)
    token_labels = torch.full(shape, IGNORED)
    has_labels = "labels" in examples[0]
    of_tokens = has_labels and examples[0]["labels"].ndim == 1
    for row, example in enumerate(examples):
        columns = torch.from_numpy(np.searchsorted(positions, example["positions"]))
        states[:, row, columns] = torch.from_numpy(example["states"]).transpose(0, 1)
        mask[row, columns] = True
        if of_tokens:
            token_labels[row, columns] = torch.from_numpy(example["labels"]).long()
    batch = {"attention_mask": mask, "states": states, "positions": torch.from_numpy(positions)}
    if of_tokens:
        batch["labels"] = token_labels
    elif has_labels:
        labels = torch.from_numpy(np.stack([example["labels"] for example in examples]))
        batch["labels"] = labels if labels.is_floating_point() else labels.long()
    return batch


class HeadOnly(nn.Module):
    """The head of a model on states instead of tokens."""

    def __init__(self, head: FrozenHead):
        """Share the weights of ``head``."""
        super().__init__()
        self.head, self.positions = head, Positions()

    def forward(
        self,
        states: Tensor,
        attention_mask: Tensor,
        positions: Tensor,
        labels: Tensor | None = None,
    ) -> ModelOutput:
        """Logits and loss, as :meth:`models.PapaModel.forward`, of :func:`collate_states`."""
        self.positions.used = positions
        return self.head(list(states), attention_mask, self.positions, labels)


def cache_states(
    model: PapaModel, examples: Sequence[dict], collator, folder: Path, bar: bool
) -> CachedStates:
    """The states of ``examples``, read from ``folder`` or computed and written there.

    Args:
        model: its encoder runs in evaluation mode on its current device.
        examples: with input_ids, attention_mask and labels.
        collator: makes a batch of them, with ``positions``.
        folder: directory with a subdirectory for each encoder and dataset, named by checksum.
        bar: whether to show a progress bar.
    """
    lengths = np.array([int(np.sum(example["attention_mask"])) for example in examples])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    shape = [int(offsets[-1]), model.config.num_hidden_layers + 1, model.config.hidden_size]
    checksums = weights_checksum(model.stock.base_model) + examples_checksum([examples])
    folder = folder / hashlib.sha256(checksums.encode()).hexdigest()[:32]
    about, path = folder / "about.json", folder / "states.bin"
    expected = {"shape": shape, "dtype": "float32"}
    size = 4 * int(np.prod(shape))
    if about.exists():
        is_whole = path.is_file() and path.stat().st_size == size
        if read_json(about, "record of states") != expected or not is_whole:
            raise InputError(f"{folder}: corrupt encoder states; remove it to recompute them")
    else:
        print(f"encoder states: {size / 1e9:.2f} GB in {folder}")
        with atomic_write(path) as stream:
            write_states(model, examples, collator, lengths, offsets, stream, bar)
        write_json(about, expected)
    # "c": nothing is written to the file, and torch accepts only a writable array.
    values = np.memmap(path, dtype=np.float32, mode="c", shape=tuple(shape))
    return CachedStates(examples, values, offsets)


@torch.no_grad()
def write_states(model, examples, collator, lengths, offsets, stream: BinaryIO, bar: bool) -> None:
    """Write the states of all examples (see :class:`CachedStates`) to ``stream``.

    Not through a memory map, where a full disk would kill the process without a message.
    """
    training = model.training
    model.eval()
    order = np.argsort(-lengths, kind="stable")  # the largest batch first: memory fails early
    batches = np.array_split(order, range(BATCH, len(order), BATCH))
    for numbers in tqdm(batches, desc="encoding", unit="batch", disable=not bar):
        batch = collator([examples[int(number)] for number in numbers])
        batch.pop("labels", None)
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        states = torch.stack(model.states(**batch), dim=2).cpu().numpy()
        mask = batch["attention_mask"].bool().cpu().numpy()
        for row, number in enumerate(numbers):
            values = states[row, mask[row]]
            stream.seek(int(offsets[number]) * 4 * values[0].size)
            stream.write(values.astype(np.float32, copy=False).tobytes())
    model.train(training)

"""The frozen encoder's states, computed once and kept on disk (``--cache_encoder_states``).

A departure (13): the published code runs the frozen encoder with its dropout in every epoch. Here
it runs once, in evaluation mode; then only the head is trained, on states read from a memory map.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from encoders import fingerprint
from models import Columns, FrozenHead, PapaModel
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm
from transformers.modeling_outputs import ModelOutput

from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import atomic_write, read_json, write_json

BATCH = 32  # examples of similar length are encoded together


class States(Dataset):
    """The states of a data set's examples, at their valid positions only.

    Attributes:
        values: (sum of lengths, layers + 1, hidden) float32, on disk.
        offsets: (examples + 1,), where each example begins.
    """

    def __init__(self, examples: Sequence[dict], values: np.ndarray, offsets: np.ndarray):
        """The states ``values`` of ``examples``, which give masks and labels."""
        self.examples, self.values, self.offsets = examples, values, offsets

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> dict:
        """``states`` (len, layers + 1, hidden), ``places`` (len,), and labels if there are any."""
        example = self.examples[number]
        values = self.values[self.offsets[number] : self.offsets[number + 1]]
        item = {"states": values, "places": np.flatnonzero(example["attention_mask"])}
        if "labels" in example:
            item["labels"] = np.asarray(example["labels"])
        return item


def collate(examples: list[dict]) -> dict[str, Tensor]:
    """A batch: mask, states (layers + 1, batch, len, hidden), places of the columns, and labels.

    The mask is first: the Trainer takes the size of a batch from there.
    """
    places = np.unique(np.concatenate([example["places"] for example in examples]))
    shape = (len(examples), len(places))
    _, layers, hidden = examples[0]["states"].shape
    states = torch.zeros(layers, *shape, hidden)
    mask = torch.zeros(shape, dtype=torch.bool)
    for row, example in enumerate(examples):
        columns = torch.from_numpy(np.searchsorted(places, example["places"]))
        states[:, row, columns] = torch.from_numpy(example["states"]).transpose(0, 1)
        mask[row, columns] = True
    batch = {"attention_mask": mask, "states": states, "places": torch.from_numpy(places)}
    if "labels" in examples[0]:
        labels = [example["labels"] for example in examples]
        if labels[0].ndim:
            labels = [row[places] for row in labels]
        labels = torch.from_numpy(np.stack(labels))
        batch["labels"] = labels if labels.is_floating_point() else labels.long()
    return batch


class HeadOnly(nn.Module):
    """The head of a model, fed with states instead of tokens."""

    def __init__(self, head: FrozenHead):
        """Shares the weights of ``head``."""
        super().__init__()
        self.head, self.columns = head, Columns()

    def forward(
        self, states: Tensor, attention_mask: Tensor, places: Tensor, labels: Tensor | None = None
    ) -> ModelOutput:
        """As :meth:`models.PapaModel.forward`, on a batch of :func:`collate`."""
        self.columns.places = places
        return self.head(list(states), attention_mask, self.columns, labels)


def cached(model: PapaModel, examples: Sequence[dict], collator, folder: Path, bar: bool) -> States:
    """The states of ``examples``, from ``folder`` if they are there, else computed and kept.

    Args:
        model: whose encoder is run, in evaluation mode, where it is.
        examples: with input_ids, attention_mask and labels.
        collator: makes a batch of them, with ``places``.
        folder: holds a folder for each encoder and data set, named by their checksum.
        bar: whether to show a progress bar.
    """
    lengths = np.array([int(np.sum(example["attention_mask"])) for example in examples])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    shape = [int(offsets[-1]), model.config.num_hidden_layers + 1, model.config.hidden_size]
    folder = folder / checksum(model, examples)
    about, path = folder / "about.json", folder / "states.bin"
    wanted = {"shape": shape, "dtype": "float32"}
    if about.exists():
        size = 4 * int(np.prod(shape))
        is_whole = path.is_file() and path.stat().st_size == size
        if read_json(about, "record of states") != wanted or not is_whole:
            raise InputError(f"{folder} is damaged: remove it, and the states are computed anew")
    else:
        print(f"encoder states: {4 * np.prod(shape) / 1e9:.2f} GB in {folder}")
        with atomic_write(path) as stream:
            encode(model, examples, collator, lengths, offsets, stream, bar)
        write_json(about, wanted)
    # "c": nothing is written to the file, and torch takes an array only if it may write.
    values = np.memmap(path, dtype=np.float32, mode="c", shape=tuple(shape))
    return States(examples, values, offsets)


@torch.no_grad()
def encode(model, examples, collator, lengths, offsets, stream: BinaryIO, bar: bool) -> None:
    """Write the states of all examples (see :class:`States`) to ``stream``.

    Not through a memory map: there a full disk would kill the process without a word.
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


def checksum(model: PapaModel, examples: Sequence[dict]) -> str:
    """Of all that decides the states: the encoder with its constants, and the tokens."""
    digest = hashlib.sha256(fingerprint(model.stock.base_model).encode())
    for example in examples:
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            if name in example:
                digest.update(np.asarray(example[name], dtype=np.int64).tobytes())
    return digest.hexdigest()[:32]

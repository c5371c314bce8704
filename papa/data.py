"""Examples as token ids: the paper's layouts (Step 0), encoded splits, and batches.

A layout lists the index in the tokenizer's ids of the token at each position, -1 for padding.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from arguments import DataArguments, LayoutArguments
from metrics import IGNORED
from readers import Task
from torch.nn.utils.rnn import pad_sequence

from attention_dynamics.cli import InputError

Example = dict[str, np.ndarray]
# The columns of an example, (len,): padding and type. The labels of sequences are one number each.
_COLUMNS = {
    "input_ids": (None, np.int32),  # the tokenizer's padding
    "attention_mask": (0, np.int8),
    "token_type_ids": (0, np.int8),  # if the tokenizer has them
    "labels": (IGNORED, np.int32),
}


def sequence_layout(ids: Sequence[int], sep_id: int, length: int) -> list[int]:
    """The layout of an example of sequence classification, of ``length`` positions.

    The tokens before the first separator stay, at most ``length // 2`` of them. Those from the
    first separator up to the last one start at ``length // 2``, cut so that the last position stays
    free. It takes the last separator, which is the only one of a single sentence.
    """
    first, last = _separators(ids, sep_id)
    half = length // 2
    first_part = range(min(first, half))
    second_part = range(first, min(last, first + length - 1 - half))
    origin = [*first_part, *[-1] * (half - len(first_part)), *second_part]
    return [*origin, *[-1] * (length - 1 - len(origin)), last]


def token_layout(ids: Sequence[int], sep_id: int, length: int) -> list[int]:
    """The layout of an example of token classification.

    Tokens stay (at most ``length - 1`` of them); only the last separator moves to the end.
    """
    _, last = _separators(ids, sep_id)
    stay = min(last, length - 1)
    return [*range(stay), *[-1] * (length - 1 - stay), last]


def _separators(ids: Sequence[int], sep_id: int | None) -> tuple[int, int]:
    positions = [position for position, token in enumerate(ids) if token == sep_id]
    if not positions:
        raise InputError("--use_papa_preprocess needs a separator, and this tokenizer adds none")
    return positions[0], positions[-1]


def encode_sequences(
    task: Task, tokenizer, data: DataArguments, layout: LayoutArguments
) -> dict[str, list[Example]]:
    """Encode the splits of a task of sentences; of a pair, the longer sentence is cut first.

    Raises InputError for a length that the tokenizer does not support.
    """
    encoded = {}
    for name, (texts, labels) in task.splits.items():
        columns = zip(*texts[: data.max_samples(name)], strict=True)
        encoding = _tokenize(tokenizer, data, *map(list, columns))
        encoded[name] = _lay_out(encoding, sequence_layout, tokenizer, data, layout)
        for example, label in zip(encoded[name], labels or (), strict=False):
            example["labels"] = label
    return encoded


def encode_tokens(
    task: Task, tokenizer, data: DataArguments, layout: LayoutArguments, label_all_tokens=False
) -> dict[str, list[Example]]:
    """Encode the splits of a task of labeled words, with a label per token.

    Prints how many words are lost, since they are beyond the length or have no tokens.
    """
    encoded, numbers = {}, {name: number for number, name in enumerate(task.labels)}
    for name, (texts, labels) in task.splits.items():
        words = texts[: data.max_samples(name)]
        encoding = _tokenize(tokenizer, data, words, is_split_into_words=True)
        word_ids = [encoding.word_ids(index) for index in range(len(words))]
        encoding["labels"] = [
            align_labels(row, ids, label_all_tokens, numbers)
            for row, ids in zip(labels, word_ids, strict=False)
        ]
        encoded[name] = _lay_out(encoding, token_layout, tokenizer, data, layout)
        total = sum(map(len, words))
        if lost := total - sum(len({*ids} - {None}) for ids in word_ids):
            beyond = f"beyond --max_seq_length {data.max_seq_length} or have no tokens"
            print(f"note: {lost} of {total} words are not used: {beyond}", file=sys.stderr)
    return encoded


def align_labels(
    labels: Sequence[str],
    word_ids: Sequence[int | None],
    label_all_tokens: bool,
    label_to_id: dict[str, int],
) -> list[int]:
    """The label of each token of a sentence, -100 for none.

    Args:
        labels, word_ids: the label of each word; the word of each token (None: a special token).
        label_all_tokens: label all tokens of a word, not only its first one (if its label is B-X,
            the others are I-X, if there is such a label).
        label_to_id: numbers of the labels.
    """
    aligned, previous = [], None
    for word in word_ids:
        if word is None or (word == previous and not label_all_tokens):
            aligned.append(IGNORED)
        else:
            label = labels[word]
            inside = "I-" + label.removeprefix("B-")
            if word == previous and label.startswith("B-") and inside in label_to_id:
                label = inside
            aligned.append(label_to_id[label])
        previous = word
    return aligned


def _tokenize(tokenizer, data: DataArguments, *texts: list, **options):
    """Tokens of one or two columns of texts.

    Special tokens in a text ([SEP], </s>) are encoded as text: as separators they would make a
    pair of a single sentence.
    """
    length = data.max_seq_length
    least = tokenizer.num_special_tokens_to_add(pair=len(texts) == 2) + 1
    if not least <= length <= tokenizer.model_max_length:
        most = tokenizer.model_max_length
        raise InputError(f"--max_seq_length {length} must be at least {least} and at most {most}")
    cut = {"truncation": True, "max_length": length, "split_special_tokens": True}
    return tokenizer(*texts, **cut, **options)


def _lay_out(
    encoding, papa_layout: Callable, tokenizer, data: DataArguments, layout: LayoutArguments
) -> list[Example]:
    examples, length = [], data.max_seq_length
    is_padded = data.pad_to_max_length or layout.use_papa_preprocess
    columns = {name: column for name, column in _COLUMNS.items() if name in encoding}
    columns["input_ids"] = tokenizer.pad_token_id, np.int32
    for index, ids in enumerate(encoding["input_ids"]):
        padding = length - len(ids) if is_padded else 0
        plain = np.array([*range(len(ids)), *[-1] * padding])
        origin, example = plain, {}
        if layout.use_papa_preprocess:
            origin = np.array(papa_layout(ids, tokenizer.sep_token_id, length))
        for name, (filler, kind) in columns.items():
            stays = layout.published_token_types and name == "token_type_ids"
            places = plain if stays else origin
            values = np.array(encoding[name][index])[places]
            example[name] = np.where(places >= 0, values, filler).astype(kind)
        examples.append(example)
    return examples


@dataclass(frozen=True)
class Collator:
    """Makes a batch of tensors of examples, padded to the longest.

    Attributes:
        pad_id: id of the padding token.
        drop_unused_positions: leave out the positions that no example of the batch uses; then
            ``positions`` ``(len,)`` has the position of each remaining column, if any is left out.
    """

    pad_id: int
    drop_unused_positions: bool = False

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        """``(batch, len)`` per column; labels of sequences ``(batch,)``."""
        batch = {}
        for name in examples[0]:
            values = [torch.as_tensor(example[name]) for example in examples]
            if values[0].ndim == 0:
                batch[name] = torch.stack(values)
            else:
                filler = self.pad_id if name == "input_ids" else _COLUMNS[name][0]
                batch[name] = pad_sequence(values, True, filler).long()
        positions = batch["attention_mask"].any(0).nonzero()[:, 0]
        if self.drop_unused_positions and len(positions) < batch["attention_mask"].shape[1]:
            for name, value in batch.items():
                batch[name] = value[:, positions] if value.ndim == 2 else value
            batch["positions"] = positions
        return batch


def examples_checksum(datasets: Iterable[Sequence[dict]]) -> str:
    """SHA-256 of the tokens and labels of all examples of ``datasets``."""
    digest = hashlib.sha256()
    for examples in datasets:
        for example in examples:
            for name in sorted(example):
                digest.update(name.encode() + np.asarray(example[name]).tobytes())
    return digest.hexdigest()

"""Examples as token ids: the paper's layouts (Step 0), encoded splits, and batches."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from arguments import DataArguments, LayoutArguments, ModelArguments, TokenArguments
from glue import SequenceSplit, SequenceTask, load_sequence_task
from metrics import IGNORED
from token_tasks import TokenSplit, TokenTask, load_token_task
from torch.utils.data import Dataset

from attention_dynamics.cli import InputError

# --- layouts (the paper's preprocessing) ---

# (ids, attention mask, origin), all of the laid out length: origin[j] is the index in the
# tokenizer's ids of the token at position j, -1 for padding.
Layout = tuple[list[int], list[int], list[int]]


def sequence_layout(ids: Sequence[int], sep_id: int, pad_id: int, length: int) -> Layout:
    """The layout of an example of sequence classification.

    The tokens before the first separator stay, at most ``length // 2`` of them. Those from the
    first separator up to the last one start at ``length // 2``, cut so that the last position stays
    free. It takes the last separator, which is the only one of a single sentence.

    Args:
        ids: the tokenizer's output, special tokens included, without padding.
        sep_id, pad_id: ids of the separator and of padding.
        length: number of positions of the result.
    """
    first, last = _separators(ids, sep_id)
    half = length // 2
    first_part = range(min(first, half))
    second_part = range(first, min(last, first + length - 1 - half))
    origin = [*first_part, *[-1] * (half - len(first_part)), *second_part]
    return _laid_out(ids, pad_id, [*origin, *[-1] * (length - 1 - len(origin)), last])


def token_layout(ids: Sequence[int], sep_id: int, pad_id: int, length: int) -> Layout:
    """The layout of an example of token classification.

    Tokens stay (at most ``length - 1`` of them); only the last separator moves to the end.
    Arguments as in :func:`sequence_layout`.
    """
    _, last = _separators(ids, sep_id)
    stay = min(last, length - 1)
    return _laid_out(ids, pad_id, [*range(stay), *[-1] * (length - 1 - stay), last])


def plain_layout(ids: Sequence[int], pad_id: int, length: int | None) -> Layout:
    """The tokenizer's own: padding behind the tokens, up to ``length`` (None: no padding)."""
    padding = 0 if length is None else length - len(ids)
    return _laid_out(ids, pad_id, [*range(len(ids)), *[-1] * padding])


def _separators(ids: Sequence[int], sep_id: int) -> tuple[int, int]:
    positions = [position for position, token in enumerate(ids) if token == sep_id]
    if not positions:
        raise InputError(
            "--use_papa_preprocess needs a separator token at the end of each example, and the "
            "tokenizer adds none: omit the option for this model"
        )
    return positions[0], positions[-1]


def _laid_out(ids: Sequence[int], pad_id: int, origin: list[int]) -> Layout:
    return (_moved(ids, origin, pad_id), [int(index >= 0) for index in origin], origin)


def _moved(values: Sequence[int], origin: list[int], padding: int) -> list[int]:
    return [values[index] if index >= 0 else padding for index in origin]


# --- datasets ---


class Encoded(Dataset):
    """Tokenized examples: each is {column: array of its tokens}, and ``labels``.

    Attributes:
        columns: "input_ids", "attention_mask", "token_type_ids" (if the tokenizer has them) -> one
            array per example, and "labels" -> numbers, or one array per example.
    """

    def __init__(self, columns: dict[str, list]):
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def __getitem__(self, index: int) -> dict:
        return {name: values[index] for name, values in self.columns.items()}


def sequence_datasets(
    tokenizer,
    model: ModelArguments,
    data: DataArguments,
    layout: LayoutArguments,
    splits: list[str],
) -> tuple[SequenceTask, dict[str, Encoded]]:
    """The task of sentences on the command line, and its encoded splits by name."""
    task = load_sequence_task(
        data.task_name,
        files=data.files,
        task_dir=data.task_dir,
        dataset_name=data.dataset_name,
        dataset_config_name=data.dataset_config_name,
        cache_dir=model.cache_dir,
        splits=splits,
    )
    return task, {
        name: encode_sequences(
            split,
            tokenizer,
            data.max_seq_length,
            papa_layout=layout.use_papa_preprocess,
            pad_to_max_length=data.pad_to_max_length,
            published_token_types=layout.published_token_types,
            max_samples=data.max_samples(name),
        )
        for name, split in task.splits.items()
    }


def token_datasets(
    tokenizer,
    model: ModelArguments,
    data: DataArguments,
    layout: LayoutArguments,
    tokens: TokenArguments,
    splits: list[str],
) -> tuple[TokenTask, dict[str, Encoded]]:
    """The task of labelled words on the command line, and its encoded splits by name."""
    task = load_token_task(
        data.task_name or "ner",
        files=data.files,
        dataset_name=data.dataset_name,
        dataset_config_name=data.dataset_config_name,
        text_column_name=tokens.text_column_name,
        label_column_name=tokens.label_column_name,
        cache_dir=model.cache_dir,
        splits=splits,
    )
    return task, {
        name: encode_tokens(
            task.splits[name],
            task.labels,
            tokenizer,
            data.max_seq_length,
            papa_layout=layout.use_papa_preprocess,
            pad_to_max_length=data.pad_to_max_length,
            label_all_tokens=tokens.label_all_tokens,
            max_samples=data.max_samples(name),
        )
        for name in splits
    }


def encode_sequences(
    split: SequenceSplit,
    tokenizer,
    length: int,
    *,
    papa_layout: bool,
    pad_to_max_length: bool = True,
    published_token_types: bool = False,
    max_samples: int | None = None,
) -> Encoded:
    """Encode a split of sentences as token ids, at most ``length`` per example.

    Special tokens in a text ([SEP], </s>) are encoded as text: as separators they would make a
    pair of a single sentence.

    Args:
        split: the sentences.
        tokenizer: of the transformers library.
        length: longer examples are cut, the longer sentence first.
        papa_layout: use :func:`sequence_layout`, else :func:`plain_layout`.
        pad_to_max_length: pad the plain layout to ``length``; the other always is.
        published_token_types: do not move token type ids with the tokens of the paper's layout, as
            in the published code.
        max_samples: number of leading examples to use; None for all.

    Raises InputError for a length that the tokenizer does not support.
    """
    texts = split.texts[:max_samples]
    _check_length(tokenizer, length, pair=len(texts[0]) == 2)
    encoding = tokenizer(
        *map(list, zip(*texts, strict=True)),
        truncation=True,
        max_length=length,
        split_special_tokens=True,
    )
    lay_out = _layout(papa_layout and sequence_layout, tokenizer, length, pad_to_max_length)
    columns = _encode(encoding, lay_out, published_token_types and papa_layout)
    if split.labels is not None:
        columns["labels"] = split.labels[:max_samples]
    return Encoded(columns)


def encode_tokens(
    split: TokenSplit,
    labels: Sequence[str],
    tokenizer,
    length: int,
    *,
    papa_layout: bool,
    pad_to_max_length: bool = True,
    label_all_tokens: bool = False,
    max_samples: int | None = None,
) -> Encoded:
    """Encode a split of labelled words as token ids, with one label per token (-100: none).

    Prints how many words are lost, since they are beyond ``length`` or have no tokens. Arguments as
    in :func:`encode_sequences`; the paper's layout is :func:`token_layout`.

    Args:
        labels: names in the order of their numbers.
        label_all_tokens: see :func:`align_labels`.
    """
    if not tokenizer.is_fast:
        raise InputError(
            "token classification needs a fast tokenizer (with a tokenizer.json): the tokenizer of "
            "this model does not tell which word a token belongs to"
        )
    _check_length(tokenizer, length, pair=False)
    words, tags = split.words[:max_samples], split.labels[:max_samples]
    encoding = tokenizer(
        words,
        is_split_into_words=True,
        truncation=True,
        max_length=length,
        split_special_tokens=True,
    )
    lay_out = _layout(papa_layout and token_layout, tokenizer, length, pad_to_max_length)
    number_of = {name: number for number, name in enumerate(labels)}
    word_ids = [encoding.word_ids(index) for index in range(len(words))]
    aligned = [
        align_labels(row, ids, label_all_tokens, number_of)
        for row, ids in zip(tags, word_ids, strict=True)
    ]
    lost = [len(row) - len({*ids} - {None}) for row, ids in zip(words, word_ids, strict=True)]
    if any(lost):
        print(
            f"note: {sum(lost)} of {sum(map(len, words))} words, in {np.count_nonzero(lost)} of "
            f"{len(words)} sentences, are beyond --max_seq_length {length} or have no tokens: they "
            "are neither trained on nor scored",
            file=sys.stderr,
        )
    return Encoded(_encode(encoding, lay_out, False, aligned))


def align_labels(
    labels: Sequence[str],
    word_ids: Sequence[int | None],
    label_all_tokens: bool,
    label_to_id: dict[str, int],
) -> list[int]:
    """The label of each token of a sentence, -100 for none.

    Args:
        labels: one per word.
        word_ids: the word of each token; None for special tokens.
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


def _check_length(tokenizer, length: int, pair: bool) -> None:
    least, most = tokenizer.num_special_tokens_to_add(pair) + 1, tokenizer.model_max_length
    if not least <= length <= most:
        limit = f"at most {most}" if length > most else f"at least {least}"
        raise InputError(
            f"--max_seq_length {length} is not possible with this model (expected {limit})"
        )


def _layout(papa: Callable | bool, tokenizer, length: int, pad: bool) -> Callable:
    """The function ids -> :data:`Layout`; ``papa``: the paper's layout, if it is used."""
    if papa:
        if tokenizer.sep_token_id is None:
            raise InputError(
                "--use_papa_preprocess needs a tokenizer with a separator token, and that of this "
                "model has none: omit the option"
            )
        return lambda ids: papa(ids, tokenizer.sep_token_id, tokenizer.pad_token_id, length)
    return lambda ids: plain_layout(ids, tokenizer.pad_token_id, length if pad else None)


def _encode(encoding, lay_out: Callable, types_stay: bool, labels: list | None = None) -> dict:
    """The columns of a dataset from the tokenizer's output.

    ``types_stay``: token type ids do not move with the tokens; ``labels``: one per token.
    """
    columns = {"input_ids": [], "attention_mask": []}
    types = encoding.get("token_type_ids")
    if types is not None:
        columns["token_type_ids"] = []
    if labels is not None:
        columns["labels"] = []
    for index, ids in enumerate(encoding["input_ids"]):
        ids, mask, origin = lay_out(ids)
        columns["input_ids"].append(np.array(ids, dtype=np.int32))
        columns["attention_mask"].append(np.array(mask, dtype=np.int8))
        if types is not None:
            row = types[index]
            stay = [*range(len(row)), *[-1] * (len(ids) - len(row))] if types_stay else origin
            columns["token_type_ids"].append(np.array(_moved(row, stay, 0), dtype=np.int8))
        if labels is not None:
            moved = _moved(labels[index], origin, IGNORED)
            columns["labels"].append(np.array(moved, dtype=np.int32))
    return columns


# --- batches ---


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
        length = max(len(example["input_ids"]) for example in examples)
        padding = {"input_ids": self.pad_id, "labels": IGNORED}
        batch = {}
        for name in examples[0]:
            values = [example[name] for example in examples]
            if np.ndim(values[0]) == 0:
                batch[name] = torch.tensor(values)
                continue
            table = np.full((len(values), length), padding.get(name, 0), dtype=np.int64)
            for row, value in zip(table, values, strict=True):
                row[: len(value)] = value
            batch[name] = torch.from_numpy(table)
        if self.drop_unused_positions:
            positions = batch["attention_mask"].any(0).nonzero()[:, 0]
            if len(positions) < length:
                batch = {
                    name: value[:, positions] if value.ndim == 2 else value
                    for name, value in batch.items()
                }
                batch["positions"] = positions
        return batch

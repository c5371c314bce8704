"""Examples for PAPA: tasks of text, made data sets of token ids, laid out, and batched.

A task (:func:`load_sequence_task`, :func:`load_token_task`) holds text; :func:`encode_sequences`
and :func:`encode_tokens` make it a data set of token ids, and a :class:`Collator` batches of that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sentences import SequenceSplit, SequenceTask, load_sequence_task
from tasks import IGNORED
from torch.utils.data import Dataset
from words import TokenSplit, TokenTask, load_token_task

from attention_dynamics.cli import InputError

__all__ = [
    "Collator",
    "Encoded",
    "SequenceTask",
    "TokenTask",
    "align_labels",
    "encode_sequences",
    "encode_tokens",
    "load_sequence_task",
    "load_token_task",
    "plain_layout",
    "sequence_layout",
    "token_layout",
]

# --- layouts (the paper's preprocessing) ---

Layout = tuple[list[int], list[int], list[int]]


def sequence_layout(ids: Sequence[int], sep_id: int, pad_id: int, length: int) -> Layout:
    """The layout of an example of sequence classification.

    The tokens before the first separator stay, at most ``length // 2`` of them; those from the
    first separator to before the last one start at ``length // 2`` and leave the last position
    free, which takes the last separator. A single sentence has only that one.

    Args:
        ids: what the tokeniser gives, special tokens included, without padding.
        sep_id, pad_id: ids of the separator and of padding.
        length: of the result.

    Returns:
        (ids, attention mask, origin), ``length`` of each: origin[j] is the index in ``ids`` of the
        token at position j, -1 for padding.
    """
    first, last = _separators(ids, sep_id)
    half = length // 2
    first_part = range(min(first, half))
    second_part = range(first, min(last, first + length - 1 - half))
    origin = [*first_part, *[-1] * (half - len(first_part)), *second_part]
    return _laid_out(ids, pad_id, [*origin, *[-1] * (length - 1 - len(origin)), last])


def token_layout(ids: Sequence[int], sep_id: int, pad_id: int, length: int) -> Layout:
    """The layout of an example of token classification: as :func:`sequence_layout`, but tokens stay
    where they are (at most ``length - 1`` of them); only the last separator moves to the end."""
    _, last = _separators(ids, sep_id)
    kept = min(last, length - 1)
    return _laid_out(ids, pad_id, [*range(kept), *[-1] * (length - 1 - kept), last])


def plain_layout(ids: Sequence[int], pad_id: int, length: int | None) -> Layout:
    """The tokeniser's own: padding behind the tokens, up to ``length`` (None: none at all)."""
    padding = 0 if length is None else length - len(ids)
    return _laid_out(ids, pad_id, [*range(len(ids)), *[-1] * padding])


def _separators(ids: Sequence[int], sep_id: int) -> tuple[int, int]:
    places = [place for place, token in enumerate(ids) if token == sep_id]
    if not places:
        raise InputError(
            "--use_papa_preprocess needs a separator token at the end of each example, and the "
            "tokeniser gives none: leave the option out for this model"
        )
    return places[0], places[-1]


def _laid_out(ids: Sequence[int], pad_id: int, origin: list[int]) -> Layout:
    return (_moved(ids, origin, pad_id), [int(place >= 0) for place in origin], origin)


def _moved(values: Sequence[int], origin: list[int], padding: int) -> list[int]:
    return [values[place] if place >= 0 else padding for place in origin]


# --- data sets ---


class Encoded(Dataset):
    """Tokenised examples: each is {column: array of its tokens}, and ``labels``.

    Attributes:
        columns: "input_ids", "attention_mask", "token_type_ids" (where the tokeniser has them) ->
            one array per example, and "labels" -> numbers, or one array per example.
    """

    def __init__(self, columns: dict[str, list]):
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def __getitem__(self, place: int) -> dict:
        return {name: values[place] for name, values in self.columns.items()}


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
    """A split as token ids, at most ``length`` per example.

    Args:
        split: the sentences.
        tokenizer: of the library.
        length: longer examples are cut, the longer sentence first.
        papa_layout: lay them out by :func:`sequence_layout`, else by :func:`plain_layout`.
        pad_to_max_length: pad the plain layout to ``length``; the other always is.
        published_token_types: leave token type ids where the tokeniser has them while the tokens
            of the paper's layout move, as the published code does.
        max_samples: only the first ones.

    Raises InputError for a length the tokeniser cannot do.
    """
    texts = split.texts[:max_samples]
    _check_length(tokenizer, length, pair=len(texts[0]) == 2)
    read = tokenizer(*map(list, zip(*texts, strict=True)), truncation=True, max_length=length)
    lay_out = _layout(
        sequence_layout if papa_layout else None, tokenizer, length, pad_to_max_length
    )
    encoded = _encode(read, lay_out, published_token_types and papa_layout)
    if split.labels is not None:
        encoded["labels"] = split.labels[:max_samples]
    return Encoded(encoded)


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
    """A split of labelled words as token ids, with one label per token (-100: none).

    Arguments as in :func:`encode_sequences`; the paper's layout is :func:`token_layout`.

    Args:
        labels: names in the order of their numbers.
        label_all_tokens: see :func:`align_labels`.
    """
    if not tokenizer.is_fast:
        raise InputError(
            "token classification needs a fast tokeniser (one with a tokenizer.json); that of this "
            "model cannot tell which word a token belongs to"
        )
    _check_length(tokenizer, length, pair=False)
    words, tags = split.words[:max_samples], split.labels[:max_samples]
    read = tokenizer(words, is_split_into_words=True, truncation=True, max_length=length)
    lay_out = _layout(token_layout if papa_layout else None, tokenizer, length, pad_to_max_length)
    number_of = {name: number for number, name in enumerate(labels)}
    aligned = [
        align_labels(row, read.word_ids(place), label_all_tokens, number_of)
        for place, row in enumerate(tags)
    ]
    return Encoded(_encode(read, lay_out, False, aligned))


def align_labels(
    labels: Sequence[str],
    word_ids: Sequence[int | None],
    label_all_tokens: bool,
    label_to_id: dict[str, int],
) -> list[int]:
    """The label of each token of a sentence.

    Args:
        labels: of its words.
        word_ids: the word each token belongs to; None for special tokens.
        label_all_tokens: label the other tokens of a word too (where its label begins an entity,
            B-, they are inside of it, I-, if there is such a label); else only its first one.
        label_to_id: numbers of the labels.

    Returns:
        One number per token, -100 where there is no label.
    """
    aligned, before = [], None
    for word in word_ids:
        if word is None:
            aligned.append(IGNORED)
        elif word != before:
            aligned.append(label_to_id[labels[word]])
        elif label_all_tokens:
            label = labels[word]
            inside = "I-" + label.removeprefix("B-")
            aligned.append(
                label_to_id[inside if label[:2] == "B-" and inside in label_to_id else label]
            )
        else:
            aligned.append(IGNORED)
        before = word
    return aligned


def _check_length(tokenizer, length: int, pair: bool) -> None:
    least, most = tokenizer.num_special_tokens_to_add(pair) + 1, tokenizer.model_max_length
    if not least <= length <= most:
        limit = f"at most {most}" if length > most else f"at least {least}"
        raise InputError(f"--max_seq_length {length} is not possible with this model: {limit}")


def _layout(papa: Callable | None, tokenizer, length: int, pad: bool) -> Callable:
    """ids -> their layout."""
    if papa:
        if tokenizer.sep_token_id is None:
            raise InputError(
                "--use_papa_preprocess needs a tokeniser with a separator token, and that of this "
                "model has none: leave the option out"
            )
        return lambda ids: papa(ids, tokenizer.sep_token_id, tokenizer.pad_token_id, length)
    return lambda ids: plain_layout(ids, tokenizer.pad_token_id, length if pad else None)


def _encode(read, lay_out: Callable, types_stay: bool, labels: list | None = None) -> dict:
    """The columns of a data set from the tokeniser's output.

    ``types_stay``: token type ids do not move with the tokens; ``labels``: one per token.
    """
    columns = {"input_ids": [], "attention_mask": []}
    types = read.get("token_type_ids")
    if types is not None:
        columns["token_type_ids"] = []
    if labels is not None:
        columns["labels"] = []
    for place, ids in enumerate(read["input_ids"]):
        ids, mask, origin = lay_out(ids)
        columns["input_ids"].append(np.array(ids, dtype=np.int32))
        columns["attention_mask"].append(np.array(mask, dtype=np.int8))
        if types is not None:
            row = types[place]
            stay = [*range(len(row)), *[-1] * (len(ids) - len(row))] if types_stay else origin
            columns["token_type_ids"].append(np.array(_moved(row, stay, 0), dtype=np.int8))
        if labels is not None:
            columns["labels"].append(
                np.array(_moved(labels[place], origin, IGNORED), dtype=np.int32)
            )
    return columns


@dataclass(frozen=True)
class Collator:
    """Makes a batch of tensors of examples, padded to the longest.

    Attributes:
        pad_id: the token of padding.
        drop_unused_positions: leave out the positions that no example of the batch uses, and say
            in ``positions`` ``(len,)`` which ones the columns stand for, when any is left out.
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
            places = batch["attention_mask"].any(0).nonzero()[:, 0]
            if len(places) < length:
                batch = {
                    name: value[:, places] if value.ndim == 2 else value
                    for name, value in batch.items()
                }
                batch["positions"] = places
        return batch

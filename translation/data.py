"""The data sets of the translation experiment: reading, pieces, batches (A.2)."""

import io
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece
import torch
from torchtext.data import RawField
from torchtext.datasets import TranslationDataset

from attention_dynamics.analysis.ragged import Ragged, offsets_of
from attention_dynamics.cli import InputError
from attention_dynamics.runs.configs import absent_data_error
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.files import atomic_write, read_json, sha256
from attention_dynamics.storage.text import has_lone_surrogate, text_lines

PAD, BOS, EOS, UNK = range(4)
VOCAB_SIZE = 8000
# Longer sentences, in bytes, sentencepiece leaves out when it trains; as published, we let it.
LONGEST_TRAINED = 4192
MOST_PIECES = 10**6  # sentencepiece works for hours on as many as there cannot be


class Layout(NamedTuple):
    """Where the files of a data set lie.

    Attributes:
        folder: below data/; the sentencepiece model in it is named after it.
        val: stem of the validation files ("val" or "valid").
        src, trg: endings of the files of either side, after the dot.
        is_json: whether a file is a JSON list of sentences, rather than a sentence per line.
    """

    folder: str
    val: str
    src: str
    trg: str
    is_json: bool = False

    def paths(self, split: str) -> tuple[Path, Path]:
        """The source and the target file of "train" or "val"."""
        stem = "train" if split == "train" else self.val
        folder = Path("data") / self.folder
        return folder / f"{stem}.{self.src}", folder / f"{stem}.{self.trg}"

    @property
    def pieces(self) -> Path:
        """The sentencepiece model."""
        return Path("data") / self.folder / f"{Path(self.folder).name}.model"

    @property
    def about(self) -> Path:
        """What prepare_data.py says of the data."""
        return Path("data") / self.folder / "about.json"


LAYOUTS = {
    "multi30k": Layout("multi30k", "val", "de", "en"),
    "iwslt14": Layout("iwslt14", "valid", "de", "en"),
    "news_commentary_v14_en_nl": Layout("news-commentary-v14-en-nl", "val", "src", "trg", True),
    "news_commentary_v14_en_pt": Layout("news-commentary-v14-en-pt", "val", "src", "trg", True),
    "news_commentary_v14_it_pt": Layout("news-commentary-v14-it-pt", "val", "src", "trg", True),
}


def layout_of(dataset: str) -> Layout:
    """The layout of a data set: the five of the paper, or one that prepare_data.py made.

    Raises InputError for a data set that is not there (naming those that are), and for a name that
    would lead out of the folders.
    """
    if dataset in LAYOUTS:
        layout = LAYOUTS[dataset]
    else:
        check_name(dataset)
        about = Path("data") / dataset / "about.json"
        if not about.exists():
            raise _absent(dataset, about)
        content = read_json(about, "data record")
        languages = content.get("languages") if isinstance(content, dict) else None
        if not (
            isinstance(languages, list)
            and len(languages) == 2
            and all(isinstance(x, str) for x in languages)
            and languages[0] != languages[1]
        ):
            raise InputError(f'{about} must name the two "languages" of the data set')
        for language in languages:
            check_name(language, f"{about}: language")
        layout = Layout(dataset, "val", *languages)
    for split in ("train", "val"):
        for path in layout.paths(split):
            if not path.exists():
                raise _absent(dataset, path)
    return layout


def _absent(dataset: str, path: Path) -> InputError:
    folders = {layout.folder: name for name, layout in LAYOUTS.items()}
    found = (path for path in Path("data").glob("*") if path.is_dir())
    there = (folders.get(folder.name, folder.name) for folder in found)
    own = "--train SRC TRG --val SRC TRG --src_lang LANG --trg_lang LANG"
    return absent_data_error(dataset, path, there, LAYOUTS, own)


class Batch(NamedTuple):
    """Some sentence pairs, flat.

    Attributes:
        src: (src_tokens,) piece ids, <s> and </s> included.
        src_lengths: (batch,) on the CPU.
        inputs, targets: (trg_tokens,) the target side without its last and without its first piece.
        trg_lengths: (batch,) of inputs and targets, on the CPU.
    """

    src: torch.Tensor
    src_lengths: torch.Tensor
    inputs: torch.Tensor
    targets: torch.Tensor
    trg_lengths: torch.Tensor

    def to(self, device: torch.device) -> "Batch":
        """The ids on ``device``; lengths stay on the CPU."""
        src, src_lengths, inputs, targets, trg_lengths = self
        return Batch(
            src.to(device), src_lengths, inputs.to(device), targets.to(device), trg_lengths
        )


@dataclass(frozen=True)
class Pairs:
    """Encoded sentence pairs, and their target sentences as they were written.

    Attributes:
        src, trg: rows of piece ids between <s> and </s>.
        references: (pairs,) raw target sentences, for BLEU.
    """

    src: Ragged
    trg: Ragged
    references: list[str]

    def __len__(self) -> int:
        return len(self.src)

    def take(self, examples) -> "Pairs":
        """The pairs with these places, in this order."""
        references = [self.references[example] for example in examples]
        return Pairs(self.src.take(examples), self.trg.take(examples), references)

    def join(self, other: "Pairs") -> "Pairs":
        """These pairs, then those of ``other``."""
        return Pairs(
            self.src.join(other.src), self.trg.join(other.trg), self.references + other.references
        )

    def batch(self, examples: np.ndarray) -> Batch:
        """Some pairs, flat."""
        src, trg = self.src.take(examples), self.trg.take(examples)
        is_input = np.ones(len(trg.values), dtype=bool)
        is_input[trg.offsets[1:] - 1] = False
        return Batch(
            torch.from_numpy(src.values),
            torch.from_numpy(src.lengths),
            torch.from_numpy(trg.values[is_input]),
            torch.from_numpy(trg.rest),
            torch.from_numpy(trg.lengths - 1),
        )


@dataclass(frozen=True)
class Dataset:
    """A data set.

    Attributes:
        name: as on the command line.
        pieces: the shared sentencepiece vocabulary.
        train, val: encoded.
        dropped: pairs left out because a side was empty, by split.
        checksum: of all that decides what is trained: the four files and the vocabulary.
    """

    name: str
    pieces: sentencepiece.SentencePieceProcessor
    train: Pairs
    val: Pairs
    dropped: dict[str, int]
    checksum: str

    @property
    def vocab(self) -> int:
        """The number of pieces."""
        return self.pieces.vocab_size()


def load_dataset(dataset: str) -> Dataset:
    """Read, check and encode a data set, once; its pieces are trained when they are not there.

    Raises InputError for a data set that is not there, malformed files, sides of different lengths,
    a split without sentences, or a sentencepiece model of other special pieces.
    """
    layout = layout_of(dataset)
    texts, dropped = {}, {}
    for split in ("train", "val"):
        texts[split], dropped[split] = read_pairs(layout, split)
    if not layout.pieces.exists():
        if line := left_out_of_pieces(texts["train"]):
            print(f"WARNING: {line}", file=sys.stderr)
        train_pieces(layout.pieces, texts["train"], VOCAB_SIZE)
    pieces = load_pieces(layout.pieces)
    files = [*layout.paths("train"), *layout.paths("val"), layout.pieces]
    return Dataset(
        name=dataset,
        pieces=pieces,
        train=_encode(pieces, texts["train"]),
        val=_encode(pieces, texts["val"]),
        dropped=dropped,
        checksum="+".join(sha256(path)[:16] for path in files),
    )


def read_pairs(layout: Layout, split: str) -> tuple[list[tuple[str, str]], int]:
    """The (source, target) sentences of a split, and how many were dropped for an empty side."""
    paths = layout.paths(split)
    sides = [_json_list(path) if layout.is_json else _lines(path) for path in paths]
    check_counts(paths, sides)
    stripped = ((src.strip(), trg.strip()) for src, trg in zip(*sides, strict=True))
    pairs = [(src, trg) for src, trg in stripped if src and trg]
    if layout == LAYOUTS["multi30k"]:
        stem = paths[0].with_suffix("")
        fields = [("src", RawField()), ("trg", RawField())]
        read = TranslationDataset(str(stem), (f".{layout.src}", f".{layout.trg}"), fields)
        if [(example.src, example.trg) for example in read.examples] != pairs:
            # It would pair sentences that are no translations of each other.
            raise InputError(
                f"torchtext reads other lines from {paths[0]} and {paths[1]} than they have: take "
                "out what is a carriage return within a line, or a byte-order mark"
            )
    if not pairs:
        raise InputError(f"{paths[0]} and {paths[1]} hold no sentence pair")
    return pairs, len(sides[0]) - len(pairs)


def check_counts(paths, sides) -> None:
    """Refuse two sides of different numbers of sentences."""
    first, second = map(len, sides)
    if first != second:
        raise InputError(
            f"{paths[0]} has {first} sentences, but {paths[1]} has {second}: they must be aligned "
            "line by line"
        )


def _lines(path: Path) -> list[str]:
    with open(path, "rb") as stream:
        return [line.rstrip("\r\n") for line in text_lines(stream, str(path))]


def _json_list(path: Path) -> list[str]:
    sentences = read_json(path, "data file")
    if not isinstance(sentences, list) or not all(isinstance(text, str) for text in sentences):
        raise InputError(f"data file {path} must be a JSON list of sentences")
    for number, text in enumerate(sentences):
        if has_lone_surrogate(text):
            raise InputError(
                f"data file {path}: sentence {number} holds half of a surrogate pair (\\ud800 to "
                "\\udfff), which is no text: mend it"
            )
    return sentences


def left_out_of_pieces(pairs: list[tuple[str, str]]) -> str | None:
    """A line that says how many sentences are too long to train pieces on; None when none is."""
    count = sum(len(side.encode()) > LONGEST_TRAINED for pair in pairs for side in pair)
    if not count:
        return None
    return (
        f"{count:,} training sentence(s) of more than {LONGEST_TRAINED:,} bytes are left out when "
        "the pieces are trained (a limit of sentencepiece), but not of the data"
    )


def train_pieces(path: Path, pairs: list[tuple[str, str]], vocab_size: int) -> None:
    """Train the shared sentencepiece vocabulary and write it to ``path``; see make_pieces."""
    model = make_pieces(path.parent, pairs, vocab_size)
    with atomic_write(path) as stream:
        stream.write(model)


def make_pieces(folder: Path, pairs: list[tuple[str, str]], vocab_size: int) -> bytes:
    """A shared sentencepiece model, trained on both sides together; ``folder`` is for errors.

    Raises InputError when the text is too small for ``vocab_size`` pieces, or has more characters,
    and for less than one piece beside the four special ones.
    """
    if not 5 <= vocab_size <= MOST_PIECES:
        raise InputError(f"--vocab_size must be from 5 to {MOST_PIECES:,}, not {vocab_size}")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(
                [side for column in zip(*pairs, strict=True) for side in column]
            ),
            model_writer=model,
            vocab_size=vocab_size,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            num_threads=1,  # more change the result
            minloglevel=2,
        )
    except RuntimeError as error:
        most = re.search(r"Please set it to a value <= (\d+)", str(error))
        least = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if most:
            raise InputError(
                f"the training text of {folder} gives at most {most[1]} pieces, not "
                f"{vocab_size}: prepare_data.py --vocab_size {most[1]} (or fewer) makes them"
            ) from None
        if least:
            raise InputError(
                f"the training text of {folder} has {least[1]} different characters and "
                f"special pieces, more than --vocab_size {vocab_size}: give at least that many"
            ) from None
        raise InputError(f"no pieces could be trained on {folder}: {error}") from None
    return model.getvalue()


def load_pieces(path: Path) -> sentencepiece.SentencePieceProcessor:
    """The sentencepiece vocabulary at ``path``.

    Raises InputError when it is damaged, or its special pieces are not <pad> <s> </s> <unk> = 0..3.
    """
    try:
        pieces = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        specials = (pieces.pad_id(), pieces.bos_id(), pieces.eos_id(), pieces.unk_id())
    except RuntimeError:
        raise InputError(f"{path} is damaged or no sentencepiece model") from None
    if specials != (PAD, BOS, EOS, UNK):
        raise InputError(
            f"sentencepiece model {path}: pad, bos, eos and unk have the ids {specials}, but must "
            "have 0, 1, 2, 3; remove it, and it is trained anew"
        )
    try:
        for number in range(pieces.vocab_size()):
            pieces.id_to_piece(number)
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged: its pieces are no UTF-8") from None
    return pieces


def _encode(pieces: sentencepiece.SentencePieceProcessor, pairs: list[tuple[str, str]]) -> Pairs:
    sides = []
    for sentences in zip(*pairs, strict=True):
        rows = pieces.encode(list(sentences), add_bos=True, add_eos=True)
        values = np.fromiter((piece for row in rows for piece in row), dtype=np.int64)
        sides.append(Ragged(values, offsets_of(map(len, rows))))
    return Pairs(*sides, [trg for _, trg in pairs])


def sample_train(train: Pairs, size: int) -> list[int]:
    """Which training pairs are looked at beside the validation set (the papers' own draw)."""
    return sorted(random.Random(1).sample(range(len(train)), min(size, len(train))))


def token_pairs(src: Ragged, trg: Ragged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every source token beside every target token of its sentence, in the layout of the logs.

    Args:
        src, trg: piece ids of sentence pairs; the targets are those after <s>.

    Returns:
        src, trg (token pairs,) piece ids; (targets + 1,) offsets of each target's source tokens.
    """
    sentence = np.repeat(np.arange(len(trg)), trg.lengths - 1)  # (targets,)
    src_len = src.lengths[sentence]
    return src.values[src.places(sentence)], np.repeat(trg.rest, src_len), offsets_of(src_len)

"""Datasets of translation: reading, pieces, batches (docs/method.md, section 3)."""

import codecs
import io
import random
import re
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece
import torch

from attention_dynamics.analysis.ragged import Ragged, offsets_of
from attention_dynamics.cli import InputError
from attention_dynamics.runs.configs import absent_data_error
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.files import atomic_write, read_json, sha256
from attention_dynamics.storage.text import has_lone_surrogate, text_lines

PAD, BOS, EOS, UNK = range(4)
VOCAB_SIZE = 8000
# Sentences with more bytes are left out when sentencepiece trains, as in the published code.
LONGEST_TRAINED = 4192
MOST_PIECES = 10**6  # for more, sentencepiece would work for hours before it fails


class Layout(NamedTuple):
    """The paths of the files of a dataset.

    Attributes:
        folder: below data/; the sentencepiece model in it is named after it.
        val: stem of the validation files ("val" or "valid").
        src, trg: endings of the files of each side, after the dot.
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
        """The record that prepare_data.py writes."""
        return Path("data") / self.folder / "about.json"


LAYOUTS = {
    "multi30k": Layout("multi30k", "val", "de", "en"),
    "iwslt14": Layout("iwslt14", "valid", "de", "en"),
    "news_commentary_v14_en_nl": Layout("news-commentary-v14-en-nl", "val", "src", "trg", True),
    "news_commentary_v14_en_pt": Layout("news-commentary-v14-en-pt", "val", "src", "trg", True),
    "news_commentary_v14_it_pt": Layout("news-commentary-v14-it-pt", "val", "src", "trg", True),
}


def layout_of(dataset: str) -> Layout:
    """The layout of a dataset: the five of the paper, or one that prepare_data.py made.

    Raises InputError for an absent dataset (naming those in data/), and for a name that is not a
    plain file name.
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
            raise InputError(f'{about} must name the two "languages" of the dataset')
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
    """Encoded sentence pairs, and their target sentences in raw form.

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
        """The pairs with these indices, in this order."""
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
    """A dataset.

    Attributes:
        name: as on the command line.
        pieces: the shared vocabulary of subword tokens (pieces) of sentencepiece.
        train, val: encoded.
        dropped: pairs left out because a side was empty, by split.
        checksum: of the four files and the vocabulary.
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
    """Read, check and encode a dataset, once; its pieces are trained if there is no model.

    Raises InputError for an absent dataset, malformed files, sides of different lengths, a split
    without sentences, or a sentencepiece model with other special pieces.
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
    pairs, total = _read_lists(paths) if layout.is_json else _read_lines(paths, layout)
    pairs = [pair for pair in pairs if all(map(has_text, pair))]
    if not pairs:
        raise InputError(f"{paths[0]} and {paths[1]} hold no sentence pair")
    return pairs, total - len(pairs)


def has_text(sentence: str) -> bool:
    """Whether a sentence has a visible character: U+200B and U+FEFF, for example, are not."""
    return any(character.isalnum() or not _is_invisible(character) for character in sentence)


def _is_invisible(character: str) -> bool:
    # Control and format characters, combining marks, separators.
    return unicodedata.category(character) in ("Cc", "Cf", "Mn", "Me", "Zs", "Zl", "Zp")


def check_counts(paths, counts: tuple[int, int]) -> None:
    """Raise InputError if the two sides have different numbers of sentences."""
    first, second = counts
    if first != second:
        raise InputError(
            f"{paths[0]} has {first} sentences, but {paths[1]} has {second}: they must be aligned "
            "line by line"
        )


def _read_lists(paths: tuple[Path, Path]) -> tuple[list[tuple[str, str]], int]:
    """The pairs of two JSON lists, and the length of the lists."""
    sides = [_json_list(path) for path in paths]
    check_counts(paths, tuple(map(len, sides)))
    return [(src.strip(), trg.strip()) for src, trg in zip(*sides, strict=True)], len(sides[0])


def _read_lines(paths: tuple[Path, Path], layout: Layout) -> tuple[list[tuple[str, str]], int]:
    """The non-empty pairs of two files of lines, as torchtext reads them; the number of lines."""
    from torchtext.data import RawField  # slow to import
    from torchtext.datasets import TranslationDataset

    total = _check_lines(paths)
    endings = (f".{layout.src}", f".{layout.trg}")
    fields = [("src", RawField()), ("trg", RawField())]
    read = TranslationDataset(str(paths[0]).removesuffix(endings[0]), endings, fields)
    return [(example.src, example.trg) for example in read.examples], total


def _check_lines(paths: tuple[Path, Path]) -> int:
    """The number of lines of both files.

    Raises InputError for what torchtext would misread: a longer side, whose rest it leaves out, a
    carriage return inside of a line, where it starts a new one, and a byte-order mark.
    """
    counts = []
    for path in paths:
        number = 0
        with open(path, "rb") as stream:
            if stream.peek(3).startswith(codecs.BOM_UTF8):
                raise InputError(f"{path} starts with a byte-order mark; remove it")
            for number, line in enumerate(text_lines(stream, str(path)), 1):
                if "\r" in line.removesuffix("\n").removesuffix("\r"):
                    raise InputError(
                        f"{path} line {number} has a carriage return; replace it with a space"
                    )
        counts.append(number)
    check_counts(paths, tuple(counts))
    return counts[0]


def _json_list(path: Path) -> list[str]:
    sentences = read_json(path, "data file")
    if not isinstance(sentences, list) or not all(isinstance(text, str) for text in sentences):
        raise InputError(f"data file {path} must be a JSON list of sentences")
    for number, text in enumerate(sentences):
        if has_lone_surrogate(text):
            raise InputError(
                f"data file {path}: sentence {number} holds a lone surrogate (\\ud800 to \\udfff), "
                "which is invalid Unicode; remove it"
            )
    return sentences


def left_out_of_pieces(pairs: list[tuple[str, str]]) -> str | None:
    """A warning with the number of sentences too long to train pieces on; None if none is."""
    count = sum(len(side.encode()) > LONGEST_TRAINED for pair in pairs for side in pair)
    if not count:
        return None
    return (
        f"{count:,} training sentence(s) of more than {LONGEST_TRAINED:,} bytes are not used when "
        "the pieces are trained (a limit of sentencepiece), but stay in the data"
    )


def train_pieces(path: Path, pairs: list[tuple[str, str]], vocab_size: int) -> None:
    """Train the shared sentencepiece vocabulary and write it to ``path``; see make_pieces."""
    model = make_pieces(path.parent, pairs, vocab_size)
    with atomic_write(path) as stream:
        stream.write(model)


def make_pieces(folder: Path, pairs: list[tuple[str, str]], vocab_size: int) -> bytes:
    """A shared sentencepiece model, trained on both sides together; errors name ``folder``.

    The sentences are those of the source side, then those of the target side.

    Raises InputError if the text is too small for ``vocab_size`` pieces, or has more characters,
    and for less than one piece in addition to the four special ones.
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
            num_threads=1,  # more threads change the result
            minloglevel=2,
        )
    except RuntimeError as error:
        most = re.search(r"Please set it to a value <= (\d+)", str(error))
        least = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if most:
            raise InputError(
                f"the training text of {folder} gives at most {most[1]} pieces, not "
                f"{vocab_size}: use prepare_data.py --vocab_size {most[1]} (or fewer)"
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

    Raises InputError if it is corrupt, or its special pieces are not <pad> <s> </s> <unk> = 0..3.
    """
    try:
        pieces = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        specials = (pieces.pad_id(), pieces.bos_id(), pieces.eos_id(), pieces.unk_id())
    except RuntimeError:
        raise InputError(f"{path} is corrupt or not a sentencepiece model") from None
    if specials != (PAD, BOS, EOS, UNK):
        raise InputError(
            f"sentencepiece model {path}: pad, bos, eos and unk have the ids {specials}, but must "
            "have 0, 1, 2, 3; remove it to retrain it"
        )
    try:
        for number in range(pieces.vocab_size()):
            pieces.id_to_piece(number)
    except UnicodeDecodeError:
        raise InputError(f"{path} is corrupt: its pieces are not UTF-8") from None
    return pieces


def _encode(pieces: sentencepiece.SentencePieceProcessor, pairs: list[tuple[str, str]]) -> Pairs:
    sides = []
    for sentences in zip(*pairs, strict=True):
        rows = pieces.encode(list(sentences), add_bos=True, add_eos=True)
        values = np.fromiter((piece for row in rows for piece in row), dtype=np.int64)
        sides.append(Ragged(values, offsets_of(map(len, rows))))
    return Pairs(*sides, [trg for _, trg in pairs])


def sample_train(train: Pairs, size: int) -> list[int]:
    """Training pairs evaluated in addition to the validation set (drawn as in the papers' code)."""
    return sorted(random.Random(1).sample(range(len(train)), min(size, len(train))))


def token_pairs(src: Ragged, trg: Ragged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every pair of a source and a target token of a sentence, in the layout of the logs.

    Args:
        src, trg: piece ids of sentence pairs; the targets are those after <s>.

    Returns:
        src, trg (token pairs,) piece ids; (targets + 1,) offsets of each target's source tokens.
    """
    sentence = np.repeat(np.arange(len(trg)), trg.lengths - 1)  # (targets,)
    src_len = src.lengths[sentence]
    return src.values[src.places(sentence)], np.repeat(trg.rest, src_len), offsets_of(src_len)

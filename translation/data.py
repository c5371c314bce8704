"""Datasets of translation: reading, pieces, batches (docs/method.md, section 3)."""

import io
import itertools
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
from attention_dynamics.storage.text import has_lone_surrogate

PAD, BOS, EOS, UNK = range(4)
VOCAB_SIZE = 8000


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
        stem, folder = "train" if split == "train" else self.val, self.about.parent
        return folder / f"{stem}.{self.src}", folder / f"{stem}.{self.trg}"

    @property
    def pieces(self) -> Path:
        """The sentencepiece model."""
        return self.about.with_name(f"{self.folder}.model")

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
        try:
            src, trg = read_json(about, "data record")["languages"]
            check_name(src, f"{about}: language")
            check_name(trg, f"{about}: language")
        except (KeyError, TypeError, ValueError):
            raise InputError(f'{about} must name the two "languages" of the dataset') from None
        layout = Layout(dataset, "val", src, trg)
    for split in ("train", "val"):
        for path in layout.paths(split):
            if not path.exists():
                raise _absent(dataset, path)
    return layout


def _absent(dataset: str, path: Path) -> InputError:
    names = {layout.folder: name for name, layout in LAYOUTS.items()}
    there = [names.get(path.name, path.name) for path in Path("data").glob("*") if path.is_dir()]
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
        flat = {name: getattr(self, name).to(device) for name in ("src", "inputs", "targets")}
        return self._replace(**flat)


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
        model = make_pieces(layout.pieces.parent, texts["train"], VOCAB_SIZE)
        with atomic_write(layout.pieces) as stream:
            stream.write(model)
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
    return any(character.isprintable() and character != " " for character in sentence)


def check_counts(paths, counts: list[int]) -> None:
    """Raise InputError if the two sides have different numbers of sentences."""
    if counts[0] != counts[1]:
        raise InputError(
            f"{paths[0]} has {counts[0]} sentences, but {paths[1]} has {counts[1]}: they must be "
            "aligned line by line"
        )


def _read_lists(paths: tuple[Path, Path]) -> tuple[list[tuple[str, str]], int]:
    """The pairs of two JSON lists, and the length of the lists."""
    sides = [read_json(path, "data file") for path in paths]
    for path, side in zip(paths, sides, strict=True):
        if not isinstance(side, list) or not all(
            isinstance(text, str) and not has_lone_surrogate(text) for text in side
        ):
            raise InputError(f"data file {path} must be a JSON list of sentences (valid Unicode)")
    check_counts(paths, [*map(len, sides)])
    return [(src.strip(), trg.strip()) for src, trg in zip(*sides, strict=True)], len(sides[0])


def _read_lines(paths: tuple[Path, Path], layout: Layout) -> tuple[list[tuple[str, str]], int]:
    """The non-empty pairs of two files of lines, as torchtext reads them; the number of lines."""
    from torchtext.data import RawField  # slow to import
    from torchtext.datasets import TranslationDataset

    counts = []
    for path in paths:  # torchtext leaves out the rest of a longer side
        try:
            with open(path, encoding="utf-8") as lines:
                counts.append(sum(1 for _ in lines))
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 text: {error.reason}") from None
    check_counts(paths, counts)
    endings = (f".{layout.src}", f".{layout.trg}")
    fields = [("src", RawField()), ("trg", RawField())]
    read = TranslationDataset(str(paths[0]).removesuffix(endings[0]), endings, fields)
    pairs = [(example.src, example.trg) for example in read.examples]
    # A file may start with a byte-order mark, which is no part of its first word.
    pairs[:1] = [tuple(side.removeprefix("\ufeff").strip() for side in pair) for pair in pairs[:1]]
    return pairs, counts[0]


def make_pieces(folder: Path, pairs: list[tuple[str, str]], vocab_size: int) -> bytes:
    """A shared sentencepiece model, trained on both sides together; errors name ``folder``.

    The sentences are those of the source side, then those of the target side.

    Raises InputError if the text is too small for ``vocab_size`` pieces, or has more characters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain(*zip(*pairs, strict=True)),
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
        # "Vocabulary size too high (8000). Please set it to a value <= 600.", for example
        reason = str(error).rpartition("] ")[2].rstrip(".") or "too few pieces"
        raise InputError(
            f"--vocab_size {vocab_size} does not fit the training text of {folder}: {reason}; give "
            "another --vocab_size to prepare_data.py"
        ) from None
    return model.getvalue()


def load_pieces(path: Path) -> sentencepiece.SentencePieceProcessor:
    """The sentencepiece vocabulary at ``path``.

    Raises InputError if it is corrupt, or its special pieces are not <pad> <s> </s> <unk> = 0..3.
    """
    try:
        pieces = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        specials = (pieces.pad_id(), pieces.bos_id(), pieces.eos_id(), pieces.unk_id())
        pieces.id_to_piece([*range(pieces.vocab_size())])
    except (RuntimeError, UnicodeDecodeError):
        raise InputError(f"{path} is corrupt or not a sentencepiece model") from None
    if specials != (PAD, BOS, EOS, UNK):
        raise InputError(
            f"sentencepiece model {path}: pad, bos, eos and unk have the ids {specials}, but must "
            "have 0, 1, 2, 3; remove it to retrain it"
        )
    return pieces


def _encode(pieces: sentencepiece.SentencePieceProcessor, pairs: list[tuple[str, str]]) -> Pairs:
    sides = []
    for sentences in zip(*pairs, strict=True):
        rows = pieces.encode(list(sentences), add_bos=True, add_eos=True)
        values = np.fromiter((piece for row in rows for piece in row), dtype=np.int64)
        sides.append(Ragged(values, offsets_of(map(len, rows))))
    return Pairs(*sides, [trg for _, trg in pairs])


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

"""A BERT of two layers with random weights, and a task of acceptability of generated sentences."""

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, BertConfig, PreTrainedTokenizerFast

LAYERS, HEADS = 2, 4
WORDS = ("the", "a", "dog", "cat", "bird", "sees", "likes", "hears", "sleeps", "red", "big", "old")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
SIZES = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "initializer_range": 0.3,  # attention far from uniform
}


def tokenizer() -> PreTrainedTokenizerFast:
    """A word is a token; token types tell a pair's sentences apart."""
    vocab = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    made = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    columns = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=columns, **names)


def words(rng: random.Random) -> list[str]:
    return [rng.choice(WORDS) for _ in range(rng.randint(2, 8))]


def write_cola(folder: Path, rng: random.Random) -> None:
    folder.mkdir()
    for split, size in (("train", 24), ("dev", 10)):
        rows = (f"x\t{number % 2}\t\t{' '.join(words(rng))}\n" for number in range(size))
        (folder / f"{split}.tsv").write_text("".join(rows))
    rows = (f"{number}\t{' '.join(words(rng))}\n" for number in range(5))
    (folder / "test.tsv").write_text("index\tsentence\n" + "".join(rows))


def make_tiny_task(folder: Path) -> None:
    """The encoder in ``folder``/encoder, the task in ``folder``/cola."""
    torch.manual_seed(0)
    AutoModel.from_config(BertConfig(**SIZES)).save_pretrained(folder / "encoder")
    tokenizer().save_pretrained(folder / "encoder")
    write_cola(folder / "cola", random.Random(0))

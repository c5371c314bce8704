"""The model that is trained: an encoder with constant or mixed heads, and a classifier on it."""

from collections.abc import Sequence

import torch
from attention import Heads, MixedHeads, Positions
from encoders import Encoder, derives_positions, quiet_library, replace_attention
from metrics import IGNORED
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput


class SequencePooler(nn.Module):
    """The freeze-extract pooler: tanh(linear of [pooled_0; ...; pooled_layers]) (Section 4).

    pooled_i = sum_j w_ij m_j h_ij, with the states h_i of layer i (0: the embeddings).
    """

    def __init__(self, layers: int, length: int, hidden: int):
        super().__init__()
        self.weights_per_layer = nn.Parameter(torch.full((layers + 1, length), 1 / length))
        self.dense_across_layers = nn.Linear((layers + 1) * hidden, hidden)

    def forward(self, states: list[Tensor], valid: Tensor, positions: Positions) -> Tensor:
        """(batch, hidden) from states (batch, len, hidden) and valid positions (batch, len)."""
        weights = positions.select(self.weights_per_layer, 1)
        valid = valid.to(weights.dtype)
        pooled = [
            ((weight * valid)[:, None] @ state)[:, 0]
            for weight, state in zip(weights, states, strict=True)
        ]
        return self.dense_across_layers(torch.cat(pooled, dim=-1)).tanh()


class TokenHead(nn.Module):
    """The head of token classification: linear(tanh(linear of a token's states of all layers))."""

    def __init__(self, layers: int, hidden: int, labels: int):
        super().__init__()
        self.dense_across_layers_1 = nn.Linear((layers + 1) * hidden, hidden)
        self.decoder = nn.Linear(hidden, labels)

    def forward(self, states: list[Tensor]) -> Tensor:
        """Logits (..., labels) from states (..., hidden), such as (batch, len, hidden)."""
        return self.decoder(self.dense_across_layers_1(torch.cat(states, dim=-1)).tanh())


class FrozenHead(nn.Module):
    """The trained part on the encoder's states: a pooler and a classifier, or a token head."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        layers, hidden = config.num_hidden_layers, config.hidden_size
        self.task, self.config = config.papa["task"], config
        if self.task == "token":
            self.token_head = TokenHead(layers, hidden, config.num_labels)
            return
        self.pooler = SequencePooler(layers, config.papa["max_length"], hidden)
        names = ("classifier_dropout", "hidden_dropout_prob", "seq_classif_dropout")
        given = [getattr(config, name, None) for name in names]
        self.dropout = nn.Dropout(next(dropout for dropout in given if dropout is not None))
        self.classifier = nn.Linear(hidden, config.num_labels)

    def forward(
        self, states: list[Tensor], valid: Tensor, positions: Positions, labels: Tensor | None
    ) -> SequenceClassifierOutput:
        """Logits and, given labels, the loss; in training the logits of labeled tokens only.

        Args:
            states: of layers 0 (the embeddings) to the last, each (batch, len, hidden).
            valid: (batch, len), 0 for padding.
            positions: the positions of the columns.
            labels: (batch,) or (batch, len), -100 for unlabeled tokens; float for a regression.
        """
        if self.task == "token":
            if self.training and labels is not None:  # nothing else enters the loss
                labeled = labels != IGNORED
                states = [state[labeled] for state in states]
                labels = labels[labeled]
            logits = self.token_head(states)
        else:
            logits = self.classifier(self.dropout(self.pooler(states, valid, positions)))
        return SequenceClassifierOutput(loss=task_loss(logits, labels), logits=logits)


def task_loss(logits: Tensor, labels: Tensor | None) -> Tensor | None:
    """Cross-entropy over labels that are not -100, or the squared error of a single output."""
    if labels is None:
        return None
    if logits.shape[-1] == 1:
        return F.mse_loss(logits.squeeze(-1), labels.to(logits.dtype))
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


class PapaModel(PreTrainedModel):
    """An encoder with constant or mixed heads, and the head of a task.

    Its settings are ``config.papa``: ``task`` ("sequence" or "token"), ``max_length`` (of constants
    and pooler), ``static_heads`` (the constant heads of each layer), ``mixed``, ``pooler`` (whether
    the freeze-extract head replaces the library's own). save_pretrained and from_pretrained work as
    for any model of the library.
    """

    config_class = PreTrainedConfig
    base_model_prefix = "stock"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True

    def __init__(self, config: PreTrainedConfig, stock: PreTrainedModel | None = None):
        """Make the model of ``config`` from the pretrained ``stock``, or with random weights."""
        super().__init__(config)
        settings = config.papa
        if stock is None:
            stock = stock_class(settings).from_config(config, attn_implementation="eager")
        self.stock = stock
        if settings["pooler"]:
            stock.pooler = None
            self.head = FrozenHead(config)
        self.post_init()
        kind = MixedHeads if settings["mixed"] else Heads
        self.layers, self.positions = replace_attention(
            stock.base_model, kind, settings["static_heads"], settings["max_length"]
        )
        self.derives_positions = derives_positions(stock.base_model)

    @classmethod
    def from_pretrained(cls, folder, *args, config: PreTrainedConfig | None = None, **options):
        """Read a saved model; its configuration is that of the encoder's family, with ``papa``."""
        config = config or AutoConfig.from_pretrained(folder)
        return super().from_pretrained(folder, *args, config=config, **options)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Logits (batch, labels), or (batch, len, labels) of tokens, and the loss given labels.

        Args:
            input_ids: (batch, len).
            attention_mask: (batch, len), 0 for padding; None without padding.
            token_type_ids: (batch, len), for encoders that have them.
            labels: (batch,) or (batch, len), -100 for unlabeled tokens.
            positions: (len,), the positions of the columns, ascending; None for 0, 1, ...
        """
        inputs = self._inputs(input_ids, attention_mask, token_type_ids, positions)
        if self.config.papa["pooler"]:
            states = self.stock(**inputs, output_hidden_states=True).hidden_states
            valid = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            return self.head(states, valid, self.positions, labels)
        logits = self.stock(**inputs).logits
        return SequenceClassifierOutput(loss=task_loss(logits, labels), logits=logits)

    def states(self, *inputs, **more) -> tuple[Tensor, ...]:
        """States (batch, len, hidden) of all layers; arguments as of :meth:`forward`."""
        inputs = self._inputs(*inputs, **more)
        return self.stock.base_model(**inputs, output_hidden_states=True).hidden_states

    def _inputs(self, input_ids, attention_mask=None, token_type_ids=None, positions=None) -> dict:
        if positions is None:
            positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        self.positions.used = positions
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        if not self.derives_positions:
            inputs["position_ids"] = positions[None]
        return inputs

    @torch.no_grad()
    def set_constants(self, averages: Tensor) -> None:
        """Copy the constants from averages (layer, head, max_length, max_length)."""
        for heads, averages_here in zip(self.layers, averages, strict=True):
            heads.constants.copy_(averages_here[heads.static])

    @property
    def lambdas(self) -> Tensor:
        """λ of mixed heads, (layer, head)."""
        return torch.stack([heads.lambdas.detach() for heads in self.layers])

    def freeze(self, encoder: bool = True, constants: bool = False) -> None:
        """Freeze the ``encoder``, or not; train the ``constants``, or not; train head and λ."""
        for name, parameter in self.stock.base_model.named_parameters():
            if name.endswith(".papa.constants"):
                parameter.requires_grad_(constants)
            else:
                is_head = name.startswith("pooler.") or name.endswith(".papa.lambdas")
                parameter.requires_grad_(is_head or not encoder)


def stock_class(settings: dict) -> type:
    """The library's class of the encoder, with its own head of the task if that is used."""
    if settings["pooler"]:
        return AutoModel
    if settings["task"] == "token":
        return AutoModelForTokenClassification
    return AutoModelForSequenceClassification


def load_model(encoder: Encoder, labels: Sequence[str], settings: dict) -> PapaModel:
    """The encoder with heads as in ``settings`` (see :class:`PapaModel`), and a new head.

    The model contains ``encoder.base``. There are no ``labels`` for a regression.
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
        with quiet_library(encoder.name):
            stock = stock_class(settings).from_pretrained(
                encoder.source, config=config, attn_implementation="eager", **encoder.options
            )
    return PapaModel(config, stock)

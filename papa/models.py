"""Pretrained encoders whose attention is constant, mixed or recorded (PAPA, Section 3).

A head's attention is one of

* dynamic: softmax(q k' / sqrt(d)), as pretrained;
* constant: the head's average matrix C, masked and normalised for each example: with m the valid
  positions, A_ij = m_i m_j C_ij / sum_j |m_j C_ij|, a row of zeros where that sum is zero;
* mixed, while heads are ordered: sigma(lambda) dynamic + (1 - sigma(lambda)) constant.

Encoders that look their attention up in the library's registry (BERT, RoBERTa, XLM-R, ELECTRA,
DistilBERT) use :func:`papa_attention`, registered under the name "papa"; DeBERTa gets
:class:`DisentangledHeads` in place of its own attention. Either hands queries, keys and values to
the layer's ``papa``: :class:`Heads`, :class:`MixedHeads` or :class:`RecordedHeads`.
"""

import copy

import torch
from tasks import IGNORED
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention

from attention_dynamics.cli import InputError

ATTENTION = "papa"  # our name in the library's registries

# What the library calls the projections of queries, keys and values.
PROJECTIONS = (("query", "key", "value"), ("q_lin", "k_lin", "v_lin"))


class Columns:
    """The positions that the columns of the present batch stand for; all of them when None.

    One object is shared by a model and its layers.
    """

    places: Tensor | None = None

    def of(self, matrices: Tensor, *dims: int) -> Tensor:
        """``matrices`` with only these positions left in ``dims``."""
        if self.places is not None:
            for dim in dims:
                matrices = matrices.index_select(dim, self.places)
        return matrices


class Heads(nn.Module):
    """The heads of a layer: some constant, the others dynamic.

    Attributes:
        static: numbers of the constant heads, rising.
        dynamic: numbers of the others, rising.
        constants: (static, max_length, max_length), a parameter.
        calls: how many times the layer has attended.
    """

    def __init__(self, heads: int, static: list[int], length: int, columns: Columns):
        """Constants of zeros, to be filled by :meth:`fill`, load_state_dict or from_pretrained."""
        super().__init__()
        self.static = sorted(static)
        self.dynamic = [head for head in range(heads) if head not in self.static]
        self.columns = columns
        self.constants = nn.Parameter(torch.zeros(len(self.static), length, length))
        self.calls = 0

    @torch.no_grad()
    def fill(self, constants: Tensor) -> None:
        """Take the constants of this layer from all of its averages (head, L, L)."""
        self.constants.copy_(constants[self.static])

    def attend(
        self,
        query: Tensor | None,
        key: Tensor | None,
        value: Tensor,
        valid: Tensor | None,
        scaling: float,
        dropout: float = 0.0,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Contexts (batch, len, head, head_size).

        Args:
            query: (batch, dynamic, len, head_size); not looked at when all heads are constant.
            key: as ``query``.
            value: (batch, head, len, head_size).
            valid: (batch, len) bool, the positions that are not padding; None when all are valid.
            scaling: factor of the products of queries and keys.
            dropout: share of attention weights set to zero, 0 in evaluation.
            bias: (batch, dynamic, len, len), added to the scaled products.
        """
        self.calls += 1
        if not self.static:
            return dynamic_context(query, key, value, valid, scaling, dropout, bias).transpose(1, 2)
        constants = self.columns.of(self.constants, 1, 2)
        if not self.dynamic:
            return constant_context(constants, value, valid, dropout)
        batch, heads, length, size = value.shape
        contexts = value.new_empty(batch, length, heads, size)
        contexts[:, :, self.static] = constant_context(
            constants, value[:, self.static], valid, dropout
        )
        contexts[:, :, self.dynamic] = dynamic_context(
            query, key, value[:, self.dynamic], valid, scaling, dropout, bias
        ).transpose(1, 2)
        return contexts


class MixedHeads(Heads):
    """The heads of a layer, each a mixture of its dynamic and its constant attention (Step 2).

    Attributes:
        lambdas: (head,), initially 0.
    """

    def __init__(self, heads: int, static: list[int], length: int, columns: Columns):
        """All heads are mixed; ``static`` must be empty."""
        assert not static, "mixed heads are neither constant nor dynamic"
        super().__init__(heads, list(range(heads)), length, columns)
        self.dynamic = list(range(heads))  # they keep their queries and keys
        self.lambdas = nn.Parameter(torch.zeros(heads))

    def attend(self, query, key, value, valid, scaling, dropout=0.0, bias=None) -> Tensor:
        """As :meth:`Heads.attend`."""
        self.calls += 1
        constants = self.columns.of(self.constants, 1, 2)
        share = self.lambdas.sigmoid()
        if dropout:
            share = share[:, None, None]
            attention = share * dynamic_attention(query, key, valid, scaling, bias)
            attention = attention + (1 - share) * constant_attention(constants, valid)
            return (F.dropout(attention, dropout) @ value).transpose(1, 2)
        share = share[:, None]  # (head, 1), of contexts (batch, len, head, head_size)
        dynamic = dynamic_context(query, key, value, valid, scaling, 0.0, bias).transpose(1, 2)
        return share * dynamic + (1 - share) * constant_context(constants, value, valid, 0.0)


class RecordedHeads(Heads):
    """The heads of a layer, all dynamic, whose attention is summed over examples (Step 1).

    Attributes:
        sums: (head, max_length, max_length) float64, of valid queries and keys.
    """

    def __init__(self, heads: int, static: list[int], length: int, columns: Columns):
        """Sums of zero."""
        super().__init__(heads, static, length, columns)
        self.sums = torch.zeros(heads, length, length, dtype=torch.float64)

    def attend(self, query, key, value, valid, scaling, dropout=0.0, bias=None) -> Tensor:
        """As :meth:`Heads.attend`, but rows of padding are zero."""
        self.calls += 1
        attention = dynamic_attention(query, key, valid, scaling, bias)
        if valid is not None:
            attention *= valid[:, None, :, None]
        sums = attention.sum(dim=0).to(self.sums)
        if self.columns.places is None:
            self.sums += sums
        else:
            places = self.columns.places.to(self.sums.device)
            self.sums[:, places[:, None], places] += sums
        return (attention @ value).transpose(1, 2)


def dynamic_attention(
    query: Tensor, key: Tensor, valid: Tensor | None, scaling: float, bias: Tensor | None
) -> Tensor:
    """softmax(q k' scaling + bias) over valid keys, (batch, head, len, len)."""
    scores = query @ key.transpose(2, 3) * scaling
    if bias is not None:
        scores = scores + bias
    if valid is not None:
        scores = scores.masked_fill(~valid[:, None, None], torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1)


def dynamic_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor | None,
    scaling: float,
    dropout: float,
    bias: Tensor | None,
) -> Tensor:
    """Contexts (batch, head, len, head_size) of :func:`dynamic_attention`, by the fused kernel."""
    mask = None if valid is None else valid[:, None, None]
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling
    )


def constant_attention(constants: Tensor, valid: Tensor | None) -> Tensor:
    """Constants masked and normalised, (batch, head, len, len); 1 for batch when all are valid."""
    matrices = constants[None]
    if valid is not None:
        valid = valid.to(constants.dtype)
        matrices = matrices * valid[:, None, :, None] * valid[:, None, None, :]
    return F.normalize(matrices, p=1, dim=-1, eps=torch.finfo(constants.dtype).tiny)


def constant_context(
    constants: Tensor, value: Tensor, valid: Tensor | None, dropout: float
) -> Tensor:
    """Contexts (batch, len, head, head_size) of constant heads.

    Without dropout no (batch, head, len, len) tensor is made: each head's matrix is multiplied once
    with the values of all examples, and the rows are divided by their norms afterwards.

    Args:
        constants: (head, len, len).
        value: (batch, head, len, head_size).
        valid: (batch, len) bool, or None when all positions are valid.
        dropout: share of attention weights set to zero, 0 in evaluation.
    """
    if dropout:
        attention = constant_attention(constants, valid)
        attention = F.dropout(attention.expand(len(value), -1, -1, -1), dropout)
        return (attention @ value).transpose(1, 2)
    batch, heads, length, size = value.shape
    values = value.permute(1, 2, 0, 3)  # (head, len, batch, head_size)
    if valid is None:
        norms = constants.abs().sum(dim=-1)[:, :, None]
    else:
        columns = valid.t().to(constants.dtype)  # (len, batch)
        values = values * columns[:, :, None]
        norms = (constants.abs() @ columns).masked_fill(~valid.t(), torch.inf)
    norms = norms.clamp(min=torch.finfo(norms.dtype).tiny)  # a row of zeros stays one
    contexts = torch.bmm(constants, values.reshape(heads, length, batch * size))
    contexts = contexts.view(heads, length, batch, size) / norms[..., None]
    return contexts.permute(2, 1, 0, 3)


def papa_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """The function of the library's attention registry: contexts (batch, len, head, head_size)."""
    valid = None if attention_mask is None else attention_mask[:, 0, 0]
    contexts = module.papa.attend(query, key, value, valid, module.scaling, dropout)
    return contexts, None


def papa_mask(attention_mask: Tensor | None = None, **_) -> Tensor | None:
    """The function of the library's mask registry: valid keys (batch, 1, 1, len), or None."""
    return None if attention_mask is None else attention_mask[:, None, None]


AttentionInterface.register(ATTENTION, papa_attention)
AttentionMaskInterface.register(ATTENTION, papa_mask)


class NoProjection(nn.Module):
    """In place of the queries or keys of a layer without dynamic heads: computes nothing."""

    def __init__(self, head_size: int):
        """A stand-in that gives something of the shape of a single head."""
        super().__init__()
        self.head_size = head_size

    def forward(self, hidden_states: Tensor) -> Tensor:
        """A part (batch, len, head_size) of the states, which nobody looks at."""
        return hidden_states[..., : self.head_size]


def rows_of(heads: list[int], head_size: int) -> Tensor:
    """The rows of a projection that belong to ``heads``."""
    return (torch.tensor(heads)[:, None] * head_size + torch.arange(head_size)).flatten()


def narrowed(linear: nn.Linear, heads: list[int], head_size: int) -> nn.Module:
    """The projection onto ``heads`` only."""
    if not heads:
        return NoProjection(head_size)
    rows = rows_of(heads, head_size).to(linear.weight.device)
    result = nn.Linear(
        linear.in_features,
        len(rows),
        bias=linear.bias is not None,
        device=linear.weight.device,
        dtype=linear.weight.dtype,
    )
    with torch.no_grad():
        result.weight.copy_(linear.weight[rows])
        if linear.bias is not None:
            result.bias.copy_(linear.bias[rows])
    return result


class DisentangledHeads(nn.Module):
    """DeBERTa's attention: contents and relative positions (He et al. 2021, equation 4).

    Scores are (q_c k_c' + q_c k_r' + k_c q_r') / sqrt(3 d): contents with contents, contents with
    the distance to the key, and keys with the distance to the query. Constant heads have no part in
    them; their queries, keys and projected positions are left out.
    """

    def __init__(self, stock: DisentangledSelfAttention, papa: Heads):
        """The attention of a stock layer, whose weights are copied."""
        super().__init__()
        if stock.talking_head:
            raise InputError("DeBERTa with talking heads mixes its heads: none can be constant")
        heads, size = stock.num_attention_heads, stock.attention_head_size
        self.heads, self.head_size, self.papa = heads, size, papa
        self.terms = [term for term in ("c2p", "p2c") if term in stock.pos_att_type]
        if not stock.relative_attention:
            self.terms = []
        self.scaling = (size * (1 + len(stock.pos_att_type))) ** -0.5
        # in_proj holds [q | k | v] of each head.
        weight = stock.in_proj.weight.view(heads, 3, size, -1)
        parts = {
            "query": (weight[:, 0], stock.q_bias),
            "key": (weight[:, 1], None),
            "value": (weight[:, 2], stock.v_bias),
        }
        for name, (part, bias) in parts.items():
            linear = nn.Linear(
                part.shape[-1], heads * size, bias=bias is not None, device=part.device
            )
            with torch.no_grad():
                linear.weight.copy_(part.reshape(heads * size, -1))
                if bias is not None:
                    linear.bias.copy_(bias)
            kept = list(range(heads)) if name == "value" else papa.dynamic
            self.add_module(name, narrowed(linear, kept, size))
        if self.terms and papa.dynamic:
            self.max_distance = stock.max_relative_positions
            self.pos_dropout = copy.deepcopy(stock.pos_dropout)
            for term, name in (("c2p", "pos_proj"), ("p2c", "pos_q_proj")):
                if term in self.terms:
                    self.add_module(name, narrowed(getattr(stock, name), papa.dynamic, size))
        self.dropout = stock.dropout

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Contexts (batch, len, hidden); arguments as DeBERTa's own attention has them."""
        valid = attention_mask[:, 0].diagonal(dim1=-2, dim2=-1).bool()  # of m m'
        value = self._by_head(self.value(hidden_states))
        query = key = bias = None
        if self.papa.dynamic:
            query = self._by_head(self.query(hidden_states))
            key = self._by_head(self.key(hidden_states))
            if self.terms:
                bias = self._distances(query, key, rel_embeddings)
        dropout = self.dropout.p if self.training else 0.0
        contexts = self.papa.attend(query, key, value, valid, self.scaling, dropout, bias)
        return contexts.flatten(2), None

    def _by_head(self, projected: Tensor) -> Tensor:
        """(batch, len, head * head_size) as (batch, head, len, head_size)."""
        return projected.unflatten(-1, (-1, self.head_size)).transpose(1, 2)

    def _distances(self, query: Tensor, key: Tensor, embeddings: Tensor) -> Tensor:
        """The scaled scores (batch, head, len, len) in which positions take part."""
        places = self.papa.columns.places
        if places is None:
            places = torch.arange(query.shape[2], device=query.device)
        distance = places[:, None] - places  # of query i to key j
        index = (distance + self.max_distance).clamp(0, 2 * self.max_distance - 1)
        embeddings = self.pos_dropout(embeddings)[None]
        shape = (*query.shape[:2], -1, -1)
        bias = query.new_zeros(())
        if "c2p" in self.terms:
            scores = query @ self._by_head(self.pos_proj(embeddings)).transpose(2, 3)
            bias = bias + scores.gather(-1, index.expand(shape))
        if "p2c" in self.terms:
            scores = key @ self._by_head(self.pos_q_proj(embeddings)).transpose(2, 3)
            bias = bias + scores.gather(-1, index.t().expand(shape)).transpose(2, 3)
        return bias * self.scaling


def attentions(encoder: PreTrainedModel) -> list[tuple[nn.Module, str, nn.Module]]:
    """The self-attention of every layer, as (its parent, its name there, itself)."""
    found = [
        (parent, name, module)
        for parent in encoder.modules()
        for name, module in parent.named_children()
        if isinstance(module, DisentangledSelfAttention)
        or any(
            all(isinstance(getattr(module, part, None), nn.Linear) for part in parts)
            for parts in PROJECTIONS
        )
    ]
    if len(found) != encoder.config.num_hidden_layers:
        raise InputError(
            f"{encoder.config.model_type}: {len(found)} attention layers were found, not the "
            f"{encoder.config.num_hidden_layers} of its configuration; BERT, RoBERTa, XLM-R, "
            "ELECTRA, DistilBERT and DeBERTa (v1) are known to work"
        )
    return found


def install(
    encoder: PreTrainedModel, kind: type[Heads], static: list[list[int]], length: int
) -> tuple[list[Heads], Columns]:
    """Give every layer of a stock encoder its heads; queries and keys of constant ones go.

    Args:
        encoder: BERT, RoBERTa, XLM-R, ELECTRA, DistilBERT or DeBERTa without its task's head.
        kind: what attends.
        static: the constant heads of each layer.
        length: of the constants.

    Returns:
        the heads of each layer, and the positions they share. Raises InputError for an encoder that
        does not let its attention be replaced.
    """
    columns, found = Columns(), attentions(encoder)
    heads, device = encoder.config.num_attention_heads, encoder.device
    size = encoder.config.hidden_size // heads
    encoder.config._attn_implementation = ATTENTION
    disentangled = isinstance(found[0][2], DisentangledSelfAttention)
    if not disentangled and device.type != "meta":
        # Before queries and keys are gone: an encoder that ignores us would fail on their shapes.
        for _, _, module in found:
            module.papa = Heads(heads, [], length, columns)
        check_used(encoder, [module.papa for _, _, module in found])
    layers = [kind(heads, static_here, length, columns).to(device) for static_here in static]
    for (parent, name, module), papa in zip(found, layers, strict=True):
        if disentangled:
            setattr(parent, name, DisentangledHeads(module, papa))
            continue
        module.papa = papa
        if len(papa.dynamic) < heads:
            for parts in PROJECTIONS:
                if hasattr(module, parts[0]):
                    for part in parts[:2]:
                        setattr(module, part, narrowed(getattr(module, part), papa.dynamic, size))
    return layers, columns


def counts_positions(encoder: PreTrainedModel) -> bool:
    """Whether an encoder derives positions from the tokens that are not padding, as RoBERTa does.

    Then it makes no difference to it where they stand, and it needs no position ids.
    """
    return hasattr(encoder.embeddings, "create_position_ids_from_input_ids")


@torch.no_grad()
def check_used(encoder: PreTrainedModel, layers: list[Heads]) -> None:
    """Run the encoder on two tokens; InputError unless every layer attends with its heads."""
    training = encoder.training
    columns = layers[0].columns
    encoder.eval()
    columns.places = torch.arange(2, device=encoder.device)
    encoder(torch.ones(1, 2, dtype=torch.long, device=encoder.device))
    columns.places = None
    encoder.train(training)
    idle = [layer for layer, heads in enumerate(layers) if heads.calls != 1]
    if idle:
        raise InputError(
            f"{encoder.config.model_type} ignores the library's attention registry (layers "
            f"{', '.join(map(str, idle))} kept their own): its attention cannot be replaced"
        )
    for heads in layers:
        heads.calls = 0
        if isinstance(heads, RecordedHeads):
            heads.sums.zero_()


class SequencePooler(nn.Module):
    """The freeze-extract pooler: tanh(linear of [pooled_0; ...; pooled_layers]) (Section 4).

    pooled_i = sum_j w_ij m_j h_ij, of the states h_i of layer i (0: the embeddings).
    """

    def __init__(self, layers: int, length: int, hidden: int):
        """A weight for each of layers + 1 states and each of ``length`` positions."""
        super().__init__()
        self.weights_per_layer = nn.Parameter(torch.full((layers + 1, length), 1 / length))
        self.dense_across_layers = nn.Linear((layers + 1) * hidden, hidden)

    def forward(self, states: list[Tensor], valid: Tensor, columns: Columns) -> Tensor:
        """(batch, hidden) of states (batch, len, hidden) and valid positions (batch, len)."""
        weights = columns.of(self.weights_per_layer, 1)
        valid = valid.to(weights.dtype)
        pooled = [
            ((weight * valid)[:, None] @ state)[:, 0]
            for weight, state in zip(weights, states, strict=True)
        ]
        return self.dense_across_layers(torch.cat(pooled, dim=-1)).tanh()


class TokenHead(nn.Module):
    """The head of token classification: linear(tanh(linear of a token's states of all layers))."""

    def __init__(self, layers: int, hidden: int, labels: int):
        """For layers + 1 states of size ``hidden``."""
        super().__init__()
        self.dense_across_layers_1 = nn.Linear((layers + 1) * hidden, hidden)
        self.decoder = nn.Linear(hidden, labels)

    def forward(self, states: list[Tensor]) -> Tensor:
        """Logits (..., labels) of states (..., hidden), such as (batch, len, hidden)."""
        return self.decoder(self.dense_across_layers_1(torch.cat(states, dim=-1)).tanh())


class FrozenHead(nn.Module):
    """What is trained on the encoder's states: a pooler and a classifier, or a token head."""

    def __init__(self, config: PreTrainedConfig):
        """The head that ``config.papa`` asks for."""
        super().__init__()
        layers, hidden = config.num_hidden_layers, config.hidden_size
        self.task, self.config = config.papa["task"], config
        if self.task == "token":
            self.token_head = TokenHead(layers, hidden, config.num_labels)
            return
        self.pooler = SequencePooler(layers, config.papa["max_length"], hidden)
        dropout = getattr(config, "classifier_dropout", None)
        if dropout is None:
            dropout = getattr(config, "hidden_dropout_prob", None)
        if dropout is None:
            dropout = config.seq_classif_dropout  # DistilBERT
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden, config.num_labels)

    def forward(
        self, states: list[Tensor], valid: Tensor, columns: Columns, labels: Tensor | None
    ) -> SequenceClassifierOutput | TokenClassifierOutput:
        """Logits and, given labels, the loss; in training the logits of labelled tokens only.

        Args:
            states: of layers 0 (the embeddings) to the last, each (batch, len, hidden).
            valid: (batch, len), the positions that are not padding.
            columns: the positions that the states stand for.
            labels: (batch,) or (batch, len) with -100 where there is none; float for a regression.
        """
        if self.task == "token":
            if self.training and labels is not None:  # nothing else counts
                labelled = labels != IGNORED
                states = [state[labelled] for state in states]
                labels = labels[labelled]
            logits = self.token_head(list(states))
            output = TokenClassifierOutput
        else:
            logits = self.classifier(self.dropout(self.pooler(states, valid, columns)))
            output = SequenceClassifierOutput
        return output(loss=loss_of(logits, labels), logits=logits)


def loss_of(logits: Tensor, labels: Tensor | None) -> Tensor | None:
    """Cross-entropy over labels that are not -100, or the squared error of a single output."""
    if labels is None:
        return None
    if logits.shape[-1] == 1:
        return F.mse_loss(logits.squeeze(-1), labels.to(logits.dtype))
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


class PapaModel(PreTrainedModel):
    """An encoder with constant or mixed heads, and the head of a task.

    ``config.papa`` says what it is: ``task`` ("sequence" or "token"), ``max_length`` (of constants
    and pooler), ``static_heads`` (the constant heads of each layer), ``mixed``, ``pooler`` (whether
    the freeze-extract head takes the place of the library's own). save_pretrained and
    from_pretrained work as for any model of the library.
    """

    config_class = PreTrainedConfig
    base_model_prefix = "stock"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True

    def __init__(self, config: PreTrainedConfig, stock: PreTrainedModel | None = None):
        """The model of ``config``; ``stock`` is the pretrained one to take over, if there is one.

        Raises InputError for an encoder that does not let its attention be replaced.
        """
        super().__init__(config)
        settings = config.papa
        if stock is None:
            stock = stock_class(settings).from_config(config, attn_implementation="eager")
        attentions(stock.base_model)  # refuse what cannot work before anything else fails
        self.stock = stock
        if settings["pooler"]:
            if hasattr(stock, "pooler"):
                stock.pooler = None
            self.head = FrozenHead(config)
        self.post_init()
        kind = MixedHeads if settings["mixed"] else Heads
        self.layers, self.columns = install(
            stock.base_model, kind, settings["static_heads"], settings["max_length"]
        )
        self.counts_positions = counts_positions(stock.base_model)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, SequencePooler):
            init.constant_(module.weights_per_layer, 1 / module.weights_per_layer.shape[1])

    @classmethod
    def from_pretrained(cls, folder, *args, config: PreTrainedConfig | None = None, **options):
        """As the library's; the configuration is that of the encoder's family, with ``papa``."""
        config = config or AutoConfig.from_pretrained(folder)
        model = super().from_pretrained(folder, *args, config=config, **options)
        check_used(model.stock.base_model, model.layers)
        return model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        places: Tensor | None = None,
    ) -> SequenceClassifierOutput | TokenClassifierOutput:
        """Logits (batch, labels), or (batch, len, labels) of tokens, and the loss given labels.

        Args:
            input_ids: (batch, len).
            attention_mask: (batch, len), 0 for padding; None when there is none.
            token_type_ids: (batch, len), for encoders that have such.
            labels: (batch,) or (batch, len) with -100 where there is none.
            places: (len,), the positions that the columns stand for, rising; 0, 1, ... when None.
        """
        inputs = self._inputs(input_ids, attention_mask, token_type_ids, places)
        if self.config.papa["pooler"]:
            states = self.stock(**inputs, output_hidden_states=True).hidden_states
            valid = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            return self.head(states, valid, self.columns, labels)
        logits = self.stock(**inputs).logits
        output = TokenClassifierOutput if logits.ndim == 3 else SequenceClassifierOutput
        return output(loss=loss_of(logits, labels), logits=logits)

    def states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        places: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """What the freeze-extract head is given: the states (batch, len, hidden) of all layers."""
        inputs = self._inputs(input_ids, attention_mask, token_type_ids, places)
        return self.stock.base_model(**inputs, output_hidden_states=True).hidden_states

    def _inputs(self, input_ids, attention_mask, token_type_ids, places) -> dict[str, Tensor]:
        if places is None and input_ids.shape[1] < self.config.papa["max_length"]:
            places = torch.arange(input_ids.shape[1], device=input_ids.device)
        self.columns.places = places
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        if places is not None and not self.counts_positions:
            inputs["position_ids"] = places[None]
        return inputs

    def fill(self, constants: Tensor) -> None:
        """Take the constants of all heads from averages (layer, head, max_length, max_length)."""
        for heads, averages in zip(self.layers, constants, strict=True):
            heads.fill(averages)

    @property
    def lambdas(self) -> Tensor:
        """Of mixed heads, (layer, head)."""
        return torch.stack([heads.lambdas.detach() for heads in self.layers])

    def freeze(self, encoder: bool = True, constants: bool = False) -> None:
        """Choose what is trained; always the task's head, its poolers, and lambdas of mixed heads.

        Args:
            encoder: whether it stays as it was pretrained.
            constants: whether the constants are trained too.
        """
        base = self.stock.base_model
        base.requires_grad_(not encoder)
        if getattr(base, "pooler", None) is not None:
            base.pooler.requires_grad_(True)
        for heads in self.layers:
            heads.constants.requires_grad_(constants)
            if isinstance(heads, MixedHeads):
                heads.lambdas.requires_grad_(True)


def stock_class(settings: dict) -> type:
    """The library's class that loads the encoder, with its own head of the task if that is used."""
    if settings["pooler"]:
        return AutoModel
    if settings["task"] == "token":
        return AutoModelForTokenClassification
    return AutoModelForSequenceClassification

"""PAPA's method written plainly: the yardstick of speed and results.

Every attention matrix is there in full, (batch, head, L, L), of every layer: recorded, replaced
by a constant or mixed with one, then dropped out as the published code does. Nothing here is made
fast, and nothing slow on purpose. The tests compare the experiment's own code with it; the
benchmarks run both side by side. The encoder is the library's, BERT, RoBERTa or DeBERTa (v1), but
for its self-attention, which is written out here.
"""

import copy
import functools
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- attention ---


def masked_normalized(attention: Tensor, valid: Tensor) -> Tensor:
    """Attention with 0 where query or key is padding, and rows that sum to 1 (or to 0).

    Args:
        attention: (head, L, L) or (batch, head, L, L), not negative.
        valid: (batch, L), 1 for a token and 0 for padding.
    """
    pairs = valid.unsqueeze(2) * valid.unsqueeze(1)  # (batch, L, L)
    return F.normalize(attention * pairs.unsqueeze(1), p=1, dim=-1)


def split_heads(states: Tensor, heads: int) -> Tensor:
    """(batch, L, heads * size) as (batch, heads, L, size)."""
    return states.unflatten(2, (heads, -1)).transpose(1, 2)


class PlainSelfAttention(nn.Module):
    """The self-attention of a layer of BERT or RoBERTa, with its matrix changed.

    Args:
        stock: the library's self-attention, whose weights are used.
        change: ``change(dynamic, valid)`` is the attention to use, both (batch, head, L, L).
    """

    def __init__(self, stock: nn.Module, change: Callable):
        super().__init__()
        self.stock, self.change = stock, change
        self.valid = None  # (batch, L), set before each forward pass

    def forward(self, states: Tensor, *args, **kwargs) -> tuple[Tensor, None]:
        """(batch, L, hidden); the library also passes its mask and DeBERTa's positions."""
        scores, value = self.scores_and_value(states, **kwargs)
        attention = scores.masked_fill(~self.allowed(), torch.finfo(scores.dtype).min).softmax(-1)
        attention = self.stock.dropout(self.change(attention, self.valid))
        return (attention @ value).transpose(1, 2).flatten(2), None

    def allowed(self) -> Tensor:
        """(batch, 1, 1, L) bool: the keys that may be attended to."""
        return self.valid.bool()[:, None, None, :]

    def scores_and_value(self, states: Tensor, **kwargs):
        """Scores (batch, head, L, L) and values (batch, head, L, size)."""
        query, key, value = (
            split_heads(project(states), self.stock.num_attention_heads)
            for project in (self.stock.query, self.stock.key, self.stock.value)
        )
        return query @ key.transpose(2, 3) / query.shape[-1] ** 0.5, value


class PlainDisentangledAttention(PlainSelfAttention):
    """The same for DeBERTa (v1), whose scores count relative positions too."""

    def allowed(self) -> Tensor:
        """(batch, 1, L, L) bool: DeBERTa masks queries too (their attention is uniform)."""
        valid = self.valid.bool()
        return valid[:, None, :, None] & valid[:, None, None, :]

    def scores_and_value(self, states: Tensor, rel_embeddings=None, **kwargs):
        """Scores (batch, head, L, L) and values (batch, head, L, size).

        The score of query i and key j at the relative position i - j is
        (q_i k_j + q_i pos_k_{i-j} + k_j pos_q_{i-j}) / sqrt(size * number of its terms).
        """
        stock, heads, length = self.stock, self.stock.num_attention_heads, states.shape[1]
        query, key, value = split_heads(stock.in_proj(states), heads).chunk(3, dim=-1)
        query = query + split_heads(stock.q_bias[None, None], heads)
        value = value + split_heads(stock.v_bias[None, None], heads)
        scores = query @ key.transpose(2, 3)
        middle = stock.max_relative_positions
        span = min(length, middle)
        positions = stock.pos_dropout(rel_embeddings)[None, middle - span : middle + span]
        index = torch.arange(length, device=states.device)
        distance = (index[:, None] - index + span).clamp(0, 2 * span - 1)  # (L, L), i - j
        if "c2p" in stock.pos_att_type:
            pos_key = split_heads(stock.pos_proj(positions), heads)[:, :, distance]
            scores = scores + torch.einsum("bhis,nhijs->bhij", query, pos_key)
        if "p2c" in stock.pos_att_type:
            pos_query = split_heads(stock.pos_q_proj(positions), heads)[:, :, distance]
            scores = scores + torch.einsum("bhjs,nhijs->bhij", key, pos_query)
        terms = 1 + len(stock.pos_att_type)
        return scores / (query.shape[-1] * terms) ** 0.5, value


class PlainEncoder(nn.Module):
    """A pretrained encoder with recorded, constant or mixed attention.

    Args:
        stock: the library's BERT, RoBERTa or DeBERTa model; it is copied.
        constants: (layer, head, L, L), or None for the stock attention.
        constant_heads: the (layer, head) pairs that take their constant.
        mixed: instead mix all heads with their constants by a learned λ (layer, head).
    """

    def __init__(
        self,
        stock: nn.Module,
        constants: Tensor | None = None,
        constant_heads: Iterable[tuple[int, int]] = (),
        mixed: bool = False,
    ):
        super().__init__()
        self.stock, self.config = copy.deepcopy(stock), stock.config
        layers, heads = stock.config.num_hidden_layers, stock.config.num_attention_heads
        self.register_buffer("constants", constants)
        self.register_buffer("is_constant", torch.zeros(layers, heads, dtype=torch.bool))
        for layer, head in constant_heads:
            self.is_constant[layer, head] = True
        self.lambdas = nn.Parameter(torch.zeros(layers, heads)) if mixed else None
        self.attentions = []  # (batch, head, L, L) of each layer in the last pass, before dropout
        disentangled = stock.config.model_type == "deberta"
        kind = PlainDisentangledAttention if disentangled else PlainSelfAttention
        for number, layer in enumerate(self.stock.encoder.layer):
            change = functools.partial(self.change, number)
            layer.attention.self = kind(layer.attention.self, change)

    def change(self, layer: int, dynamic: Tensor, valid: Tensor) -> Tensor:
        """Record and return the attention of ``layer`` (batch, head, L, L)."""
        attention = self.attention(layer, dynamic, valid)
        self.attentions.append(attention)
        return attention

    def attention(self, layer: int, dynamic: Tensor, valid: Tensor) -> Tensor:
        """The attention of ``layer`` (batch, head, L, L) in place of ``dynamic``."""
        if self.lambdas is None and not self.is_constant[layer].any():
            return dynamic
        constant = masked_normalized(self.constants[layer], valid)
        if self.lambdas is not None:
            weight = torch.sigmoid(self.lambdas[layer])[:, None, None]
            return weight * dynamic + (1 - weight) * constant
        # The published code sends the other heads of such a layer through the same mask.
        dynamic = masked_normalized(dynamic, valid)
        return torch.where(self.is_constant[layer][:, None, None], constant, dynamic)

    def forward(self, ids: Tensor, valid: Tensor) -> tuple[Tensor, ...]:
        """Hidden states (batch, L, hidden) of the embeddings and of each layer."""
        self.attentions = []
        for layer in self.stock.encoder.layer:
            layer.attention.self.valid = valid.to(self.stock.dtype)
        return self.stock(ids, attention_mask=valid, output_hidden_states=True).hidden_states


# --- step 1: constants ---


@torch.no_grad()
def averages(stock: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
    """Sums, pattern sums and averages of the attention of ``stock`` over all examples.

    Args:
        batches: ids and attention masks, both (batch, L).

    Returns:
        attention_sums (layer, head, L, L), attention_patterns_sums (L, L), and avgs
        (layer, head, L, L), 0 for a pair that was never valid.
    """
    encoder = PlainEncoder(stock).eval()
    sums, patterns = 0, 0
    for ids, valid in batches:
        encoder(ids, valid)
        attention = torch.stack(encoder.attentions, dim=1)  # (batch, layer, head, L, L)
        valid = valid.to(stock.dtype)
        pairs = valid.unsqueeze(2) * valid.unsqueeze(1)  # (batch, L, L)
        sums = sums + (attention * pairs[:, None, None]).sum(0)
        patterns = patterns + pairs.sum(0)
    return sums, patterns, torch.where(patterns > 0, sums / patterns, 0)


# --- classifiers on the frozen encoder ---


class FreezeExtractPooler(nn.Module):
    """Pools all hidden states of a sequence: learned weights per layer and position, a layer, tanh.

    Args:
        states: number of hidden states, the embeddings included (layers + 1).
        length: positions L.
        hidden: size of a hidden state.
    """

    def __init__(self, states: int, length: int, hidden: int):
        super().__init__()
        self.weights_per_layer = nn.Parameter(torch.full((states, length), 1 / length))
        self.dense_across_layers = nn.Linear(states * hidden, hidden)

    def forward(self, hidden_states: Iterable[Tensor], valid: Tensor) -> Tensor:
        """(batch, hidden): w_i · (m * h_i) of each layer i, concatenated, through the layer."""
        pooled = [
            (weights * valid).unsqueeze(2).mul(states).sum(1)
            for weights, states in zip(self.weights_per_layer, hidden_states, strict=True)
        ]
        return torch.tanh(self.dense_across_layers(torch.cat(pooled, dim=-1)))


class SequenceClassifier(nn.Module):
    """Encoder, freeze-extract pooler, dropout, classifier: (batch, labels)."""

    def __init__(self, encoder: PlainEncoder, length: int, labels: int):
        super().__init__()
        self.encoder, config = encoder, encoder.config
        self.pooler = FreezeExtractPooler(config.num_hidden_layers + 1, length, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, labels)

    def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
        return self.classifier(self.dropout(self.pooler(self.encoder(ids, valid), valid)))

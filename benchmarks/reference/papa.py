"""PAPA's method written plainly: the yardstick of speed and results.

Every attention matrix is there in full, (batch, head, L, L), of every layer: recorded, replaced
by a constant or mixed with one, then dropped out as the published code does. Nothing here is made
fast, and nothing slow on purpose. The tests compare the experiment's own code with it; the
benchmarks run both side by side. The encoder is the library's, BERT, RoBERTa or DeBERTa (v1), but
for its self-attention, which is written out here.
"""

import copy
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import nn

Heads = Iterable[tuple[int, int]]  # (layer, head) pairs


# --- attention ---


def masked_normalised(attention: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Attention with 0 where query or key is padding, and rows that sum to 1 (or to 0).

    Args:
        attention: ``(head, L, L)`` or ``(batch, head, L, L)``, not negative.
        valid: ``(batch, L)``, 1 for a token and 0 for padding.

    Returns:
        ``(batch, head, L, L)``.
    """
    pairs = valid.unsqueeze(2) * valid.unsqueeze(1)  # (batch, L, L)
    return F.normalize(attention * pairs.unsqueeze(1), p=1, dim=-1)


def split_heads(states: torch.Tensor, heads: int) -> torch.Tensor:
    """``(batch, L, heads * size)`` as ``(batch, heads, L, size)``."""
    return states.unflatten(2, (heads, -1)).transpose(1, 2)


class PlainSelfAttention(nn.Module):
    """The self-attention of one layer of BERT or RoBERTa, with its matrix changed by ``change``.

    Args:
        stock: the library's self-attention, whose weights are used.
        change: ``change(dynamic, valid)`` is the attention to use, both ``(batch, head, L, L)``.
    """

    def __init__(self, stock: nn.Module, change: Callable):
        super().__init__()
        self.stock, self.change = stock, change
        self.valid = None  # (batch, L), set before each forward pass

    def forward(self, states: torch.Tensor, *args, **kwargs) -> tuple[torch.Tensor, None]:
        """``(batch, L, hidden)`` of the encoder's ``states``; what else the library passes on are
        its own mask and, in DeBERTa, the relative positions."""
        scores, value = self.scores_and_value(states, **kwargs)
        attention = scores.masked_fill(~self.allowed(), torch.finfo(scores.dtype).min).softmax(-1)
        attention = self.stock.dropout(self.change(attention, self.valid))
        return (attention @ value).transpose(1, 2).flatten(2), None

    def allowed(self) -> torch.Tensor:
        """``(batch, 1, 1, L)`` bool: the keys that may be attended to."""
        return self.valid.bool()[:, None, None, :]

    def scores_and_value(self, states: torch.Tensor, **kwargs):
        """Scores ``(batch, head, L, L)`` and values ``(batch, head, L, size)``."""
        heads = self.stock.num_attention_heads
        query, key, value = (
            split_heads(project(states), heads)
            for project in (self.stock.query, self.stock.key, self.stock.value)
        )
        return query @ key.transpose(2, 3) / query.shape[-1] ** 0.5, value


class PlainDisentangledAttention(PlainSelfAttention):
    """The same for DeBERTa (v1), whose scores count relative positions too."""

    def allowed(self) -> torch.Tensor:
        """``(batch, 1, L, L)`` bool: DeBERTa masks queries too (their attention is uniform)."""
        valid = self.valid.bool()
        return valid[:, None, :, None] & valid[:, None, None, :]

    def scores_and_value(self, states: torch.Tensor, rel_embeddings=None, **kwargs):
        """Scores ``(batch, head, L, L)`` and values ``(batch, head, L, size)``.

        The score of query i and key j at the relative position i - j is
        (q_i k_j + q_i pos_k_{i-j} + k_j pos_q_{i-j}) / sqrt(size * number of its terms).
        """
        stock, heads = self.stock, self.stock.num_attention_heads
        query, key, value = split_heads(stock.in_proj(states), heads).chunk(3, dim=-1)
        query = query + split_heads(stock.q_bias[None, None], heads)
        value = value + split_heads(stock.v_bias[None, None], heads)
        scores = query @ key.transpose(2, 3)
        terms = 1 + len(stock.pos_att_type)
        if stock.relative_attention:
            src_len = states.shape[1]
            span = min(src_len, stock.max_relative_positions)
            middle = stock.max_relative_positions
            positions = stock.pos_dropout(rel_embeddings)[None, middle - span : middle + span]
            place = torch.arange(src_len, device=states.device)
            distance = (place[:, None] - place + span).clamp(0, 2 * span - 1)  # (L, L), i - j
            if "c2p" in stock.pos_att_type:
                pos_key = split_heads(stock.pos_proj(positions), heads)[:, :, distance]
                scores = scores + torch.einsum("bhis,nhijs->bhij", query, pos_key)
            if "p2c" in stock.pos_att_type:
                pos_query = split_heads(stock.pos_q_proj(positions), heads)[:, :, distance]
                scores = scores + torch.einsum("bhjs,nhijs->bhij", key, pos_query)
        return scores / (query.shape[-1] * terms) ** 0.5, value


class PlainEncoder(nn.Module):
    """A pretrained encoder with recorded, constant or mixed attention.

    Args:
        stock: the library's BERT, RoBERTa or DeBERTa model; it is copied.
        constants: ``(layer, head, L, L)``, or None for the stock attention.
        constant_heads: the (layer, head) pairs that take their constant.
        mixed: instead mix all heads with their constants by a learned λ ``(layer, head)``.
    """

    def __init__(
        self,
        stock: nn.Module,
        constants: torch.Tensor | None = None,
        constant_heads: Heads = (),
        mixed: bool = False,
    ):
        super().__init__()
        self.stock = copy.deepcopy(stock)
        self.config = stock.config
        layers, heads = stock.config.num_hidden_layers, stock.config.num_attention_heads
        self.register_buffer("constants", constants)
        self.register_buffer("is_constant", torch.zeros(layers, heads, dtype=torch.bool))
        for layer, head in constant_heads:
            self.is_constant[layer, head] = True
        self.lambdas = nn.Parameter(torch.zeros(layers, heads)) if mixed else None
        self.recorded = None  # a list takes the attention of each layer
        kind = PlainSelfAttention
        if stock.config.model_type == "deberta":
            kind = PlainDisentangledAttention
        for number, layer in enumerate(self.stock.encoder.layer):
            layer.attention.self = kind(layer.attention.self, self.change_of(number))

    def change_of(self, layer: int) -> Callable:
        """What replaces the dynamic attention of ``layer``."""

        def change(dynamic: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
            attention = self.attention(layer, dynamic, valid)
            if self.recorded is not None:
                self.recorded.append(attention)
            return attention

        return change

    def attention(self, layer: int, dynamic: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """``(batch, head, L, L)``: the attention of ``layer`` where the input would give
        ``dynamic``."""
        if self.lambdas is None and not self.is_constant[layer].any():
            return dynamic
        constant = masked_normalised(self.constants[layer], valid)
        if self.lambdas is not None:
            share = torch.sigmoid(self.lambdas[layer])[:, None, None]
            return share * dynamic + (1 - share) * constant
        # The published code sends the other heads of such a layer through the same mask.
        dynamic = masked_normalised(dynamic, valid)
        return torch.where(self.is_constant[layer][:, None, None], constant, dynamic)

    def forward(self, ids: torch.Tensor, valid: torch.Tensor, **inputs) -> list[torch.Tensor]:
        """Hidden states ``(batch, L, hidden)`` of the embeddings and of each layer.

        Args:
            ids: ``(batch, L)`` token ids.
            valid: ``(batch, L)`` attention mask.
            inputs: further inputs of the library's model, such as token_type_ids.
        """
        for layer in self.stock.encoder.layer:
            layer.attention.self.valid = valid.to(self.stock.dtype)
        output = self.stock(ids, attention_mask=valid, output_hidden_states=True, **inputs)
        return list(output.hidden_states)

    def attentions(self, ids: torch.Tensor, valid: torch.Tensor, **inputs) -> list[torch.Tensor]:
        """Attention ``(batch, head, L, L)`` of each layer, before dropout."""
        self.recorded = []
        self(ids, valid, **inputs)
        attentions, self.recorded = self.recorded, None
        return attentions


# --- step 1: constants ---


@torch.no_grad()
def averages(stock: nn.Module, batches: Iterable[dict]) -> tuple[torch.Tensor, ...]:
    """Sums, pattern sums and averages of the attention of ``stock`` over all examples.

    Args:
        batches: the inputs ids and valid, both ``(batch, L)``, and further ones by name.

    Returns:
        attention_sums ``(layer, head, L, L)``, attention_patterns_sums ``(L, L)``, and avgs
        ``(layer, head, L, L)``, 0 for a pair that was never valid.
    """
    encoder = PlainEncoder(stock).eval()
    sums, patterns = 0, 0
    for batch in batches:
        valid = batch["valid"].to(stock.dtype)
        pairs = valid.unsqueeze(2) * valid.unsqueeze(1)  # (batch, L, L)
        attention = torch.stack(encoder.attentions(**batch), dim=1)  # (batch, layer, head, L, L)
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

    def forward(self, hidden_states: list[torch.Tensor], valid: torch.Tensor) -> torch.Tensor:
        """``(batch, hidden)``: w_i · (m * h_i) of each layer i, side by side, through the layer."""
        pooled = [
            (weights * valid).unsqueeze(2).mul(states).sum(1)
            for weights, states in zip(self.weights_per_layer, hidden_states, strict=True)
        ]
        return torch.tanh(self.dense_across_layers(torch.cat(pooled, dim=-1)))


class SequenceClassifier(nn.Module):
    """Encoder, freeze-extract pooler, dropout, classifier: ``(batch, labels)``."""

    def __init__(self, encoder: PlainEncoder, length: int, labels: int):
        super().__init__()
        config = encoder.config
        self.encoder = encoder
        self.pooler = FreezeExtractPooler(config.num_hidden_layers + 1, length, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, labels)

    def forward(self, ids: torch.Tensor, valid: torch.Tensor, **inputs) -> torch.Tensor:
        pooled = self.pooler(self.encoder(ids, valid, **inputs), valid)
        return self.classifier(self.dropout(pooled))


class TokenClassifier(nn.Module):
    """Encoder, then a layer, tanh and the labels of each token: ``(batch, L, labels)``."""

    def __init__(self, encoder: PlainEncoder, labels: int):
        super().__init__()
        config = encoder.config
        self.encoder = encoder
        self.dense_across_layers_1 = nn.Linear(
            (config.num_hidden_layers + 1) * config.hidden_size, config.hidden_size
        )
        self.decoder = nn.Linear(config.hidden_size, labels)

    def forward(self, ids: torch.Tensor, valid: torch.Tensor, **inputs) -> torch.Tensor:
        states = torch.cat(self.encoder(ids, valid, **inputs), dim=-1)
        return self.decoder(torch.tanh(self.dense_across_layers_1(states)))


def freeze_encoder(model: SequenceClassifier | TokenClassifier) -> list[nn.Parameter]:
    """Leave only the head, and λ if there is one, to training; returns those parameters."""
    model.encoder.stock.requires_grad_(False)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def training_step(
    model: SequenceClassifier | TokenClassifier,
    optimizer: torch.optim.Optimizer,
    ids: torch.Tensor,
    valid: torch.Tensor,
    labels: torch.Tensor,
    **inputs,
) -> float:
    """One step of training the head as published: the whole encoder runs, dropout included.

    Args:
        labels: ``(batch,)``, or ``(batch, L)`` of tokens with -100 for those that do not count.

    Returns:
        the cross-entropy of the batch before the step.
    """
    model.train()
    loss = F.cross_entropy(model(ids, valid, **inputs).flatten(0, -2), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


# --- step 2: the order of the heads ---


def sorted_heads(lambdas: torch.Tensor) -> list[list[int]]:
    """``[[layer, head], ...]`` by ascending λ: the most replaceable first."""
    heads = [
        (lambdas[layer, head].item(), layer, head)
        for layer in range(lambdas.shape[0])
        for head in range(lambdas.shape[1])
    ]
    return [[layer, head] for _, layer, head in sorted(heads)]

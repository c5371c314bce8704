"""What a head computes instead of its attention: constant, mixed, recorded (PAPA, Section 3).

A head's attention is one of

* dynamic: softmax(q k' / sqrt(d)), as pretrained;
* constant: the head's average matrix C, masked and normalized for each example: with m the valid
  positions, A_ij = m_i m_j C_ij / sum_j |m_j C_ij|, a row of zeros where that sum is zero;
* mixed, to sort the heads: sigma(lambda) dynamic + (1 - sigma(lambda)) constant.

Encoders that read the registry of the transformers library call :func:`papa_attention`, registered
under the name "papa". DeBERTa does not (deberta.py). Both pass queries, keys and values to the
layer's ``papa``: :class:`Heads`, :class:`MixedHeads` or :class:`RecordedHeads`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface

ATTENTION = "papa"  # the name in the registries of the library


class Positions:
    """The positions of the columns of the current batch, shared by a model and its layers.

    Set for each batch: with one set for a whole dataset, a training step takes 1.66 times as long
    (MiniLM on CoLA, batches of 16), since the longest sentence decides for all.
    """

    used: Tensor  # (len,), ascending

    def select(self, matrices: Tensor, *dims: int) -> Tensor:
        """``matrices`` at the used positions of ``dims``."""
        for dim in dims:
            matrices = matrices.index_select(dim, self.used)
        return matrices


class Heads(nn.Module):
    """The heads of a layer: those at the indices ``static`` constant, those at ``dynamic`` dynamic.

    ``constants`` (static, max_length, max_length) are initially 0.
    """

    def __init__(self, heads: int, static: list[int], length: int, positions: Positions):
        super().__init__()
        self.static = sorted(static)
        self.dynamic = [head for head in range(heads) if head not in self.static]
        self.constants = nn.Parameter(torch.zeros(len(self.static), length, length))
        self.positions = positions
        self.ran = False  # whether the library has called papa_attention with these heads

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
            query: (batch, dynamic, len, head_size); ignored when all heads are constant.
            key: same shape as ``query``.
            value: (batch, head, len, head_size).
            valid: (batch, len) bool, False for padding; None when all positions are valid.
            scaling: factor of the products of queries and keys.
            dropout: fraction of attention weights set to zero, 0 in evaluation.
            bias: (batch, dynamic, len, len), added to the scaled products.
        """
        if not self.static:
            return dynamic_context(query, key, value, valid, scaling, dropout, bias)
        constants = self.positions.select(self.constants, 1, 2)
        if not self.dynamic:
            return constant_context(constants, value, valid, dropout)
        contexts = torch.empty_like(value.transpose(1, 2))
        contexts[:, :, self.static] = constant_context(
            constants, value[:, self.static], valid, dropout
        )
        contexts[:, :, self.dynamic] = dynamic_context(
            query, key, value[:, self.dynamic], valid, scaling, dropout, bias
        )
        return contexts


class MixedHeads(Heads):
    """The heads of a layer, all mixtures of dynamic and constant attention (Step 2).

    ``lambdas`` (head,) are initially 0.
    """

    def __init__(self, heads: int, static: list[int], length: int, positions: Positions):
        super().__init__(heads, list(range(heads)), length, positions)
        self.dynamic = list(range(heads))  # they keep their queries and keys
        self.lambdas = nn.Parameter(torch.zeros(heads))

    def attend(self, query, key, value, valid, scaling, dropout=0.0, bias=None) -> Tensor:
        """See :meth:`Heads.attend`."""
        constants = self.positions.select(self.constants, 1, 2)
        weight = self.lambdas.sigmoid()
        if dropout:
            weight = weight[:, None, None]
            attention = weight * dynamic_attention(query, key, valid, scaling, bias)
            attention = attention + (1 - weight) * constant_attention(constants, valid)
            return (F.dropout(attention, dropout) @ value).transpose(1, 2)
        weight = weight[:, None]  # (head, 1), for contexts (batch, len, head, head_size)
        dynamic = dynamic_context(query, key, value, valid, scaling, 0.0, bias)
        return weight * dynamic + (1 - weight) * constant_context(constants, value, valid, 0.0)


class RecordedHeads(Heads):
    """The heads of a layer, all dynamic, whose attention is summed over examples (Step 1).

    ``sums`` (head, max_length, max_length) are float64, over valid queries and keys.
    """

    def __init__(self, heads: int, static: list[int], length: int, positions: Positions):
        super().__init__(heads, static, length, positions)
        self.sums = torch.zeros(heads, length, length, dtype=torch.float64)

    def attend(self, query, key, value, valid, scaling, dropout=0.0, bias=None) -> Tensor:
        """See :meth:`Heads.attend`; the contexts of padding are zero."""
        attention = dynamic_attention(query, key, valid, scaling, bias)
        if valid is not None:
            attention *= valid[:, None, :, None]
        used = self.positions.used.to(self.sums.device)
        self.sums[:, used[:, None], used] += attention.sum(dim=0).to(self.sums)
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


def dynamic_context(query, key, value, valid, scaling, dropout, bias) -> Tensor:
    """Contexts (batch, len, head, head_size) of :func:`dynamic_attention`, by the fused kernel."""
    mask = None if valid is None else valid[:, None, None]
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling
    ).transpose(1, 2)


def constant_attention(constants: Tensor, valid: Tensor | None) -> Tensor:
    """Masked, normalised constants (batch, head, len, len); batch is 1 when all are valid."""
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
    by the values of all examples, and the rows are divided by their norms afterwards. Arguments as
    in :meth:`Heads.attend`; constants (head, len, len).
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
    """The entry of the attention registry: contexts (batch, len, head, head_size), None."""
    valid = None if attention_mask is None else attention_mask[:, 0, 0]
    module.papa.ran = True
    return module.papa.attend(query, key, value, valid, module.scaling, dropout), None


def papa_mask(attention_mask: Tensor | None = None, **_) -> Tensor | None:
    """The entry of the mask registry: valid keys (batch, 1, 1, len), or None."""
    return None if attention_mask is None else attention_mask[:, None, None]


AttentionInterface.register(ATTENTION, papa_attention)
AttentionMaskInterface.register(ATTENTION, papa_mask)  # else the mask would silently be None


class NoProjection(nn.Module):
    """Replaces the query or key projection of a layer without dynamic heads; computes nothing."""

    def __init__(self, head_size: int):
        super().__init__()
        self.head_size = head_size

    def forward(self, hidden_states: Tensor) -> Tensor:
        """A slice (batch, len, head_size) of the states, which is never used."""
        return hidden_states[..., : self.head_size]


def project_heads(linear: nn.Linear, heads: list[int], head_size: int) -> nn.Module:
    """The projection restricted to the rows of ``heads``."""
    if not heads:
        return NoProjection(head_size)
    weight, has_bias = linear.weight, linear.bias is not None
    rows = (torch.tensor(heads)[:, None] * head_size + torch.arange(head_size)).flatten()
    rows = rows.to(weight.device)
    result = nn.Linear(weight.shape[1], len(rows), has_bias, weight.device, weight.dtype)
    result.load_state_dict({name: values[rows] for name, values in linear.state_dict().items()})
    return result

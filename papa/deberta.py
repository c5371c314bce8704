"""DeBERTa's disentangled attention with constant heads; it ignores the attention registry."""

from attention import Heads, project_heads
from torch import Tensor, nn
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention


class DisentangledHeads(nn.Module):
    """DeBERTa's attention: contents and relative positions (He et al. 2021, equation 4).

    Scores are (q_c k_c' + q_c k_r' + k_c q_r') / sqrt(3 d): contents with contents, contents with
    the distance to the key, and keys with the distance to the query. Constant heads have no scores;
    their queries, keys and projected positions are removed.
    """

    def __init__(self, stock: DisentangledSelfAttention, papa: Heads):
        """Copy the weights of the library's layer ``stock``."""
        super().__init__()
        heads, size = stock.num_attention_heads, stock.attention_head_size
        self.head_size, self.papa, self.dropout = size, papa, stock.dropout
        self.terms = stock.pos_att_type if stock.relative_attention else []
        self.scaling = (size * (1 + len(stock.pos_att_type))) ** -0.5
        # in_proj holds [q | k | v] of each head.
        weight = stock.in_proj.weight.view(heads, 3, size, -1)
        parts = (
            ("query", stock.q_bias, papa.dynamic),
            ("key", None, papa.dynamic),
            ("value", stock.v_bias, list(range(heads))),
        )
        for number, (name, bias, needed) in enumerate(parts):
            linear = nn.Linear(
                weight.shape[-1], heads * size, bias=bias is not None, device=weight.device
            )
            linear.weight.data.copy_(weight[:, number].flatten(0, 1))
            if bias is not None:
                linear.bias.data.copy_(bias)
            self.add_module(name, project_heads(linear, needed, size))
        if self.terms and papa.dynamic:
            self.max_distance, self.pos_dropout = stock.max_relative_positions, stock.pos_dropout
            for term, name in (("c2p", "pos_proj"), ("p2c", "pos_q_proj")):
                if term in self.terms:
                    projection = project_heads(getattr(stock, name), papa.dynamic, size)
                    self.add_module(name, projection)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Contexts (batch, len, hidden); arguments of DeBERTa's own attention."""
        valid = attention_mask[:, 0].diagonal(dim1=-2, dim2=-1).bool()  # of m m'
        value = self._by_head(self.value(hidden_states))
        query = key = bias = None
        if self.papa.dynamic:
            query = self._by_head(self.query(hidden_states))
            key = self._by_head(self.key(hidden_states))
            if self.terms:
                bias = self._position_scores(query, key, rel_embeddings)
        dropout = self.dropout.p if self.training else 0.0
        contexts = self.papa.attend(query, key, value, valid, self.scaling, dropout, bias)
        return contexts.flatten(2), None

    def _by_head(self, projected: Tensor) -> Tensor:
        """(batch, len, head * head_size) as (batch, head, len, head_size)."""
        return projected.unflatten(-1, (-1, self.head_size)).transpose(1, 2)

    def _position_scores(self, query: Tensor, key: Tensor, embeddings: Tensor) -> Tensor:
        """The scaled terms of the scores with relative positions, (batch, head, len, len)."""
        positions = self.papa.positions.used
        distance = positions[:, None] - positions  # of query i to key j
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

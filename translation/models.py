"""The translator: LSTM encoder and decoder, one attention head (docs/method.md, section 3.1)."""

import torch
from data import Batch
from torch import nn
from torch.nn import functional as F

from attention_dynamics.lstm import State, lstm_states

CONFIG_KEYS = ("hidden_dim", "dropout", "num_layers", "batch_size")


class AttentionTranslator(nn.Module):
    """log p(y_t) = log softmax(W relu(F [d_t; P c_t])), c_t = Σ_s α_ts e_s.

    Sentences are flat: the tokens of a batch one after another, with their lengths beside them.
    """

    def __init__(self, vocab: int, config: dict, uniform: bool):
        """A model over ``vocab`` pieces, dimensions from ``config``; α is 1/n if ``uniform``."""
        super().__init__()
        hidden, layers = config["hidden_dim"], config["num_layers"]
        dropout = config["dropout"] if layers > 1 else 0.0  # it acts between layers
        self.uniform = uniform
        self.embedding = nn.Embedding(vocab, hidden)
        self.encoder_lstm = nn.LSTM(hidden, hidden, layers, dropout=dropout, bidirectional=True)
        self.decoder_lstm = nn.LSTM(hidden, hidden, layers, dropout=dropout)
        self.extra_ff = nn.Linear(2 * hidden, hidden)
        self.hidden2vocab = nn.Linear(hidden, vocab)
        self.attn_lin = nn.Linear(hidden, 2 * hidden)
        self.project_enc = nn.Linear(2 * hidden, hidden)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits (trg_tokens, vocab) of every target after <s>, given those before it."""
        return self.hidden2vocab(self.outputs(batch))

    def outputs(self, batch: Batch) -> torch.Tensor:
        """o (trg_tokens, hidden), what the logits of every target after <s> are computed from."""
        # One lookup for both sides: the gradient of a lookup is as large as the vocabulary.
        words, places = torch.cat([batch.src, batch.inputs]).unique(return_inverse=True)
        src, inputs = places.split([len(batch.src), len(batch.inputs)])
        table = self.embedding(words)
        states, initial = self.encode(src, batch.src_lengths, table)
        decoded = self.decode(inputs, batch.trg_lengths, initial, table)
        context = self.contexts(decoded, states, batch.src_lengths, batch.trg_lengths)
        return self.combine(decoded, context)

    def encode(
        self, src: torch.Tensor, lengths: torch.Tensor, table: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, State]:
        """e (src_tokens, 2 * hidden), and the decoder's first (h, c), each (layer, batch, hidden).

        ``src`` are rows of ``table`` (rows, hidden), by default piece ids; ``lengths`` are on the
        CPU.
        """
        states, last = lstm_states(self.encoder_lstm, *self.distinct(src, lengths, table))
        return states, mean_over_directions(last)

    def decode(self, inputs, lengths: torch.Tensor, initial: State, table=None) -> torch.Tensor:
        """d (trg_tokens, hidden) of inputs (trg_tokens,), as in :meth:`encode`."""
        return lstm_states(self.decoder_lstm, *self.distinct(inputs, lengths, table), initial)[0]

    def distinct(self, rows: torch.Tensor, lengths: torch.Tensor, table=None):
        """Input of lstm_states: embeddings of the distinct pieces, lengths, row of each token."""
        table = self.embedding.weight if table is None else table
        words, tokens = rows.unique(return_inverse=True)
        return F.embedding(words, table), lengths, tokens  # each distinct piece once

    def query(self, decoded: torch.Tensor) -> torch.Tensor:
        """q (..., 2 * hidden); zero, so that all scores are 0, if the attention is uniform."""
        if self.uniform:
            return decoded.new_zeros(*decoded.shape[:-1], 2 * decoded.shape[-1])
        return self.attn_lin(decoded)

    def contexts(self, decoded, states, src_lengths, trg_lengths) -> torch.Tensor:
        """Σ_s α_ts e_s (trg_tokens, 2 * hidden), without the α in memory."""
        keys = padded(states, src_lengths)
        queries = padded(self.query(decoded), trg_lengths)
        mask = real_places(src_lengths).to(keys.device)[:, None, :]
        return flat(fused_attention(queries, keys, mask), trg_lengths)

    def alpha(self, decoded, states, src_lengths, trg_lengths) -> torch.Tensor:
        """α (batch, trg_len, src_len), padded; rows sum to 1 over the real source tokens."""
        keys = padded(states, src_lengths)
        scores = padded(self.query(decoded), trg_lengths) @ keys.transpose(1, 2)
        mask = real_places(src_lengths).to(keys.device)[:, None, :]
        return scores.masked_fill(~mask, -torch.inf).softmax(dim=2)

    def combine(self, decoded: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """o = relu(F [d; P c]) (..., hidden), from d (..., hidden) and c (..., 2 * hidden)."""
        return F.relu(self.extra_ff(torch.cat([decoded, self.project_enc(context)], dim=-1)))


def fused_attention(queries, keys, mask) -> torch.Tensor:
    """Σ_s softmax_s(q_t . e_s) e_s (batch, trg_len, 2 * hidden), by torch's fused kernels.

    ``queries`` (batch, trg_len, 2 * hidden), ``keys`` (batch, src_len, 2 * hidden), ``mask``
    (batch, 1, src_len) bool, True at real tokens.
    """
    # The kernels want a dimension of heads: there is one.
    queries, keys, mask = (part[:, None] for part in (queries, keys, mask))
    return F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask, scale=1.0)[:, 0]


def mean_over_directions(last: State) -> State:
    """(h, c), each (layer, batch, hidden), of those of both directions."""
    return tuple(part.unflatten(0, (-1, 2)).mean(dim=1) for part in last)


def real_places(lengths: torch.Tensor) -> torch.Tensor:
    """(batch, longest) bool on the CPU: which places of padded sequences hold a token."""
    return torch.arange(int(lengths.max())) < lengths.unsqueeze(1)


def padded(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Flat rows (tokens, features) as (batch, longest, features), filled up with 0."""
    batch, longest = len(lengths), int(lengths.max())
    places = real_places(lengths).flatten().nonzero().squeeze(1).to(values.device)
    empty = values.new_zeros(batch * longest, values.shape[1])
    return empty.index_copy(0, places, values).view(batch, longest, -1)


def flat(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The opposite of :func:`padded`."""
    places = real_places(lengths).flatten().nonzero().squeeze(1).to(values.device)
    return values.flatten(0, 1).index_select(0, places)

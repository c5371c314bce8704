"""The translator of method A.2: LSTM encoder and decoder, one attention head, the KTIW probe β."""

from typing import NamedTuple

import torch
from data import Batch
from torch import nn
from torch.nn import functional as F

from attention_dynamics.lstm import State, input_bias, input_projection, lstm_states, pull_back

CONFIG_KEYS = ("hidden_dim", "dropout", "num_layers", "batch_size")

# Rows whose logits over the vocabulary are in memory at once: what fits in a CPU's cache.
_ROWS_AT_ONCE = 512

# Tokens of the replicas of sentences, one for each target, whose gradients are in memory at once.
_REPLICAS_AT_ONCE = 1 << 15

# The highest logits up to this size, either way, cost log-probabilities no digit that counts (2e-6)
# when they are not subtracted first.
_HARMLESS = 20.0


class AttentionTranslator(nn.Module):
    """log p(y_t) = log softmax(W relu(F [d_t; P c_t])), c_t = Σ_s α_ts e_s (A.2).

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

        Args:
            src: rows of ``table`` (src_tokens,); without one, piece ids.
            lengths: (batch,) on the CPU.
            table: embeddings (rows, hidden); those of all pieces when None.
        """
        states, last = lstm_states(self.encoder_lstm, *self._distinct(src, lengths, table))
        return states, _mean_over_directions(last)

    def decode(
        self,
        inputs: torch.Tensor,
        lengths: torch.Tensor,
        initial: State,
        table: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """d (trg_tokens, hidden) of inputs (trg_tokens,), as in :meth:`encode`."""
        return lstm_states(self.decoder_lstm, *self._distinct(inputs, lengths, table), initial)[0]

    def _distinct(self, rows: torch.Tensor, lengths: torch.Tensor, table=None):
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

    Args:
        queries: (batch, trg_len, 2 * hidden).
        keys: (batch, src_len, 2 * hidden).
        mask: (batch, 1, src_len) bool, True at real tokens.
    """
    # The kernels want a dimension of heads: there is one.
    queries, keys, mask = (part[:, None] for part in (queries, keys, mask))
    return F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask, scale=1.0)[:, 0]


def _mean_over_directions(last: State) -> State:
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


class Prediction(NamedTuple):
    """What a model predicts at some targets.

    Attributes:
        log_prob: (rows,) of the correct piece.
        correct: (rows,) bool, whether it is the most probable one.
        slope: (rows, hidden), the gradient of log_prob by o; None when not asked for.
    """

    log_prob: torch.Tensor
    correct: torch.Tensor
    slope: torch.Tensor | None


@torch.no_grad()
def predict(
    model: AttentionTranslator,
    outputs: torch.Tensor,
    targets: torch.Tensor,
    with_slope: bool = False,
) -> Prediction:
    """The prediction of ``targets`` (rows,) by o (rows, hidden) of :meth:`~.outputs`."""
    weight, bias = model.hidden2vocab.weight, model.hidden2vocab.bias
    log_prob, slope = (torch.empty_like(outputs[:, 0]), torch.empty_like(outputs))
    correct = torch.empty_like(targets, dtype=torch.bool)
    for start in range(0, len(targets), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        target = targets[rows, None]
        logits = F.linear(outputs[rows], weight, bias)  # (rows, vocab)
        right = logits.gather(1, target)
        highest, best = logits.max(dim=1, keepdim=True)
        correct[rows] = (best == target).squeeze(1)
        total, shift = _exponentiate(logits, highest)
        of_target = right - shift - total.log()
        log_prob[rows] = of_target.squeeze(1)
        if with_slope:
            # W_y - Σ_v p(v) W_v; p(y) - 1, of a sure model almost 0, is taken from log p(y).
            share = logits.div_(total).scatter_(1, target, of_target.expm1())
            slope[rows] = -(share @ weight)
    return Prediction(log_prob, correct, slope if with_slope else None)


def _exponentiate(logits: torch.Tensor, highest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn logits (rows, vocab) into what the probabilities are proportional to, in place.

    Returns:
        Their sum (rows, 1), and what was subtracted from the logits before, (rows, 1): ``highest``
        (rows, 1), the highest ones, or 0 where that pass over all logits is not needed.
    """
    if logits.is_cpu and float(highest.abs().max()) <= _HARMLESS:
        return logits.exp_().sum(dim=1, keepdim=True), torch.zeros_like(highest)
    return logits.sub_(highest).exp_().sum(dim=1, keepdim=True), highest


class Reading(NamedTuple):
    """What a model makes of a batch in evaluation.

    Attributes:
        log_prob: (trg_tokens,) of each correct target.
        correct: (trg_tokens,) bool, whether it is the most probable one.
        alpha, beta: (pairs,) a row of source tokens for each target, sentence by sentence: the
            layout of the logs.
        grad: Δ (pairs,), or None when not asked for.
    """

    log_prob: torch.Tensor
    correct: torch.Tensor
    alpha: torch.Tensor
    beta: torch.Tensor
    grad: torch.Tensor | None


class _Pairs(NamedTuple):
    """All (target, source) token pairs of the sentences of a batch, in the layout of the logs.

    Attributes:
        target, source: (pairs,) flat token of each.
        src_len: (trg_tokens,) pairs of each target, on the CPU.
    """

    target: torch.Tensor
    source: torch.Tensor
    src_len: torch.Tensor


def _pairs_of(batch: Batch) -> _Pairs:
    src_len = batch.src_lengths.repeat_interleave(batch.trg_lengths)
    first = batch.src_lengths.cumsum(0) - batch.src_lengths
    first = first.repeat_interleave(batch.trg_lengths)  # (trg_tokens,)
    target = torch.repeat_interleave(src_len)
    within = torch.arange(len(target)) - (src_len.cumsum(0) - src_len)[target]
    device = batch.src.device
    return _Pairs(target.to(device), (first[target] + within).to(device), src_len)


@torch.no_grad()
def read(model: AttentionTranslator, batch: Batch, with_grad: bool) -> Reading:
    """α, β and, if ``with_grad``, Δ of a batch (A.2), by a model in evaluation mode.

    β_ts is the log-probability of the correct target if all attention sat on s. Δ_ts is minus
    d(-log p(y_t))/dgate_s, where each source embedding is multiplied by a gate of 1.
    """
    traces = ([], []) if with_grad else (None, None)
    src_tokens = model._distinct(batch.src, batch.src_lengths)
    states, last = lstm_states(model.encoder_lstm, *src_tokens, trace=traces[0])
    initial = _mean_over_directions(last)
    inputs = model._distinct(batch.inputs, batch.trg_lengths)
    decoded, _ = lstm_states(model.decoder_lstm, *inputs, initial, traces[1])
    pairs = _pairs_of(batch)
    all_alpha = model.alpha(decoded, states, batch.src_lengths, batch.trg_lengths)
    alpha = _real_pairs(all_alpha, batch)
    context = flat(all_alpha @ padded(states, batch.src_lengths), batch.trg_lengths)
    combined = model.combine(decoded, context)
    prediction = predict(model, combined, batch.targets, with_grad)
    beta = _beta(model, batch.targets, decoded, states, pairs)
    grad = None
    if with_grad:
        of_combined = prediction.slope * (combined > 0)
        of_decoded, of_context = (of_combined @ model.extra_ff.weight).chunk(2, dim=1)
        of_context = of_context @ model.project_enc.weight  # (trg_tokens, 2 * hidden)
        of_score = query = None
        if not model.uniform:
            of_score, of_query = _through_softmax(of_context, states, all_alpha, batch)
            of_decoded = of_decoded + of_query @ model.attn_lin.weight
            query = model.query(decoded)

        def of_states(some: slice) -> torch.Tensor:
            """The gradients of e for some pairs, (pairs, 2 * hidden), apart for each target."""
            target = pairs.target[some]
            gradient = alpha[some, None] * of_context[target]
            return gradient if of_score is None else gradient + of_score[some, None] * query[target]

        grad = _gate_gradients(model, batch, traces, of_decoded, of_states, pairs)
    return Reading(prediction.log_prob, prediction.correct, alpha, beta, grad)


def _real_pairs(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """(pairs,) of padded values (batch, trg_len, src_len), in the layout of the logs."""
    real = real_places(batch.src_lengths)[:, None, :] & real_places(batch.trg_lengths)[:, :, None]
    return values[real.to(values.device)]


def _beta(model: AttentionTranslator, targets, decoded, states, pairs: _Pairs) -> torch.Tensor:
    """β (pairs,): F [d; P e] is a sum of two parts, each computed once per token."""
    by_target, by_source = model.extra_ff.weight.chunk(2, dim=1)
    from_target = F.linear(decoded, by_target, model.extra_ff.bias)  # (trg_tokens, hidden)
    from_source = F.linear(model.project_enc(states), by_source)  # (src_tokens, hidden)
    weight, bias = model.hidden2vocab.weight, model.hidden2vocab.bias
    beta = decoded.new_empty(len(pairs.target))
    parts = (values.split(_ROWS_AT_ONCE) for values in (pairs.target, pairs.source, beta))
    for target, source, out in zip(*parts, strict=True):
        combined = F.relu(from_target[target] + from_source[source])  # (rows, hidden)
        logits = F.linear(combined, weight, bias)  # (rows, vocab)
        right = logits.gather(1, targets[target][:, None])
        total, shift = _exponentiate(logits, logits.amax(dim=1, keepdim=True))
        torch.sub(right - shift, total.log(), out=out[:, None])
    return beta


def _through_softmax(of_context, states, all_alpha, batch: Batch):
    """The gradients of the scores (pairs,) and of q (trg_tokens, 2 * hidden)."""
    keys = padded(states, batch.src_lengths)
    of_alpha = padded(of_context, batch.trg_lengths) @ keys.transpose(1, 2)
    of_scores = all_alpha * (of_alpha - (all_alpha * of_alpha).sum(dim=2, keepdim=True))
    return _real_pairs(of_scores, batch), flat(of_scores @ keys, batch.trg_lengths)


def _gate_gradients(model, batch: Batch, traces, of_decoded, of_states, pairs: _Pairs):
    """Δ (pairs,): a replica of the sentence for each target, many pulled back at once.

    A gate g_s on the embedding x_s acts through z_s = W x_s g_s + b alone, so that d/dg_s is the
    inner product of d/dz_s with z_s - b.

    Args:
        model: the model.
        batch: the sentences.
        traces: of the encoder and of the decoder.
        of_decoded: (trg_tokens, hidden) gradients of d_t, of each target's own log-probability.
        of_states: slice of pairs -> (pairs, 2 * hidden) those of e_s.
        pairs: as of the batch.
    """
    words, place = batch.src.unique(return_inverse=True)
    projected = input_projection(model.encoder_lstm, model.embedding(words))
    projected -= input_bias(model.encoder_lstm)
    # The replica of target t reads the decoder's tokens 0..t, and all source tokens.
    length = torch.cat([torch.arange(1, n + 1) for n in batch.trg_lengths])  # (trg_tokens,)
    part = (pairs.src_len + length).cumsum(0) // _REPLICAS_AT_ONCE
    grad, start, begin = [], 0, 0
    for size in part.unique_consecutive(return_counts=True)[1].tolist():
        targets = slice(start, start + size)
        some = slice(begin, begin + int(pairs.src_len[targets].sum()))
        of_last = _through_decoder(model, traces[1], of_decoded[targets], start, length[targets])
        of_projected, _ = pull_back(
            model.encoder_lstm,
            traces[0],
            pairs.source[some],
            pairs.src_len[targets],
            of_states(some),
            of_last,
        )
        grad.append(torch.linalg.vecdot(of_projected, projected[place[pairs.source[some]]]))
        start, begin = targets.stop, some.stop
    return torch.cat(grad)


def _through_decoder(model, trace, of_decoded, start: int, length: torch.Tensor) -> State:
    """The gradients of the encoder's last states, for the replicas of some targets in a row.

    Args:
        model: the model.
        trace: of the decoder.
        of_decoded: (targets, hidden).
        start: the first of the targets, among all of the batch.
        length: (targets,) the decoder's tokens that each has read, on the CPU.
    """
    first = start + torch.arange(len(length)) - length + 1
    replica = torch.repeat_interleave(length)
    rows = first[replica] + torch.arange(len(replica)) - (length.cumsum(0) - length)[replica]
    of_last = of_decoded.new_zeros(model.decoder_lstm.num_layers, *of_decoded.shape)
    of_last[-1] = of_decoded
    of_last = (of_last, torch.zeros_like(of_last))
    rows = rows.to(of_decoded.device)
    _, of_initial = pull_back(model.decoder_lstm, trace, rows, length, grad_last=of_last)
    # It started from the mean over directions of the encoder's last states.
    return tuple(part.repeat_interleave(2, dim=0) / 2 for part in of_initial)

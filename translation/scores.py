"""α, β and Δ of a batch, and the prediction of its targets (docs/method.md, section 3.2)."""

from typing import NamedTuple

import torch
from data import Batch
from models import AttentionTranslator, flat, mean_over_directions, padded, real_places
from torch.nn import functional as F

from attention_dynamics.lstm import State, input_bias, input_projection, lstm_states, pull_back

# Rows whose logits over the vocabulary are in memory at once: what fits in a CPU's cache.
_ROWS_AT_ONCE = 512

# Tokens of the replicas of sentences, one for each target, whose gradients are in memory at once.
_REPLICAS_AT_ONCE = 1 << 15

# The highest logits up to this size, either way, cost log-probabilities no digit that counts (2e-6)
# when they are not subtracted first.
_HARMLESS = 20.0


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


class Output(NamedTuple):
    """Outputs of a model for a batch in evaluation mode.

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
def score_batch(model: AttentionTranslator, batch: Batch, with_grad: bool) -> Output:
    """α, β and, if ``with_grad``, Δ of a batch, by a model in evaluation mode.

    β_ts is the log-probability of the correct target if all attention sat on s. Δ_ts is minus
    d(-log p(y_t))/dgate_s, where each source embedding is multiplied by a gate of 1.
    """
    traces = ([], []) if with_grad else (None, None)
    src_tokens = model.distinct(batch.src, batch.src_lengths)
    states, last = lstm_states(model.encoder_lstm, *src_tokens, trace=traces[0])
    initial = mean_over_directions(last)
    inputs = model.distinct(batch.inputs, batch.trg_lengths)
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
        grad_combined = prediction.slope * (combined > 0)
        grad_decoded, grad_context = (grad_combined @ model.extra_ff.weight).chunk(2, dim=1)
        grad_context = grad_context @ model.project_enc.weight  # (trg_tokens, 2 * hidden)
        grad_score = query = None
        if not model.uniform:
            grad_score, grad_query = _through_softmax(grad_context, states, all_alpha, batch)
            grad_decoded = grad_decoded + grad_query @ model.attn_lin.weight
            query = model.query(decoded)

        def grad_states(some: slice) -> torch.Tensor:
            """The gradients of e for some pairs, (pairs, 2 * hidden), apart for each target."""
            target = pairs.target[some]
            gradient = alpha[some, None] * grad_context[target]
            return (
                gradient
                if grad_score is None
                else gradient + grad_score[some, None] * query[target]
            )

        grad = _gate_gradients(model, batch, traces, grad_decoded, grad_states, pairs)
    return Output(prediction.log_prob, prediction.correct, alpha, beta, grad)


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


def _through_softmax(grad_context, states, all_alpha, batch: Batch):
    """The gradients of the scores (pairs,) and of q (trg_tokens, 2 * hidden)."""
    keys = padded(states, batch.src_lengths)
    grad_alpha = padded(grad_context, batch.trg_lengths) @ keys.transpose(1, 2)
    grad_scores = all_alpha * (grad_alpha - (all_alpha * grad_alpha).sum(dim=2, keepdim=True))
    return _real_pairs(grad_scores, batch), flat(grad_scores @ keys, batch.trg_lengths)


def _gate_gradients(model, batch: Batch, traces, grad_decoded, grad_states, pairs: _Pairs):
    """Δ (pairs,): a replica of the sentence for each target, many pulled back at once.

    A gate g_s on the embedding x_s acts through z_s = W x_s g_s + b alone, so that d/dg_s is the
    inner product of d/dz_s with z_s - b.

    Args:
        model: the model.
        batch: the sentences.
        traces: of the encoder and of the decoder.
        grad_decoded: (trg_tokens, hidden) gradients of d_t, of each target's own log-probability.
        grad_states: slice of pairs -> (pairs, 2 * hidden) those of e_s.
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
        grad_last = _through_decoder(
            model, traces[1], grad_decoded[targets], start, length[targets]
        )
        grad_projected, _ = pull_back(
            model.encoder_lstm,
            traces[0],
            pairs.source[some],
            pairs.src_len[targets],
            grad_states(some),
            grad_last,
        )
        grad.append(torch.linalg.vecdot(grad_projected, projected[place[pairs.source[some]]]))
        start, begin = targets.stop, some.stop
    return torch.cat(grad)


def _through_decoder(model, trace, grad_decoded, start: int, length: torch.Tensor) -> State:
    """The gradients of the encoder's last states, for the replicas of some targets in a row.

    Args:
        model: the model.
        trace: of the decoder.
        grad_decoded: (targets, hidden).
        start: the first of the targets, among all of the batch.
        length: (targets,) the decoder's tokens that each has read, on the CPU.
    """
    first = start + torch.arange(len(length)) - length + 1
    replica = torch.repeat_interleave(length)
    rows = first[replica] + torch.arange(len(replica)) - (length.cumsum(0) - length)[replica]
    grad_last = grad_decoded.new_zeros(model.decoder_lstm.num_layers, *grad_decoded.shape)
    grad_last[-1] = grad_decoded
    grad_last = (grad_last, torch.zeros_like(grad_last))
    rows = rows.to(grad_decoded.device)
    _, grad_initial = pull_back(model.decoder_lstm, trace, rows, length, grad_last=grad_last)
    # It started from the mean over directions of the encoder's last states.
    return tuple(part.repeat_interleave(2, dim=0) / 2 for part in grad_initial)

"""α, β and Δ of a batch, and the prediction of its targets (docs/method.md, section 3.2)."""

from typing import NamedTuple

import torch
from data import Batch
from models import AttentionTranslator, flat, mean_over_directions, padded, real_places
from torch.nn import functional as F

from attention_dynamics.lstm import input_bias, input_projection, lstm_states, pull_back

# Rows whose logits over the vocabulary are in memory at once: what fits in a CPU's cache.
_ROWS_AT_ONCE = 512

# Tokens of the replicas of sentences, one for each target, whose gradients are in memory at once.
_REPLICAS_AT_ONCE = 1 << 15

# Logits up to this size need no shift before exp: it changes log-probabilities by less than 2e-6.
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
    """Turn logits (rows, vocab) into multiples of the probabilities, in place.

    Returns:
        Their sum (rows, 1), and what was subtracted from the logits before, (rows, 1): ``highest``,
        or 0 where that pass over all logits is not needed.
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


def _token_pairs(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All (target, source) token pairs of the sentences, in the layout of the logs.

    Returns:
        (pairs,) flat target token, (pairs,) flat source token; (trg_tokens,) pairs of each target,
        on the CPU.
    """
    src_len = batch.src_lengths.repeat_interleave(batch.trg_lengths)
    first = batch.src_lengths.cumsum(0) - batch.src_lengths
    first = first.repeat_interleave(batch.trg_lengths)  # (trg_tokens,)
    target = torch.repeat_interleave(src_len)
    within = torch.arange(len(target)) - (src_len.cumsum(0) - src_len)[target]
    device = batch.src.device
    return target.to(device), (first[target] + within).to(device), src_len


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
    target, source, src_len = _token_pairs(batch)
    all_alpha = model.alpha(decoded, states, batch.src_lengths, batch.trg_lengths)
    alpha = _real_pairs(all_alpha, batch)
    context = flat(all_alpha @ padded(states, batch.src_lengths), batch.trg_lengths)
    combined = model.combine(decoded, context)
    prediction = predict(model, combined, batch.targets, with_grad)
    beta = _beta(model, batch.targets, decoded, states, target, source)
    if not with_grad:
        return Output(prediction.log_prob, prediction.correct, alpha, beta, None)

    grad_combined = prediction.slope * (combined > 0)
    grad_decoded, grad_context = (grad_combined @ model.extra_ff.weight).chunk(2, dim=1)
    grad_context = grad_context @ model.project_enc.weight  # (trg_tokens, 2 * hidden)
    if not model.uniform:
        grad_score, grad_query = _through_softmax(grad_context, states, all_alpha, batch)
        grad_decoded = grad_decoded + grad_query @ model.attn_lin.weight
        query = model.query(decoded)

    def grad_states(some: slice) -> torch.Tensor:
        """The gradients of e for some pairs, (pairs, 2 * hidden), apart for each target."""
        gradient = alpha[some, None] * grad_context[target[some]]
        if model.uniform:
            return gradient
        return gradient + grad_score[some, None] * query[target[some]]

    grad = _gate_gradients(model, batch, traces, grad_decoded, grad_states, source, src_len)
    return Output(prediction.log_prob, prediction.correct, alpha, beta, grad)


def _real_pairs(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """(pairs,) of padded values (batch, trg_len, src_len), in the layout of the logs."""
    real = real_places(batch.src_lengths)[:, None, :] & real_places(batch.trg_lengths)[:, :, None]
    return values[real.to(values.device)]


def _beta(model: AttentionTranslator, targets, decoded, states, target, source) -> torch.Tensor:
    """β (pairs,): F [d; P e] is a sum of two parts, each computed once per token."""
    by_target, by_source = model.extra_ff.weight.chunk(2, dim=1)
    from_target = F.linear(decoded, by_target, model.extra_ff.bias)  # (trg_tokens, hidden)
    from_source = F.linear(model.project_enc(states), by_source)  # (src_tokens, hidden)
    weight, bias = model.hidden2vocab.weight, model.hidden2vocab.bias
    beta = decoded.new_empty(len(target))
    parts = (values.split(_ROWS_AT_ONCE) for values in (target, source, beta))
    for trg, src, out in zip(*parts, strict=True):
        combined = F.relu(from_target[trg] + from_source[src])  # (rows, hidden)
        logits = F.linear(combined, weight, bias)  # (rows, vocab)
        right = logits.gather(1, targets[trg][:, None])
        total, shift = _exponentiate(logits, logits.amax(dim=1, keepdim=True))
        torch.sub(right - shift, total.log(), out=out[:, None])
    return beta


def _through_softmax(grad_context, states, all_alpha, batch: Batch):
    """The gradients of the scores (pairs,) and of q (trg_tokens, 2 * hidden)."""
    keys = padded(states, batch.src_lengths)
    grad_alpha = padded(grad_context, batch.trg_lengths) @ keys.transpose(1, 2)
    grad_scores = all_alpha * (grad_alpha - (all_alpha * grad_alpha).sum(dim=2, keepdim=True))
    return _real_pairs(grad_scores, batch), flat(grad_scores @ keys, batch.trg_lengths)


def _gate_gradients(model, batch: Batch, traces, grad_decoded, grad_states, source, src_len):
    """Δ (pairs,): a replica of the sentence for each target, many pulled back at once.

    A gate g_s on the embedding x_s acts through z_s = W x_s g_s + b alone, so that d/dg_s is the
    inner product of d/dz_s with z_s - b.

    Args:
        model: the model.
        batch: the sentences.
        traces: of the encoder and of the decoder.
        grad_decoded: (trg_tokens, hidden) gradients of d_t, of each target's own log-probability.
        grad_states: slice of pairs -> (pairs, 2 * hidden) those of e_s.
        source: (pairs,) source token of each pair.
        src_len: (trg_tokens,) pairs of each target, on the CPU.
    """
    words, place = batch.src.unique(return_inverse=True)
    projected = input_projection(model.encoder_lstm, model.embedding(words))
    projected -= input_bias(model.encoder_lstm)
    # The replica of target t reads the decoder's tokens 0..t, and all source tokens.
    length = torch.cat([torch.arange(1, n + 1) for n in batch.trg_lengths])  # (trg_tokens,)
    part = (src_len + length).cumsum(0) // _REPLICAS_AT_ONCE
    grad, start, begin = [], 0, 0
    for size in part.unique_consecutive(return_counts=True)[1].tolist():
        targets = slice(start, start + size)
        some = slice(begin, begin + int(src_len[targets].sum()))
        # Through the decoder, from each target back to the encoder's last states.
        lengths = length[targets]
        replica = torch.repeat_interleave(lengths)
        first = torch.arange(start, start + size) - lengths + 1  # token of each replica
        within = torch.arange(len(replica)) - (lengths.cumsum(0) - lengths)[replica]
        rows = (first[replica] + within).to(grad_decoded.device)
        grad_last = grad_decoded.new_zeros(
            model.decoder_lstm.num_layers, size, grad_decoded.shape[1]
        )
        grad_last[-1] = grad_decoded[targets]
        grad_last = (grad_last, torch.zeros_like(grad_last))
        _, grad_initial = pull_back(model.decoder_lstm, traces[1], rows, lengths, None, grad_last)
        # It started from the mean over directions of the encoder's last states.
        grad_last = tuple(layers.repeat_interleave(2, dim=0) / 2 for layers in grad_initial)
        tokens = source[some]
        grad_projected, _ = pull_back(
            model.encoder_lstm, traces[0], tokens, src_len[targets], grad_states(some), grad_last
        )
        grad.append(torch.linalg.vecdot(grad_projected, projected[place[tokens]]))
        start, begin = targets.stop, some.stop
    return torch.cat(grad)

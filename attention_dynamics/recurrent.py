"""Recurrent layers over sequences of different lengths: exact, and fast on the CPU.

Sequences travel *flat*: the rows of all sequences one after another, shape ``(tokens, features)``,
with their lengths beside them, so that no layer computes on padding.

On CUDA the packed cuDNN path is used. On the CPU, torch's packed LSTM multiplies the input step by
step, slices every tensor of every step apart for autograd, and adds the weights' gradients up one
step at a time. Here the work is ordered as cuDNN orders it: the batch is packed (sorted by falling
length, so that step t is one block of rows), all products that do not wait for the recurrence (the
input's, and in the backward pass those for the weights' and the input's gradients) are one large
product each, and the derivatives of the gates are written out. Gradients that nobody asks for are
not computed: Δ needs none of the weights'.
"""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence


def bidirectional_lstm(
    lstm: nn.LSTM, inputs: torch.Tensor, lengths: torch.Tensor, tokens: torch.Tensor | None = None
) -> torch.Tensor:
    """The states of a one-layer bidirectional LSTM over every sequence (method A.1: h_l).

    Equal to ``lstm(pack_padded_sequence(...))`` up to rounding (1e-6).

    Args:
        lstm: a one-layer ``nn.LSTM(..., bidirectional=True)``.
        inputs: ``(tokens, features)``, the sequences one after another; or, with ``tokens``,
            ``(rows, features)``, such as the distinct words of the batch.
        lengths: ``(batch,)`` int64 on the CPU, all at least 1, summing to the number of tokens.
        tokens: ``(tokens,)`` int64, the row of ``inputs`` that each token reads; a word that occurs
            several times is then multiplied by the input weights once.

    Returns:
        ``(tokens, 2 * hidden)``, forward states then backward states.
    """
    if lstm.num_layers != 1 or not lstm.bidirectional:
        raise ValueError("bidirectional_lstm takes a one-layer bidirectional nn.LSTM")
    if inputs.is_cuda:
        # cuDNN reverses each sequence by itself.
        ahead, _, batch_sizes = _packing(lengths)
        ahead = ahead.to(inputs.device)
        rows = ahead if tokens is None else tokens[ahead]
        output, _ = lstm(PackedSequence(inputs.index_select(0, rows), batch_sizes))
        return output.data.index_select(0, _inverse(ahead))
    return recurrence(lstm, input_projection(lstm, inputs), lengths, tokens)


def input_projection(lstm: nn.LSTM, inputs: torch.Tensor) -> torch.Tensor:
    """The input's share of all gates, W_ih x + b_ih + b_hh, of both directions.

    Args:
        lstm: as in :func:`bidirectional_lstm`.
        inputs: ``(rows, features)``: tokens, or the embeddings of all words, so that the words of a
            sentence can be looked up in the result.

    Returns:
        ``(rows, 2 * 4 * hidden)``.
    """
    weight = torch.cat([lstm.weight_ih_l0, lstm.weight_ih_l0_reverse])
    return F.linear(inputs, weight, input_bias(lstm))


def input_bias(lstm: nn.LSTM) -> torch.Tensor:
    """The part of :func:`input_projection` that does not depend on the input, (2 * 4 * hidden,)."""
    return torch.cat(
        [lstm.bias_ih_l0 + lstm.bias_hh_l0, lstm.bias_ih_l0_reverse + lstm.bias_hh_l0_reverse]
    )


def recurrence(
    lstm: nn.LSTM,
    projected: torch.Tensor,
    lengths: torch.Tensor,
    tokens: torch.Tensor | None = None,
) -> torch.Tensor:
    """The states ``(tokens, 2 * hidden)`` from projected inputs ``(rows, 2 * 4 * hidden)``.

    The second half of :func:`bidirectional_lstm`, after :func:`input_projection`.
    """
    ahead, back, batch_sizes = _packing(lengths)
    sizes = batch_sizes.tolist()
    weights = (lstm.weight_hh_l0, lstm.weight_hh_l0_reverse)
    states = []
    for order, part, weight in zip((ahead, back), projected.chunk(2, dim=1), weights, strict=True):
        order = order.to(projected.device)
        rows = order if tokens is None else tokens[order]
        packed = _PackedLSTM.apply(part.index_select(0, rows), weight, sizes)
        states.append(packed.index_select(0, _inverse(order)))
    return torch.cat(states, dim=1)


def _packing(lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """How to pack flat sequences, read forwards and backwards.

    Returns:
        ``ahead`` and ``back`` (tokens,): the flat row at each packed place; and ``batch_sizes``
        (longest,): how many sequences have a token at step t.
    """
    falling, by_length = lengths.sort(descending=True, stable=True)
    ends = lengths.cumsum(0)[by_length]
    steps = torch.arange(int(falling[0])).unsqueeze(1)  # (longest, 1)
    real = steps < falling  # (longest, batch)
    ahead = (ends - falling + steps)[real]
    back = (ends - 1 - steps)[real]
    return ahead, back, real.sum(dim=1)


def _inverse(order: torch.Tensor) -> torch.Tensor:
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    return inverse


class _PackedLSTM(torch.autograd.Function):
    """One direction of an LSTM over a packed batch, from zero states, as ``torch.nn.LSTM`` has it.

    z_t = projected input + W_hh h_(t-1); i, f, o = sigmoid and g = tanh of its four parts (in the
    order i, f, g, o); c_t = f c_(t-1) + i g; h_t = o tanh(c_t).
    """

    @staticmethod
    def forward(ctx, projected, weight_hh, sizes):
        """States (tokens, hidden) of packed (tokens, 4 * hidden), ``sizes[t]`` rows at step t."""
        hidden = weight_hh.shape[1]
        gates = projected.clone()  # becomes z, then i, f, g, o, in place
        cells, tanhs, states = (gates.new_empty(len(gates), hidden) for _ in range(3))
        recurrent = weight_hh.t()
        start, before = 0, None
        for size in sizes:
            stop = start + size
            z = gates[start:stop]
            if before is not None:
                z.addmm_(states[before : before + size], recurrent)
            z[:, : 2 * hidden].sigmoid_()
            z[:, 2 * hidden : 3 * hidden].tanh_()
            z[:, 3 * hidden :].sigmoid_()
            i, f, g, o = z.split(hidden, dim=1)
            cell = cells[start:stop]
            torch.mul(i, g, out=cell)
            if before is not None:
                cell.addcmul_(f, cells[before : before + size])
            torch.tanh(cell, out=tanhs[start:stop])
            torch.mul(o, tanhs[start:stop], out=states[start:stop])
            start, before = stop, start
        ctx.sizes = sizes
        ctx.save_for_backward(weight_hh, gates, cells, tanhs, states)
        return states

    @staticmethod
    def backward(ctx, grad_states):
        weight_hh, gates, cells, tanhs, states = ctx.saved_tensors
        sizes, hidden = ctx.sizes, weight_hh.shape[1]
        earlier_cells = _earlier(cells, sizes)
        i, f, g, o = gates.view(-1, 4, hidden).unbind(1)
        # Derivatives for all steps at once: of c_t by the pre-activations of i, f and g, of h_t by
        # that of o, and of h_t by c_t.
        by_gate = torch.empty_like(gates).view(-1, 4, hidden)
        torch.mul(g * i, 1 - i, out=by_gate[:, 0])
        torch.mul(earlier_cells * f, 1 - f, out=by_gate[:, 1])
        torch.mul(i, 1 - g * g, out=by_gate[:, 2])
        torch.mul(tanhs * o, 1 - o, out=by_gate[:, 3])
        by_cell = o * (1 - tanhs * tanhs)
        grad_z = by_gate  # filled in place, step by step
        rows = sizes[0]
        grad_state = gates.new_zeros(rows, hidden)
        grad_cell = gates.new_zeros(rows, hidden)
        stop = len(gates)
        for size in reversed(sizes):
            start = stop - size
            # Sequences that end at this step come in with zero from the steps after it.
            dh, dc = grad_state[:size], grad_cell[:size]
            dh += grad_states[start:stop]
            dc.addcmul_(dh, by_cell[start:stop])
            z = grad_z[start:stop]
            z[:, :3] *= dc.unsqueeze(1)
            z[:, 3] *= dh
            dc *= f[start:stop]
            if start:
                torch.mm(z.view(size, -1), weight_hh, out=dh)
            stop = start
        grad_z = grad_z.view(len(gates), 4 * hidden)
        wants_weight = ctx.needs_input_grad[1]
        return grad_z, grad_z.t() @ _earlier(states, sizes) if wants_weight else None, None


def _earlier(packed: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """``packed`` one step earlier in each sequence, zero at the first step; same shape."""
    blocks, start = [packed.new_zeros(sizes[0], packed.shape[1])], 0
    for size, later in pairwise(sizes):
        blocks.append(packed[start : start + later])
        start += size
    return torch.cat(blocks)

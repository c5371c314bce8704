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
    device = projected.device
    return _Recurrence.apply(
        projected,
        lstm.weight_hh_l0,
        lstm.weight_hh_l0_reverse,
        (ahead.to(device), back.to(device)),
        tokens,
        batch_sizes.tolist(),
    )


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


class _Recurrence(torch.autograd.Function):
    """Both directions of an LSTM over a packed batch, from zero states, as in ``torch.nn.LSTM``.

    z_t = projected input + W_hh h_(t-1); i, f, o = sigmoid and g = tanh of its four parts (in the
    order i, f, g, o); c_t = f c_(t-1) + i g; h_t = o tanh(c_t).
    """

    @staticmethod
    def forward(ctx, projected, weight_ahead, weight_back, orders, tokens, sizes):
        """States (tokens, 2 * hidden); ``orders`` as of _packing, ``sizes[t]`` rows at step t."""
        hidden = weight_ahead.shape[1]
        output = projected.new_empty(len(orders[0]), 2, hidden)
        weights, kept = (weight_ahead, weight_back), []
        for direction, part in enumerate(projected.chunk(2, dim=1)):
            order = orders[direction]
            gates = part.index_select(0, order if tokens is None else tokens[order])
            states, cells, tanhs = _run(gates, weights[direction], sizes)
            output[:, direction].index_copy_(0, order, states)
            kept += [gates, states, cells, tanhs]
        ctx.save_for_backward(*weights, *kept)
        ctx.orders, ctx.tokens, ctx.sizes, ctx.rows = orders, tokens, sizes, len(projected)
        return output.view(-1, 2 * hidden)

    @staticmethod
    def backward(ctx, grad):
        weights, kept = ctx.saved_tensors[:2], ctx.saved_tensors[2:]
        hidden = weights[0].shape[1]
        grad_projected = grad.new_empty(ctx.rows, 2, 4 * hidden)
        if ctx.tokens is not None:
            grad_projected.zero_()  # tokens that read the same row add up
        grad_weights = [None, None]
        for direction, order in enumerate(ctx.orders):
            gates, states, cells, tanhs = kept[4 * direction : 4 * direction + 4]
            grad_states = grad.view(-1, 2, hidden)[:, direction].index_select(0, order)
            grad_z = _run_back(grad_states, gates, cells, tanhs, weights[direction], ctx.sizes)
            if ctx.tokens is None:
                grad_projected[:, direction].index_copy_(0, order, grad_z)
            else:
                grad_projected[:, direction].index_add_(0, ctx.tokens[order], grad_z)
            if ctx.needs_input_grad[1 + direction]:
                grad_weights[direction] = grad_z.t() @ _earlier(states, ctx.sizes)
        return grad_projected.view(ctx.rows, -1), *grad_weights, None, None, None


def _run(gates: torch.Tensor, weight_hh: torch.Tensor, sizes: list[int]):
    """States, cells and tanh(cells), each (tokens, hidden) packed.

    ``gates`` (tokens, 4 * hidden) come in as projected inputs and go out as i, f, g, o.
    """
    hidden = weight_hh.shape[1]
    states, cells, tanhs = (gates.new_empty(len(gates), hidden) for _ in range(3))
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
    return states, cells, tanhs


def _run_back(grad_states, gates, cells, tanhs, weight_hh, sizes: list[int]) -> torch.Tensor:
    """The gradient of the pre-activations z, (tokens, 4 * hidden), from that of the states."""
    hidden = weight_hh.shape[1]
    i, f, g, o = gates.view(-1, 4, hidden).unbind(1)
    # Derivatives for all steps at once: of c_t by the pre-activations of i, f and g, of h_t by that
    # of o, and of h_t by c_t.
    grad_z = torch.empty_like(gates).view(-1, 4, hidden)
    sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
    tanh_backward = torch.ops.aten.tanh_backward
    sigmoid_backward(g, i, grad_input=grad_z[:, 0])
    sigmoid_backward(_earlier(cells, sizes), f, grad_input=grad_z[:, 1])
    tanh_backward.grad_input(i, g, grad_input=grad_z[:, 2])
    sigmoid_backward(tanhs, o, grad_input=grad_z[:, 3])
    by_cell = tanh_backward(o, tanhs)
    grad_state = gates.new_zeros(sizes[0], hidden)
    grad_cell = gates.new_zeros(sizes[0], hidden)
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
    return grad_z.view(len(gates), 4 * hidden)


def _earlier(packed: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """``packed`` one step earlier in each sequence, zero at the first step; same shape."""
    blocks, start = [packed.new_zeros(sizes[0], packed.shape[1])], 0
    for size, later in pairwise(sizes):
        blocks.append(packed[start : start + later])
        start += size
    return torch.cat(blocks)

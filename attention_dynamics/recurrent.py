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
from torch.nn.utils.rnn import PackedSequence


def bidirectional_lstm(lstm: nn.LSTM, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The states of a one-layer bidirectional LSTM over every sequence (method A.1: h_l).

    Equal to ``lstm(pack_padded_sequence(...))`` up to rounding (1e-6).

    Args:
        lstm: a one-layer ``nn.LSTM(..., bidirectional=True)``.
        inputs: ``(tokens, features)``, the sequences one after another.
        lengths: ``(batch,)`` int64 on the CPU, all at least 1, summing to ``tokens``.

    Returns:
        ``(tokens, 2 * hidden)``, forward states then backward states.
    """
    if lstm.num_layers != 1 or not lstm.bidirectional:
        raise ValueError("bidirectional_lstm takes a one-layer bidirectional nn.LSTM")
    ahead, back, batch_sizes = _packing(lengths)
    ahead, back = ahead.to(inputs.device), back.to(inputs.device)
    if inputs.is_cuda:
        # cuDNN reverses each sequence by itself.
        output, _ = lstm(PackedSequence(inputs.index_select(0, ahead), batch_sizes))
        return output.data.index_select(0, _inverse(ahead))
    sizes = batch_sizes.tolist()
    states = []
    for order, suffix in ((ahead, ""), (back, "_reverse")):
        weights = [
            getattr(lstm, f"{name}_l0{suffix}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        packed = _PackedLSTM.apply(inputs.index_select(0, order), *weights, sizes)
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

    z_t = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh; i, f, o = sigmoid and g = tanh of its four parts
    (in the order i, f, g, o); c_t = f c_(t-1) + i g; h_t = o tanh(c_t).
    """

    @staticmethod
    def forward(ctx, x, weight_ih, weight_hh, bias_ih, bias_hh, sizes):
        """States (tokens, hidden) of packed inputs (tokens, features), sizes[t] rows at step t."""
        hidden = weight_hh.shape[1]
        gates = torch.addmm(bias_ih + bias_hh, x, weight_ih.t())  # (tokens, 4 * hidden)
        cells, tanhs, states = (x.new_empty(len(x), hidden) for _ in range(3))
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
        ctx.save_for_backward(x, weight_ih, weight_hh, gates, cells, tanhs, states)
        return states

    @staticmethod
    def backward(ctx, grad_states):
        x, weight_ih, weight_hh, gates, cells, tanhs, states = ctx.saved_tensors
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
        grad_state = x.new_zeros(rows, hidden)
        grad_cell = x.new_zeros(rows, hidden)
        stop = len(x)
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
        grad_z = grad_z.view(len(x), 4 * hidden)
        wants_x, wants_ih, wants_hh, wants_bias, _ = ctx.needs_input_grad[:5]
        grad_bias = grad_z.sum(dim=0) if wants_bias else None
        return (
            grad_z @ weight_ih if wants_x else None,
            grad_z.t() @ x if wants_ih else None,
            grad_z.t() @ _earlier(states, sizes) if wants_hh else None,
            grad_bias,
            grad_bias,
            None,
        )


def _earlier(packed: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """``packed`` one step earlier in each sequence, zero at the first step; same shape."""
    blocks, start = [packed.new_zeros(sizes[0], packed.shape[1])], 0
    for size, later in pairwise(sizes):
        blocks.append(packed[start : start + later])
        start += size
    return torch.cat(blocks)

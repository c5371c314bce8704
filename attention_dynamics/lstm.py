"""Recurrent layers over sequences of different lengths: exact, and fast on the CPU.

Sequences travel *flat*: the rows of all sequences one after another, shape ``(tokens, features)``,
with their lengths beside them, so that no layer computes on padding.

On CUDA the packed cuDNN path is used. On the CPU, torch's packed LSTM multiplies and differentiates
step by step. Here the work is ordered as in cuDNN: the batch is packed (sorted by descending
length, so that step t is one block of rows), all products that do not wait for the recurrence are
one large product each, and the derivatives of the gates are written out. With the derivatives
stored (:class:`Trace`), any number of gradients per sequence can be pulled back at once
(:func:`pull_back`).
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

# A state (h, c) of all layers and directions, each (layers * directions, batch, hidden), ordered as
# in torch.nn.LSTM: layer by layer, forward before backward.
State = tuple[torch.Tensor, torch.Tensor]


class Packing(NamedTuple):
    """How flat sequences are packed.

    Attributes:
        orders: ahead and back, each (tokens,): the flat row at each packed position.
        by_length: (batch,) the sequences by descending length.
        ends: (batch,) the packed position of the last token of each of these.
        sizes: how many sequences have a token at step t, for each t below the longest length.
    """

    orders: tuple[torch.Tensor, torch.Tensor]
    by_length: torch.Tensor
    ends: torch.Tensor
    sizes: list[int]


class Trace(NamedTuple):
    """The derivatives that one layer and direction needs to pull gradients back; rows are flat.

    ``factors`` (tokens, 4, hidden) are those of c_t by the pre-activations of i, f and g, and that
    of h_t by the pre-activation of o; ``by_cell`` that of h_t by c_t and ``forget`` that of c_t by
    c_(t-1), each (tokens, hidden).
    """

    factors: torch.Tensor
    by_cell: torch.Tensor
    forget: torch.Tensor


def packing_of(lengths: torch.Tensor, device: torch.device | str = "cpu") -> Packing:
    """The packing of flat sequences with ``lengths`` (batch,), int64 on the CPU; on ``device``."""
    descending_lengths, by_length = lengths.sort(descending=True, stable=True)
    ends = lengths.cumsum(0)[by_length]
    steps = torch.arange(int(descending_lengths[0])).unsqueeze(1)  # (longest, 1)
    real = steps < descending_lengths  # (longest, batch)
    ahead = (ends - descending_lengths + steps)[real]
    back = (ends - 1 - steps)[real]
    sizes = real.sum(dim=1)
    last_steps = (sizes.cumsum(0) - sizes)[descending_lengths - 1] + torch.arange(len(lengths))
    orders = (ahead.to(device), back.to(device))
    return Packing(orders, by_length.to(device), last_steps.to(device), sizes.tolist())


def lstm_states(
    lstm: nn.LSTM,
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    tokens: torch.Tensor | None = None,
    initial: State | None = None,
    trace: list[Trace] | None = None,
) -> tuple[torch.Tensor, State]:
    """The states of an LSTM over every sequence, and its last ones.

    Equal to ``lstm(pack_padded_sequence(...), initial)`` up to rounding (1e-6), dropout between
    layers included (with random numbers of its own).

    Args:
        lstm: any ``nn.LSTM`` with biases and without projections.
        inputs: ``(tokens, features)``; or, with ``tokens``, ``(rows, features)``, such as the
            distinct words of the batch.
        lengths: ``(batch,)`` int64 on the CPU, all at least 1, summing to the number of tokens.
        tokens: ``(tokens,)`` int64, the row of ``inputs`` that each token reads.
        initial: (h, c) to start from; zero when None.
        trace: a list to which the :class:`Trace` of each layer and direction is appended, for
            :func:`pull_back`; then autograd sees nothing of this call.

    Returns:
        ``(tokens, directions * hidden)``, the last layer's states, forward then backward; and the
        state (h, c) of every layer after the last token that it reads of each sequence.
    """
    packing = packing_of(lengths, inputs.device)
    if inputs.is_cuda and trace is None:
        # cuDNN reverses each sequence by itself.
        ahead, by_length = packing.orders[0], packing.by_length
        rows = ahead if tokens is None else tokens[ahead]
        packed = PackedSequence(inputs.index_select(0, rows), torch.tensor(packing.sizes))
        start = None if initial is None else tuple(part[:, by_length] for part in initial)
        output, last = lstm(packed, start)
        back = by_length.argsort()
        return output.data.index_select(0, ahead.argsort()), tuple(part[:, back] for part in last)
    directions = 1 + lstm.bidirectional
    initial = initial or _zero_state(lstm, packing)
    states, last = inputs, []
    for layer in range(lstm.num_layers):
        if layer:
            states, tokens = F.dropout(states, lstm.dropout, lstm.training), None
        projected = input_projection(lstm, states, layer)
        h, c = (part[layer * directions :][:directions] for part in initial)
        arguments = (projected, h, c, tokens, packing, *_recurrent_weights(lstm, layer))
        if trace is None:
            states, *end = _Recurrence.apply(*arguments)
        else:
            with torch.no_grad():
                (states, *end), kept = _layer(*arguments)
                for order, derived in zip(packing.orders, _derived(kept, c, packing), strict=False):
                    place = order.argsort()
                    trace.append(Trace(*(part.index_select(0, place) for part in derived)))
        last.append(end)
    return states, tuple(torch.cat(parts) for parts in zip(*last, strict=True))


def input_projection(lstm: nn.LSTM, inputs: torch.Tensor, layer: int = 0) -> torch.Tensor:
    """W_ih x + b_ih + b_hh of each direction of a layer, ``(rows, directions * 4 * hidden)``.

    ``inputs`` ``(rows, features)`` are tokens, or the embeddings of all words, so that the words of
    a sentence can be looked up in the result.
    """
    weight = torch.cat([weights[0] for weights in _weights(lstm, layer)])
    return F.linear(inputs, weight, input_bias(lstm, layer))


def input_bias(lstm: nn.LSTM, layer: int = 0) -> torch.Tensor:
    """The part of :func:`input_projection` that does not depend on the input."""
    return torch.cat([bias_ih + bias_hh for _, _, bias_ih, bias_hh in _weights(lstm, layer)])


@torch.no_grad()
def pull_back(
    lstm: nn.LSTM,
    trace: list[Trace],
    rows: torch.Tensor,
    lengths: torch.Tensor,
    grad_states: torch.Tensor | None,
    grad_last: State,
) -> tuple[torch.Tensor, State]:
    """Gradients with respect to the inputs, for many *replicas* of the traced sequences at once.

    A replica is a traced sequence, or a beginning of one where there is one direction only, with
    gradients of its own; the forward pass is not repeated for it.

    Args:
        lstm: the traced one, without dropout.
        trace: of :func:`lstm_states`.
        rows: ``(tokens of all replicas,)``, the traced flat row of each of their tokens.
        lengths: ``(replicas,)`` int64 on the CPU.
        grad_states: ``(tokens of all replicas, directions * hidden)``; zero when None.
        grad_last: gradients of the last (h, c), each ``(layers * directions, replicas, hidden)``.

    Returns:
        The gradient of the first layer's :func:`input_projection`, and that of the initial (h, c).
    """
    packing = packing_of(lengths, rows.device)
    directions, hidden = 1 + lstm.bidirectional, lstm.hidden_size
    new_zeros = trace[0].forget.new_zeros
    if grad_states is None:
        grad_states = new_zeros(len(rows), directions * hidden)
    grad_first = tuple(torch.empty_like(part) for part in grad_last)
    for layer in reversed(range(lstm.num_layers)):
        grad_projected = new_zeros(len(rows), directions, 4 * hidden)
        traced = (
            [part.index_select(0, rows[order]) for part in derived]
            for order, derived in zip(packing.orders, trace[layer * directions :], strict=False)
        )
        weights = _recurrent_weights(lstm, layer)
        last = [part[layer * directions :] for part in grad_last]
        pulled = _pull_back_layer(grad_states, traced, weights, packing, last)
        for direction, (order, grad_z, *first) in enumerate(pulled):
            grad_projected[:, direction].index_copy_(0, order, grad_z)
            for part, value in zip(grad_first, first, strict=True):
                part[layer * directions + direction].index_copy_(0, packing.by_length, value)
        grad_projected = grad_projected.view(len(rows), -1)
        if layer:
            grad_states = grad_projected @ torch.cat([w_ih for w_ih, *_ in _weights(lstm, layer)])
    return grad_projected, grad_first


@torch.no_grad()
def gated_states(
    lstm: nn.LSTM, projected: torch.Tensor, tokens: torch.Tensor, packing: Packing
) -> tuple[torch.Tensor, list]:
    """States (tokens, directions * hidden) of a layer, and what :func:`gate_gradients` needs.

    ``lstm`` has one layer and starts from zero; ``tokens`` (tokens,) are the rows of ``projected``,
    of :func:`input_projection`, that each flat token reads.
    """
    h, c = _zero_state(lstm, packing)
    (states, _, _), kept = _layer(projected, h, c, tokens, packing, *_recurrent_weights(lstm, 0))
    return states, kept


@torch.no_grad()
def gate_gradients(
    lstm: nn.LSTM,
    projected: torch.Tensor,
    tokens: torch.Tensor,
    packing: Packing,
    kept: list,
    grad_states: torch.Tensor,
) -> torch.Tensor:
    """Gradients (tokens,) of gates of 1 that multiply the input of each token.

    A gate g on the input x acts through z = W x g + b alone, so that d/dg is the inner product of
    d/dz with z - b. The arguments are those of :func:`gated_states`, what it returned (``kept``,
    used up here), and the gradients of its states.
    """
    total = grad_states.new_zeros(len(tokens))
    zeros = _zero_state(lstm, packing)
    derived = _derived(kept, zeros[1], packing)
    pulled = _pull_back_layer(grad_states, derived, _recurrent_weights(lstm, 0), packing, zeros)
    directions = len(kept)
    biases, words = input_bias(lstm).chunk(directions), projected.chunk(directions, dim=1)
    for (order, grad_z, _, _), (gates, *_), of_words, bias in zip(
        pulled, kept, words, biases, strict=True
    ):
        # The gates of the forward pass are no longer needed: z takes their place.
        z = torch.index_select(of_words, 0, tokens[order], out=gates)
        of_bias = grad_z @ bias
        total.index_add_(0, order, grad_z.mul_(z).sum(dim=1) - of_bias)
    return total


def _weights(lstm: nn.LSTM, layer: int) -> list[list[torch.Tensor]]:
    """weight_ih, weight_hh, bias_ih, bias_hh of each direction of a layer."""
    directions = 1 + lstm.bidirectional
    return lstm.all_weights[layer * directions : (layer + 1) * directions]


def _recurrent_weights(lstm: nn.LSTM, layer: int) -> list[torch.Tensor]:
    return [weight_hh for _, weight_hh, _, _ in _weights(lstm, layer)]


def _zero_state(lstm: nn.LSTM, packing: Packing) -> State:
    size = lstm.num_layers * (1 + lstm.bidirectional), packing.sizes[0], lstm.hidden_size
    return lstm.weight_hh_l0.new_zeros(2, *size).unbind()


class _Recurrence(torch.autograd.Function):
    """All directions of a layer over a packed batch, as in ``torch.nn.LSTM``.

    z_t = projected input + W_hh h_(t-1); i, f, o = sigmoid and g = tanh of its four parts (in the
    order i, f, g, o); c_t = f c_(t-1) + i g; h_t = o tanh(c_t).
    """

    @staticmethod
    def forward(ctx, projected, h, c, tokens, packing, *weights):
        """As :func:`recurrence`; h and c (directions, batch, hidden)."""
        output, kept = _layer(projected, h, c, tokens, packing, *weights)
        ctx.save_for_backward(h, c, *weights, *(part for parts in kept for part in parts))
        ctx.tokens, ctx.packing, ctx.rows = tokens, packing, len(projected)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, grad_h, grad_c):
        h, c, *saved = ctx.saved_tensors
        directions, packing = len(saved) // 5, ctx.packing
        weights, kept = saved[:directions], list(zip(*[iter(saved[directions:])] * 4, strict=True))
        grad_projected = h.new_zeros(ctx.rows, directions, len(weights[0]))
        grad_weights = [None] * directions
        grad_h0, grad_c0 = torch.empty_like(h), torch.empty_like(c)
        derived = _derived(kept, c, packing)
        pulled = _pull_back_layer(grad, derived, weights, packing, (grad_h, grad_c))
        for direction, (order, grad_z, dh, dc) in enumerate(pulled):
            grad_h0[direction, packing.by_length] = dh
            grad_c0[direction, packing.by_length] = dc
            if ctx.tokens is None:
                grad_projected[:, direction].index_copy_(0, order, grad_z)
            else:  # tokens that read the same row add up
                grad_projected[:, direction].index_add_(0, ctx.tokens[order], grad_z)
            if ctx.needs_input_grad[5 + direction]:
                first = h[direction, packing.by_length]
                before = _earlier(kept[direction][1], packing.sizes, first)
                grad_weights[direction] = grad_z.t() @ before
        return grad_projected.view(ctx.rows, -1), grad_h0, grad_c0, None, None, *grad_weights


def _derived(kept, first_cells, packing: Packing):
    """The :class:`Trace` of each direction, in packed order, of what :func:`_layer` returned."""
    for (gates, _, cells, tanhs), first in zip(kept, first_cells, strict=True):
        yield _derivatives(gates, cells, tanhs, first[packing.by_length], packing.sizes)


def _pull_back_layer(grad_states, derived, weights, packing: Packing, grad_last):
    """For each direction: its order, and the gradients of z and of the initial h and c, packed."""
    directions, hidden = len(weights), weights[0].shape[1]
    grad_states = grad_states.reshape(-1, directions, hidden)
    for direction, (weight, factors) in enumerate(zip(weights, derived, strict=False)):
        order = packing.orders[direction]
        grad = grad_states[:, direction].index_select(0, order)
        last = (part[direction, packing.by_length] for part in grad_last)
        yield order, *_run_back(grad, *factors, weight, packing.sizes, *last)


def _layer(projected, h, c, tokens, packing: Packing, *weights):
    """((states, last h, last c), [(gates, states, cells, tanhs) packed, of each direction])."""
    orders, by_length, ends, sizes = packing
    hidden, directions = weights[0].shape[1], len(weights)
    output = projected.new_empty(len(orders[0]), directions, hidden)
    last = projected.new_empty(2, directions, sizes[0], hidden)
    kept = []
    for direction, part in enumerate(projected.chunk(directions, dim=1)):
        order = orders[direction]
        gates = part.index_select(0, order if tokens is None else tokens[order])
        first = h[direction, by_length], c[direction, by_length]
        states, cells, tanhs = _run(gates, weights[direction], sizes, *first)
        output[:, direction].index_copy_(0, order, states)
        last[0, direction].index_copy_(0, by_length, states[ends])
        last[1, direction].index_copy_(0, by_length, cells[ends])
        kept.append((gates, states, cells, tanhs))
    return (output.view(-1, directions * hidden), last[0], last[1]), kept


def _run(gates: torch.Tensor, weight_hh: torch.Tensor, sizes: list[int], h, c):
    """States, cells and tanh(cells), each (tokens, hidden) packed.

    ``gates`` (tokens, 4 * hidden) come in as projected inputs and go out as i, f, g, o. The state
    to start from is h and c (batch, hidden), by descending length.
    """
    hidden = weight_hh.shape[1]
    states, cells, tanhs = (gates.new_empty(len(gates), hidden) for _ in range(3))
    recurrent = weight_hh.t()
    # Views of all steps are made beforehand: by one call for all they cost a fraction.
    steps = zip(
        gates.split(sizes),
        gates[:, : 2 * hidden].split(sizes),
        *(part.split(sizes) for part in gates.chunk(4, dim=1)),
        *(part.split(sizes) for part in (states, cells, tanhs)),
        strict=True,
    )
    for z, i_and_f, i, f, g, o, state, cell, tanh in steps:
        if len(h) > len(z):
            h, c = h[: len(z)], c[: len(z)]
        z.addmm_(h, recurrent)
        i_and_f.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.mul(i, g, out=cell)
        cell.addcmul_(f, c)
        torch.tanh(cell, out=tanh)
        torch.mul(o, tanh, out=state)
        h, c = state, cell
    return states, cells, tanhs


def _derivatives(gates, cells, tanhs, first_cells, sizes: list[int]):
    """The fields of :class:`Trace` for all steps at once, in packed order."""
    hidden = cells.shape[1]
    i, f, g, o = gates.view(-1, 4, hidden).unbind(1)
    factors = torch.empty_like(gates).view(-1, 4, hidden)
    sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
    tanh_backward = torch.ops.aten.tanh_backward
    sigmoid_backward(g, i, grad_input=factors[:, 0])
    sigmoid_backward(_earlier(cells, sizes, first_cells), f, grad_input=factors[:, 1])
    tanh_backward.grad_input(i, g, grad_input=factors[:, 2])
    sigmoid_backward(tanhs, o, grad_input=factors[:, 3])
    return factors, tanh_backward(o, tanhs), f


def _run_back(grad_states, factors, by_cell, forget, weight_hh, sizes: list[int], grad_h, grad_c):
    """The gradients of the pre-activations z, (tokens, 4 * hidden), and of the state before step 0.

    ``grad_states`` (tokens, hidden) are those of the states apart from what later steps add, and
    ``grad_h``, ``grad_c`` (batch, hidden) those of the last states; ``factors``, ``by_cell`` and
    ``forget`` as in :class:`Trace`; all packed. ``factors``, ``grad_h`` and ``grad_c`` are
    overwritten.
    """
    dh, dc = grad_h[:0], grad_c[:0]
    steps = zip(
        factors.view(len(factors), -1).split(sizes),
        factors[:, :3].split(sizes),
        factors[:, 3].split(sizes),
        *(part.split(sizes) for part in (grad_states, by_cell, forget)),
        strict=True,
    )
    for z, of_cell, of_output, grad, factor, kept in reversed([*steps]):
        size = len(z)
        if len(dh) < size:
            # Sequences that end at this step come in with the gradient of their last state.
            dh, dc = grad_h[:size], grad_c[:size]
        dh += grad
        dc.addcmul_(dh, factor)
        of_cell.mul_(dc.unsqueeze(1))
        of_output.mul_(dh)
        dc *= kept
        torch.mm(z, weight_hh, out=dh)
    return factors.view(len(factors), -1), grad_h, grad_c


def _earlier(packed: torch.Tensor, sizes: list[int], first: torch.Tensor) -> torch.Tensor:
    """``packed`` one step earlier in each sequence, ``first`` at the first step."""
    blocks, start = [first], 0
    for size, later in pairwise(sizes):
        blocks.append(packed[start : start + later])
        start += size
    return torch.cat(blocks)

"""Recurrent layers over sequences of different lengths: exact, and fast on the CPU.

Sequences travel *flat*: the rows of all sequences one after another, shape ``(tokens, features)``,
with their lengths beside them, so that no layer computes on padding.

On CUDA the packed cuDNN path is used. Elsewhere packing is slow (one small product per step and no
fused kernel), so each direction is one fused, unpacked pass: padding comes after the real tokens,
where it cannot reach them, and the backward direction reads each sequence reversed within its own
length. A batch of very different lengths is cut into groups of similar length; the cut changes no
result.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

# What starting one more group costs, in rows of one time step (fitted on the training step of the
# paper's classifier: below about this many rows a step of the fused layer takes no less time).
_STEP_OVERHEAD = 4


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
    ends = lengths.cumsum(0)
    starts = ends - lengths
    if inputs.is_cuda:
        return _packed(lstm, inputs, lengths, starts)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    forward_weights = [getattr(lstm, name) for name in names]
    backward_weights = [getattr(lstm, f"{name}_reverse") for name in names]
    states, rows = [], []
    for group in length_groups(lengths):
        steps = torch.arange(int(lengths[group].max())).unsqueeze(1)  # (src_len, 1)
        real = steps < lengths[group]  # (src_len, group)
        ahead = torch.where(real, starts[group] + steps, 0)
        back = torch.where(real, ends[group] - 1 - steps, 0)
        for direction, index, weights in ((0, ahead, forward_weights), (1, back, backward_weights)):
            padded = inputs.index_select(0, index.flatten().to(inputs.device))
            padded = padded.view(*index.shape, -1)  # (src_len, group, features)
            zero = padded.new_zeros(1, len(group), lstm.hidden_size)
            output, _, _ = torch.lstm(
                padded, (zero, zero), weights, True, 1, 0.0, torch.is_grad_enabled(), False, False
            )
            states.append(output.flatten(0, 1))
            rows.append((direction, index, real))
    return _gather(states, rows, int(ends[-1]))


def _gather(states: list, rows: list, tokens: int) -> torch.Tensor:
    """Put the real rows of the padded passes back into flat order, directions side by side."""
    place = torch.empty(2, tokens, dtype=torch.int64)
    offset = 0
    for direction, index, real in rows:
        place[direction, index[real]] = offset + real.flatten().nonzero().squeeze(1)
        offset += index.numel()
    stacked = torch.cat(states) if len(states) > 1 else states[0]
    return stacked.index_select(0, place.T.flatten().to(stacked.device)).view(tokens, -1)


def _packed(
    lstm: nn.LSTM, inputs: torch.Tensor, lengths: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    steps = torch.arange(int(lengths.max())).unsqueeze(1)
    real = steps < lengths  # (src_len, batch)
    index = torch.where(real, starts + steps, 0).to(inputs.device)
    packed = pack_padded_sequence(inputs[index], lengths, enforce_sorted=False)
    output, _ = lstm(packed)
    # The data of a packed batch goes step by step over the sequences sorted by falling length.
    order = index[:, output.sorted_indices]
    kept = order[real.to(inputs.device)[:, output.sorted_indices]]
    place = torch.empty_like(kept)
    place[kept] = torch.arange(len(kept), device=kept.device)
    return output.data.index_select(0, place)


def length_groups(lengths: torch.Tensor) -> list[torch.Tensor]:
    """Cut a batch into groups of similar length: least padding and fewest starts together.

    Args:
        lengths: ``(batch,)``.

    Returns:
        Index tensors into the batch, together a permutation of it; the cheapest contiguous cut of
        the sorted lengths under cost(group) = longest * (size + overhead), found by dynamic
        programming.
    """
    sorted_lengths, order = lengths.sort(descending=True, stable=True)
    longest = sorted_lengths.tolist()
    batch = len(longest)
    if (longest[0] - longest[-1]) * batch <= _STEP_OVERHEAD * longest[-1]:
        return [order]  # no cut can save what it costs
    best, cut = [0] * (batch + 1), [0] * (batch + 1)
    for end in range(1, batch + 1):
        best[end], cut[end] = min(
            (best[start] + longest[start] * (end - start + _STEP_OVERHEAD), start)
            for start in range(end)
        )
    groups = []
    end = batch
    while end:
        groups.append(order[cut[end] : end])
        end = cut[end]
    return groups[::-1]

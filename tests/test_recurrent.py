"""The fast recurrent layer equals the packed one, whatever the lengths."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from attention_dynamics.recurrent import bidirectional_lstm


def packed(lstm: nn.LSTM, flat: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The plain way: pad, pack, run, unpack, cut off the padding."""
    padded = pad_sequence(flat.split(lengths.tolist()))
    output, _ = lstm(pack_padded_sequence(padded, lengths, enforce_sorted=False))
    output, _ = pad_packed_sequence(output)
    return torch.cat([output[:length, i] for i, length in enumerate(lengths)])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 1000))
def test_states_and_gradients_equal_the_packed_layer(lengths, seed):
    torch.manual_seed(seed)
    lstm = nn.LSTM(7, 6, bidirectional=True)
    lengths = torch.tensor(lengths)
    flat = torch.randn(int(lengths.sum()), 7, requires_grad=True)
    weight = torch.randn(int(lengths.sum()), 12)
    results = []
    for layer in (bidirectional_lstm, packed):
        states = layer(lstm, flat, lengths)
        leaves = [flat, *lstm.parameters()]
        results.append((states, *torch.autograd.grad((states * weight).sum(), leaves)))
    for fast, slow in zip(*results, strict=True):
        # float32 sums in another order: 1e-6 of rounding on states below 1, more on sums of many.
        torch.testing.assert_close(fast, slow, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-6)


def test_tokens_that_share_a_row_add_their_gradients_up():
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 4, bidirectional=True)
    lengths, tokens = torch.tensor([3, 1, 4]), torch.tensor([0, 2, 2, 1, 0, 0, 2, 1])
    words = torch.randn(3, 5, requires_grad=True)
    shared = bidirectional_lstm(lstm, words, lengths, tokens)
    apart = bidirectional_lstm(lstm, words[tokens], lengths)
    torch.testing.assert_close(shared, apart, rtol=0, atol=1e-6)
    leaves = [words, *lstm.parameters()]
    gradients = [torch.autograd.grad((s**2).sum(), leaves) for s in (shared, apart)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_long_and_short_together():
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 4, bidirectional=True)
    lengths = torch.tensor([2, 600, 1, 30, 2])
    flat = torch.randn(int(lengths.sum()), 5)
    with torch.no_grad():
        fast, slow = bidirectional_lstm(lstm, flat, lengths), packed(lstm, flat, lengths)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-6)


def test_other_layers_are_refused():
    with pytest.raises(ValueError, match="one-layer bidirectional"):
        bidirectional_lstm(nn.LSTM(3, 3, num_layers=2), torch.zeros(1, 3), torch.tensor([1]))

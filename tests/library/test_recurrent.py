"""Fast recurrent layers equal the packed ones, whatever the lengths; gradients pulled back too."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from attention_dynamics.lstm import input_projection, lstm_states, pull_back


def packed(lstm: nn.LSTM, flat: torch.Tensor, lengths: torch.Tensor, initial=None):
    """The plain way: pad, pack, run, unpack, cut off the padding."""
    padded = pad_sequence(flat.split(lengths.tolist()))
    output, last = lstm(pack_padded_sequence(padded, lengths, enforce_sorted=False), initial)
    output, _ = pad_packed_sequence(output)
    return torch.cat([output[:length, i] for i, length in enumerate(lengths)]), last


def random_state(lstm: nn.LSTM, batch: int):
    shape = (lstm.num_layers * (1 + lstm.bidirectional), batch, lstm.hidden_size)
    return tuple(torch.randn(shape, requires_grad=True) for _ in range(2))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(0, 1000),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_states_and_gradients_equal_the_packed_layer(
    lengths, seed, num_layers, bidirectional, from_zero
):
    torch.manual_seed(seed)
    lstm = nn.LSTM(7, 6, num_layers=num_layers, bidirectional=bidirectional)
    lengths = torch.tensor(lengths)
    flat = torch.randn(int(lengths.sum()), 7, requires_grad=True)
    weight = torch.randn(int(lengths.sum()), 6 * (1 + bidirectional))
    initial = None if from_zero else random_state(lstm, len(lengths))
    weight_h, weight_c = random_state(lstm, len(lengths))
    results = []
    for layer in (lstm_states, packed):
        states, (h, c) = layer(lstm, flat, lengths, initial=initial)
        leaves = [flat, *lstm.parameters(), *(initial or ())]
        loss = (states * weight).sum() + (h * weight_h).sum() + (c * weight_c).sum()
        results.append((states, h, c, *torch.autograd.grad(loss, leaves)))
    for fast, slow in zip(*results, strict=True):
        # float32 sums in another order: 1e-6 of rounding on states below 1, more on sums of many.
        torch.testing.assert_close(fast, slow, rtol=1e-4, atol=5e-5)
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("from_zero", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_pulled_back_gradients_equal_those_of_a_pass_for_each_replica(bidirectional, from_zero):
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 4, num_layers=2, bidirectional=bidirectional)
    flat, lengths = torch.randn(16, 5), torch.tensor([3, 7, 1, 5])
    initial = None if from_zero else random_state(lstm, 4)
    trace = []
    with torch.no_grad():
        lstm_states(lstm, flat, lengths, initial=initial, trace=trace)
    # Sequence 1 twice; of sequence 3 the beginning, where there is one direction only.
    third = 5 if bidirectional else 2
    rows = torch.cat([torch.arange(3, 10), torch.arange(3, 10), torch.arange(11, 11 + third)])
    replicas = torch.tensor([7, 7, third])
    grad_states = torch.randn(len(rows), 4 * (1 + bidirectional))
    grad_last = tuple(part.detach() for part in random_state(lstm, 3))
    pulled, first = pull_back(
        lstm, trace, rows, replicas, grad_states, tuple(part.clone() for part in grad_last)
    )

    inputs = flat[rows].requires_grad_()
    start = initial and tuple(part.detach()[:, [1, 1, 3]].requires_grad_() for part in initial)
    projected = input_projection(lstm, inputs)
    states, last = packed(lstm, inputs, replicas, start)
    loss = (states * grad_states).sum()
    loss = loss + sum((a * b).sum() for a, b in zip(last, grad_last, strict=True))
    expected = torch.autograd.grad(loss, [inputs, *(start or ())])
    found = [pulled @ torch.cat([w for w, *_ in lstm.all_weights[: 1 + bidirectional]])]
    assert projected.shape == pulled.shape
    found += first if start else []
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_dropout_between_layers_only_while_training():
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 4, num_layers=2, dropout=0.5)
    flat, lengths = torch.randn(7, 5), torch.tensor([3, 4])
    lstm.eval()
    still, _ = lstm_states(lstm, flat, lengths)
    torch.testing.assert_close(still, packed(lstm, flat, lengths)[0], rtol=0, atol=1e-6)
    lstm.train()
    means = torch.stack([lstm_states(lstm, flat, lengths)[0] for _ in range(400)])
    assert (means.std(dim=0) > 0).all()
    plain = torch.stack([packed(lstm, flat, lengths)[0] for _ in range(400)])
    # 400 draws each: the means differ by their standard error.
    error = (means.var(dim=0) / 400 + plain.var(dim=0) / 400).sqrt()
    assert ((means.mean(dim=0) - plain.mean(dim=0)).abs() < 5 * error).all()


def test_tokens_that_share_a_row_add_their_gradients_up():
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 4, bidirectional=True)
    lengths, tokens = torch.tensor([3, 1, 4]), torch.tensor([0, 2, 2, 1, 0, 0, 2, 1])
    words = torch.randn(3, 5, requires_grad=True)
    shared, _ = lstm_states(lstm, words, lengths, tokens)
    apart, _ = lstm_states(lstm, words[tokens], lengths)
    torch.testing.assert_close(shared, apart, rtol=0, atol=1e-6)
    leaves = [words, *lstm.parameters()]
    gradients = [torch.autograd.grad((s**2).sum(), leaves) for s in (shared, apart)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.cuda
@pytest.mark.parametrize("layers", [1, 2])
def test_lstm_on_cuda_equals_the_cpu(layers):
    """States, last states and all gradients; cuDNN computes them on CUDA, our layer on the CPU."""
    torch.manual_seed(0)
    lengths = torch.tensor([7, 1, 30, 12])
    lstm = nn.LSTM(5, 6, num_layers=layers, bidirectional=True)
    inputs, weights = torch.randn(int(lengths.sum()), 5), torch.randn(int(lengths.sum()), 12)
    results = []
    for device in ("cpu", "cuda"):
        model, x = copy.deepcopy(lstm).to(device), inputs.clone().to(device).requires_grad_()
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TF32 has 10 bits
            states, last = lstm_states(model, x, lengths)
            (states * weights.to(device)).sum().backward()
        gradients = [x.grad, *(parameter.grad for parameter in model.parameters())]
        results.append([value.detach().cpu() for value in (states, *last, *gradients)])
    for on_cpu, on_cuda in zip(*results, strict=True):
        # float32 sums in another order, through 30 steps.
        torch.testing.assert_close(on_cuda, on_cpu, atol=1e-5, rtol=1e-4)

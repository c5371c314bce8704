"""Parity of CUDA with the CPU; skipped where torch finds no CUDA device."""

import copy

import pytest
import torch
from torch import nn

from attention_dynamics.lstm import lstm_states


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

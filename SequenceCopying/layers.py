"""The layers of torch with a leading dimension of seeds: many models as one (CUDA).

Each has the parameter names of its namesake in ``torch.nn``, with shapes (seed, ...), so that a
stacked model's state dict is the stack of those of single models (:func:`stack_states`).
"""

import torch
from torch import nn

State = tuple[torch.Tensor, torch.Tensor]


class StackedEmbedding(nn.Module):
    """As ``nn.Embedding``, a table for each seed."""

    def __init__(self, seeds: int, vocab: int, hidden: int):
        """Tables (seed, vocab, hidden), filled by load_state_dict."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(seeds, vocab, hidden))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows (seed, len, batch, hidden) of ids (seed, len, batch)."""
        seeds, vocab, hidden = self.weight.shape
        first = vocab * torch.arange(seeds, device=ids.device)[:, None, None]
        return nn.functional.embedding(ids + first, self.weight.view(seeds * vocab, hidden))


class StackedLinear(nn.Module):
    """As ``nn.Linear``, a map for each seed."""

    def __init__(self, seeds: int, in_features: int, out_features: int):
        """Weights (seed, out, in) and biases (seed, out), filled by load_state_dict."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(seeds, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(seeds, out_features))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(seed, ..., out) of values (seed, ..., in)."""
        rows = torch.baddbmm(self.bias[:, None], values.flatten(1, -2), self.weight.transpose(1, 2))
        return rows.view(*values.shape[:-1], -1)


class StackedLSTM(nn.Module):
    """As one layer of ``nn.LSTM``, for each seed; its steps are written out.

    z_t = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh; i, f, o = sigmoid and g = tanh of its four parts
    (in the order i, f, g, o); c_t = f c_(t-1) + i g; h_t = o tanh(c_t).
    """

    def __init__(self, seeds: int, in_features: int, hidden: int, bidirectional: bool = False):
        """Weights (seed, 4 * hidden, ...) of each direction, filled by load_state_dict."""
        super().__init__()
        self.hidden_size = hidden
        self.suffixes = ("_l0", "_l0_reverse") if bidirectional else ("_l0",)
        shapes = {
            "weight_ih": (4 * hidden, in_features),
            "weight_hh": (4 * hidden, hidden),
            "bias_ih": (4 * hidden,),
            "bias_hh": (4 * hidden,),
        }
        for suffix in self.suffixes:
            for name, shape in shapes.items():
                self.register_parameter(name + suffix, nn.Parameter(torch.empty(seeds, *shape)))

    def forward(
        self, values: torch.Tensor, initial: State | None = None
    ) -> tuple[torch.Tensor, State]:
        """States (seed, len, batch, directions * hidden), last (h, c).

        Args:
            values: (seed, len, batch, in).
            initial: (h, c) to start from, each (seed, directions, batch, hidden); zero if None.
        """
        states, lasts = [], []
        for place, suffix in enumerate(self.suffixes):
            first = None if initial is None else tuple(part[:, place] for part in initial)
            output, last = self._direction(values, suffix, first)
            states.append(output)
            lasts.append(last)
        last = tuple(torch.stack(parts, dim=1) for parts in zip(*lasts, strict=True))
        return torch.cat(states, dim=-1), last

    def _direction(self, values, suffix, first):
        weight_ih, weight_hh, bias_ih, bias_hh = (
            getattr(self, name + suffix)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        seeds, length, batch, _ = values.shape
        projected = torch.baddbmm(
            (bias_ih + bias_hh)[:, None], values.flatten(1, 2), weight_ih.transpose(1, 2)
        ).view(seeds, length, batch, -1)
        recurrent = weight_hh.transpose(1, 2)  # (seed, hidden, 4 * hidden)
        if first is None:
            first = (projected.new_zeros(seeds, batch, self.hidden_size),) * 2
        (h, c), states = first, []
        places = range(length) if suffix == "_l0" else reversed(range(length))
        for place in places:
            z = torch.baddbmm(projected[:, place], h, recurrent)
            i, f, g, o = z.chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        if suffix != "_l0":
            states.reverse()
        return torch.stack(states, dim=1), (h, c)


def stack_states(models: list[nn.Module]) -> dict[str, torch.Tensor]:
    """The state dict of a stacked model, from single models of the same shape."""
    states = [model.state_dict() for model in models]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}

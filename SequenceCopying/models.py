"""The models that copy: one attention head, the same stacked over seeds (CUDA), several heads."""

from typing import NamedTuple

import torch
from data import Batch
from torch import nn
from torch.nn import functional as F

from attention_dynamics.lstm import lstm_states

State = tuple[torch.Tensor, torch.Tensor]
ATTENTION_MEASURES = ("attn_acc", "attn_acc_m1", "attn_acc_p1")
MEASURES = ("loss", "acc", *ATTENTION_MEASURES, "beta_acc")


class Copier(nn.Module):
    """log p(y_t) = log softmax(W tanh(F [d_t; P c_t])), c_t = Σ_s α_ts e_s.

    With ``seeds`` it is many models at once, and every tensor has a leading dimension of seeds,
    written ``...`` below.
    """

    def __init__(
        self,
        vocab: int,
        hidden: int,
        bi: bool = False,
        uniform: bool = False,
        no_context: bool = False,
        seeds: int | None = None,
    ):
        """A model over ``vocab`` tokens, the end and start markers included.

        With ``no_context``, P c_t is replaced by 0. The weights of a stack of ``seeds`` models are
        filled by load_state_dict.
        """
        super().__init__()
        self.uniform, self.no_context = uniform, no_context
        directions, shape = 1 + bi, () if seeds is None else (seeds,)
        embedding, linear, lstm = SINGLE_LAYERS if seeds is None else STACKED_LAYERS
        self.embedding = embedding(*shape, vocab, hidden)
        self.encoder_lstm = lstm(*shape, hidden, hidden, bidirectional=bi)
        self.decoder_lstm = lstm(*shape, hidden, hidden)
        self.after_decoder_hidden = linear(*shape, 2 * hidden, hidden)
        self.hidden2vocab = linear(*shape, hidden, vocab)
        self.attn_lin = linear(*shape, hidden, directions * hidden)
        self.project_enc = linear(*shape, directions * hidden, hidden)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits (..., trg_len, batch, vocab) of every target, given the targets before it."""
        decoded, states = self.decode(batch)
        context = fused_attention(*self._queries_and_keys(decoded, states)).transpose(-3, -2)
        return self.combine(decoded, context)

    def decode(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """d (..., trg_len, batch, hidden) and e (..., src_len, batch, directions * hidden)."""
        states, last = self._states(self.encoder_lstm, batch.src)
        # The decoder has one direction: it starts from the mean over those of the encoder.
        initial = tuple(part.mean(dim=-3, keepdim=True) for part in last)
        decoded, _ = self._states(self.decoder_lstm, batch.inputs, initial)
        return decoded, states

    def _states(self, lstm: nn.Module, ids: torch.Tensor, initial=None):
        """States (..., len, batch, features) and last (h, c) of an LSTM over ids (..., len, batch).

        On the CPU our own layer is about 1.4x as fast as torch's fused kernel, because it
        multiplies each token by the input weights once. Reduced precision needs the fused kernel.
        """
        device = ids.device.type
        if ids.dim() > 2 or device != "cpu" or torch.is_autocast_enabled(device):
            return lstm(self.embedding(ids), initial)
        length, batch = ids.shape
        words, tokens = ids.t().flatten().unique(return_inverse=True)
        lengths = torch.full((batch,), length)
        states, last = lstm_states(lstm, self.embedding(words), lengths, tokens, initial)
        return states.view(batch, length, -1).transpose(0, 1), last

    def alpha(self, decoded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """α (..., trg_len, batch, src_len) for the d and e returned by :meth:`decode`."""
        return explicit_attention(*self._queries_and_keys(decoded, states)).transpose(-3, -2)

    def _queries_and_keys(self, decoded, states) -> tuple[torch.Tensor, torch.Tensor]:
        """Both (..., batch, len, directions * hidden); zero queries make α uniform."""
        queries = self.attn_lin(decoded)
        if self.uniform:
            queries = torch.zeros_like(queries)
        return queries.transpose(-3, -2), states.transpose(-3, -2)

    def combine(self, decoded: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Logits (..., vocab) of d (..., hidden) and c (..., directions * hidden)."""
        projected = self.project_enc(context)
        if self.no_context:
            projected = torch.zeros_like(projected)
        hidden = self.after_decoder_hidden(torch.cat([decoded, projected], dim=-1))
        return self.hidden2vocab(hidden.tanh())


def fused_attention(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Σ_s softmax_s(q_t . e_s) e_s (..., batch, trg_len, features), by torch's fused kernels.

    The queries are (..., batch, trg_len, features), the keys (..., batch, src_len, features).
    """
    # The kernels expect a dimension of heads, which is 1 here.
    q, k = (part.flatten(0, -3)[:, None] for part in (queries, keys))
    return F.scaled_dot_product_attention(q, k, k, scale=1.0)[:, 0].view(queries.shape)


def explicit_attention(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """softmax_s(q_t . e_s), (..., batch, trg_len, src_len), of the shapes of fused_attention."""
    return (queries @ keys.transpose(-2, -1)).softmax(dim=-1)


class Output(NamedTuple):
    """The outputs of a model on an evaluation batch.

    ``probed`` is the prediction of the one-token probe: the most probable token if all attention is
    on the state of the token being copied (β_tt).
    """

    log_probs: torch.Tensor  # (..., trg_len, batch, vocab)
    alpha: torch.Tensor  # (..., trg_len, batch, src_len)
    probed: torch.Tensor  # (..., trg_len, batch)


@torch.no_grad()
def compute_output(model: Copier, batch: Batch) -> Output:
    """Log-probabilities, α and the one-token probe of a batch."""
    decoded, states = model.decode(batch)
    alpha = model.alpha(decoded, states)
    context = (alpha.transpose(-3, -2) @ states.transpose(-3, -2)).transpose(-3, -2)
    log_probs = model.combine(decoded, context).log_softmax(dim=-1)
    # Target t copies source token t: both end in eos.
    return Output(log_probs, alpha, model.combine(decoded, states).argmax(dim=-1))


def attention_hits(alpha: torch.Tensor) -> dict[str, torch.Tensor]:
    """{attn_acc, attn_acc_m1, attn_acc_p1: booleans (..., trg_len, batch)} of α.

    The most attended token is the one being copied, the one after it, the one before it.
    """
    positions = torch.arange(alpha.shape[-3], device=alpha.device)[:, None]
    attended = alpha.argmax(dim=-1)  # (..., trg_len, batch)
    offsets = zip(ATTENTION_MEASURES, (0, 1, -1), strict=True)
    return {name: attended - offset == positions for name, offset in offsets}


def measure(output: Output, targets: torch.Tensor) -> list[dict[str, float]]:
    """MEASURES (see seq2seq.py) of each seed, over all targets (..., trg_len, batch).

    The list has one entry for a single model.
    """
    of_targets = output.log_probs.gather(-1, targets[..., None]).squeeze(-1)
    hits = {
        "acc": output.log_probs.argmax(dim=-1) == targets,
        **attention_hits(output.alpha),
        "beta_acc": output.probed == targets,
    }
    numbers = {"loss": (-of_targets.mean(dim=(-2, -1))).reshape(-1).tolist()}
    count = targets.shape[-2] * targets.shape[-1]
    for name, hit in hits.items():
        # Divided as Python numbers: an exact fraction.
        numbers[name] = [n / count for n in hit.sum(dim=(-2, -1)).reshape(-1).tolist()]
    seeds = range(len(numbers["loss"]))
    return [{name: values[seed] for name, values in numbers.items()} for seed in seeds]


# --- layers with a leading dimension of seeds; parameter names are those of torch.nn ---


class StackedEmbedding(nn.Module):
    """``nn.Embedding`` with a table for each seed."""

    def __init__(self, seeds: int, vocab: int, hidden: int):
        """Tables (seed, vocab, hidden), filled by load_state_dict."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(seeds, vocab, hidden))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows (seed, len, batch, hidden) of ids (seed, len, batch)."""
        seeds, vocab, hidden = self.weight.shape
        first = vocab * torch.arange(seeds, device=ids.device)[:, None, None]
        return F.embedding(ids + first, self.weight.view(seeds * vocab, hidden))


class StackedLinear(nn.Module):
    """``nn.Linear`` with weights for each seed."""

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
    """One layer of ``nn.LSTM`` with weights for each seed; its steps are written out.

    z_t = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh; i, f, o = sigmoid and g = tanh of its four parts
    (in the order i, f, g, o); c_t = f c_(t-1) + i g; h_t = o tanh(c_t).
    """

    def __init__(self, seeds: int, in_features: int, hidden: int, bidirectional: bool = False):
        """Weights (seed, 4 * hidden, ...) of each direction, filled by load_state_dict."""
        super().__init__()
        self.hidden_size = hidden
        self.suffixes = ("_l0", "_l0_reverse") if bidirectional else ("_l0",)
        for suffix in self.suffixes:
            for name, shape in nn.LSTM(in_features, hidden, device="meta").named_parameters():
                empty = torch.empty(seeds, *shape.shape)
                self.register_parameter(name.replace("_l0", suffix), nn.Parameter(empty))

    def forward(
        self, values: torch.Tensor, initial: State | None = None
    ) -> tuple[torch.Tensor, State]:
        """States (seed, len, batch, directions * hidden), last (h, c).

        ``initial`` is the first (h, c), each (seed, directions, batch, hidden); zero if None.
        """
        states, lasts = [], []
        for direction, suffix in enumerate(self.suffixes):
            first = None if initial is None else tuple(part[:, direction] for part in initial)
            output, last = self._direction(values, suffix, first)
            states.append(output)
            lasts.append(last)
        last = tuple(torch.stack(parts, dim=1) for parts in zip(*lasts, strict=True))
        return torch.cat(states, dim=-1), last

    def _direction(self, values, suffix, first):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weight_ih, weight_hh, bias_ih, bias_hh = (getattr(self, name + suffix) for name in names)
        seeds, length, batch, _ = values.shape
        projected = torch.baddbmm(
            (bias_ih + bias_hh)[:, None], values.flatten(1, 2), weight_ih.transpose(1, 2)
        ).view(seeds, length, batch, -1)
        recurrent = weight_hh.transpose(1, 2)  # (seed, hidden, 4 * hidden)
        if first is None:
            first = (projected.new_zeros(seeds, batch, self.hidden_size),) * 2
        (h, c), states = first, []
        for t in range(length) if suffix == "_l0" else reversed(range(length)):
            z = torch.baddbmm(projected[:, t], h, recurrent)
            i, f, g, o = z.chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        if suffix != "_l0":
            states.reverse()
        return torch.stack(states, dim=1), (h, c)


SINGLE_LAYERS = nn.Embedding, nn.Linear, nn.LSTM
STACKED_LAYERS = StackedEmbedding, StackedLinear, StackedLSTM


def stack_states(models: list[nn.Module]) -> dict[str, torch.Tensor]:
    """The state dict of a stacked model, from single models of the same shape."""
    states = [model.state_dict() for model in models]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


# --- several heads (Section 5.2) ---


class Body(nn.Module):
    """The whole model except its heads; every trial starts from the same body."""

    def __init__(self, vocab: int, hidden: int):
        """A body over ``vocab`` tokens."""
        super().__init__()
        self.encoder_embedding = nn.Embedding(vocab, hidden)
        self.decoder_embedding = nn.Embedding(vocab, hidden)
        self.encoder_gru = nn.GRU(hidden, hidden)
        self.decoder_gru = nn.GRU(hidden, hidden)
        self.after_decoder_hidden = nn.Linear(2 * hidden, hidden)
        self.hidden2vocab = nn.Linear(hidden, vocab)


class Head(nn.Module):
    """One head: its scores are attn_proj(d) . e, its output is enc_proj(context)."""

    def __init__(self, hidden: int):
        """A head on states of size ``hidden``."""
        super().__init__()
        self.attn_proj = nn.Linear(hidden, hidden)
        self.enc_proj = nn.Linear(hidden, hidden)


class MultiheadCopier(nn.Module):
    """log p(y_t) = log softmax(W tanh(F [mean over heads; d_t])) (Section 5.2)."""

    def __init__(self, body: Body, heads: list[Head]):
        """The model of a body and its heads, whose weights it shares."""
        super().__init__()
        self.body, self.heads = body, nn.ModuleList(heads)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits (trg_len, batch, vocab) of every target, given the targets before it."""
        return self.combine(*self.decode(batch))

    def decode(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """d (trg_len, batch, hidden) and e (src_len, batch, hidden)."""
        body = self.body
        states, last = body.encoder_gru(body.encoder_embedding(batch.src))
        return body.decoder_gru(body.decoder_embedding(batch.inputs), last)[0], states

    def combine(self, decoded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Logits (trg_len, batch, vocab) for the d and e returned by :meth:`decode`."""
        both = torch.cat([self.attend(decoded, states), decoded], dim=-1)
        return self.body.hidden2vocab(self.body.after_decoder_hidden(both).tanh())

    def attend(self, decoded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """The mean over heads (trg_len, batch, hidden) of enc_proj(context)."""
        heads, (trg_len, batch, hidden) = len(self.heads), decoded.shape
        contexts = fused_attention(*self._queries_and_keys(decoded, states))
        contexts = contexts.view(batch, heads, trg_len, hidden).permute(2, 0, 1, 3)
        # All heads as one product after the attention.
        weight, bias = self._joined("enc_proj", 1)
        bias = bias.view(heads, hidden).mean(dim=0)
        return F.linear(contexts.reshape(trg_len, batch, -1), weight / heads, bias)

    def alpha(self, decoded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """The mean of α over heads, (trg_len, batch, src_len)."""
        alpha = explicit_attention(*self._queries_and_keys(decoded, states))
        return alpha.unflatten(0, (-1, len(self.heads))).mean(dim=1).transpose(0, 1)

    def _queries_and_keys(self, decoded, states) -> tuple[torch.Tensor, torch.Tensor]:
        """(batch * heads, trg_len, hidden) and (batch * heads, src_len, hidden)."""
        heads, (trg_len, batch, hidden) = len(self.heads), decoded.shape
        # All heads as one product before the attention.
        queries = F.linear(decoded, *self._joined("attn_proj", 0))  # (trg_len, batch, heads * h)
        queries = queries.view(trg_len, batch * heads, hidden).transpose(0, 1)
        keys = states.transpose(0, 1)[:, None].expand(-1, heads, -1, -1)
        return queries, keys.reshape(batch * heads, -1, hidden)

    def _joined(self, name: str, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        layers = [getattr(head, name) for head in self.heads]
        weight = torch.cat([layer.weight for layer in layers], dim=dim)
        return weight, torch.cat([layer.bias for layer in layers])

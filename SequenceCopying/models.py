"""The model that copies: LSTM encoder and decoder, one attention head, a one-token probe (A.3)."""

from typing import NamedTuple

import torch
from data import Batch
from layers import StackedEmbedding, StackedLinear, StackedLSTM
from torch import nn
from torch.nn import functional as F

from attention_dynamics.lstm import lstm_states


class Copier(nn.Module):
    """log p(y_t) = log softmax(W tanh(F [d_t; P c_t])), c_t = Σ_s α_ts e_s (A.3).

    With ``seeds``, as many models at once: every tensor then has a leading dimension of seeds,
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
        """A model over ``vocab`` tokens.

        Args:
            vocab: tokens, with those that mark end and start.
            hidden: size of embeddings and states.
            bi: whether the encoder reads in both directions.
            uniform: whether α is 1/src_len, whatever is learned.
            no_context: whether P c_t is replaced by 0, so that the decoder is on its own.
            seeds: models in one, whose weights load_state_dict then fills; None for a single one.
        """
        super().__init__()
        self.uniform, self.no_context = uniform, no_context
        directions = 1 + bi
        if seeds is None:
            embedding, linear, lstm = nn.Embedding, nn.Linear, nn.LSTM
            shape = ()
        else:
            embedding, linear, lstm = StackedEmbedding, StackedLinear, StackedLSTM
            shape = (seeds,)
        self.embedding = embedding(*shape, vocab, hidden)
        self.encoder_lstm = lstm(*shape, hidden, hidden, bidirectional=bi)
        self.decoder_lstm = lstm(*shape, hidden, hidden)
        self.after_decoder_hidden = linear(*shape, 2 * hidden, hidden)
        self.hidden2vocab = linear(*shape, hidden, vocab)
        self.attn_lin = linear(*shape, hidden, directions * hidden)
        self.project_enc = linear(*shape, directions * hidden, hidden)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits (..., trg_len, batch, vocab) of every target, given those before it."""
        decoded, states = self.decode(batch)
        if self.no_context:
            return self.combine(decoded, None)
        queries, keys = self.query(decoded).transpose(-3, -2), states.transpose(-3, -2)
        return self.combine(decoded, fused_attention(queries, keys).transpose(-3, -2))

    def decode(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """d (..., trg_len, batch, hidden) and e (..., src_len, batch, directions * hidden)."""
        states, last = self._states(self.encoder_lstm, batch.src)
        # The decoder has one direction: it starts from the mean over those of the encoder (A.2).
        initial = tuple(part.mean(dim=-3, keepdim=True) for part in last)
        decoded, _ = self._states(self.decoder_lstm, batch.inputs, initial)
        return decoded, states

    def _states(self, lstm: nn.Module, ids: torch.Tensor, initial=None):
        """States (..., len, batch, features) and last (h, c) of an LSTM over ids (..., len, batch).

        On the CPU our own layer is about 1.4x as fast as torch's fused kernel, because it
        multiplies each token by the input weights once. Reduced precision needs the fused one.
        """
        device = ids.device.type
        if ids.dim() > 2 or device != "cpu" or torch.is_autocast_enabled(device):
            return lstm(self.embedding(ids), initial)
        length, batch = ids.shape
        words, tokens = ids.t().flatten().unique(return_inverse=True)
        lengths = torch.full((batch,), length)
        states, last = lstm_states(lstm, self.embedding(words), lengths, tokens, initial)
        return states.view(batch, length, -1).transpose(0, 1), last

    def query(self, decoded: torch.Tensor) -> torch.Tensor:
        """q (..., directions * hidden); zero, so that all scores are 0, if α is uniform."""
        if self.uniform:
            return decoded.new_zeros(*decoded.shape[:-1], self.attn_lin.weight.shape[-2])
        return self.attn_lin(decoded)

    def alpha(self, decoded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """α (..., trg_len, batch, src_len) of d and e as :meth:`decode` gives them."""
        queries = self.query(decoded).transpose(
            -3, -2
        )  # (..., batch, trg_len, directions * hidden)
        scores = queries @ states.transpose(-3, -2).transpose(-2, -1)
        return scores.softmax(dim=-1).transpose(-3, -2)

    def combine(self, decoded: torch.Tensor, context: torch.Tensor | None) -> torch.Tensor:
        """Logits (..., vocab) of d (..., hidden) and c (..., directions * hidden).

        Without a context, P c is 0.
        """
        projected = torch.zeros_like(decoded) if context is None else self.project_enc(context)
        hidden = self.after_decoder_hidden(torch.cat([decoded, projected], dim=-1))
        return self.hidden2vocab(hidden.tanh())


def fused_attention(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Σ_s softmax_s(q_t . e_s) e_s (..., batch, trg_len, features), by torch's fused kernels.

    Args:
        queries: (..., batch, trg_len, features).
        keys: (..., batch, src_len, features).
    """
    # The kernels want a dimension of heads: there is one.
    q, k = (part.flatten(0, -3)[:, None] for part in (queries, keys))
    return F.scaled_dot_product_attention(q, k, k, scale=1.0)[:, 0].view(queries.shape)


class Reading(NamedTuple):
    """What a model makes of a batch in evaluation.

    Attributes:
        log_probs: (..., trg_len, batch, vocab).
        alpha: (..., trg_len, batch, src_len).
        probed: (..., trg_len, batch), the token that the one-token probe says: the most probable
            one if all attention sat on the state of the token being copied, β_tt of A.2.
    """

    log_probs: torch.Tensor
    alpha: torch.Tensor
    probed: torch.Tensor


@torch.no_grad()
def read(model: Copier, batch: Batch) -> Reading:
    """Log-probabilities, α and the one-token probe of a batch."""
    decoded, states = model.decode(batch)
    alpha = model.alpha(decoded, states)
    if model.no_context:
        context = attended = None
    else:
        rows = alpha.transpose(-3, -2) @ states.transpose(-3, -2)
        # Target t copies source token t: both end in eos.
        context, attended = rows.transpose(-3, -2), states
    log_probs = model.combine(decoded, context).log_softmax(dim=-1)
    return Reading(log_probs, alpha, model.combine(decoded, attended).argmax(dim=-1))


MEASURES = ("loss", "acc", "attn_acc", "attn_acc_m1", "attn_acc_p1", "beta_acc")


def measure(reading: Reading, targets: torch.Tensor) -> list[dict[str, float]]:
    """MEASURES of each seed (one entry for a single model), over all targets (trg_len, batch).

    ``acc``: the most probable token is the target. ``attn_acc``: the most attended token is the
    one being copied; ``attn_acc_m1``: the one after it; ``attn_acc_p1``: the one before it.
    ``beta_acc``: the one-token probe says the target. ``loss``: mean cross-entropy.
    """
    places = torch.arange(targets.shape[-2], device=targets.device)[:, None]
    attended = reading.alpha.argmax(dim=-1)  # (..., trg_len, batch)
    hits = {
        "acc": reading.log_probs.argmax(dim=-1) == targets,
        "attn_acc": attended == places,
        "attn_acc_m1": attended - 1 == places,
        "attn_acc_p1": attended + 1 == places,
        "beta_acc": reading.probed == targets,
    }
    of_targets = reading.log_probs.gather(-1, targets[..., None]).squeeze(-1)
    numbers = {"loss": (-of_targets.mean(dim=(-2, -1))).reshape(-1).tolist()}
    count = targets.shape[-2] * targets.shape[-1]
    for name, hit in hits.items():
        # Divided as Python numbers: an exact fraction.
        numbers[name] = [n / count for n in hit.sum(dim=(-2, -1)).reshape(-1).tolist()]
    return [
        dict(zip(MEASURES, values, strict=True))
        for values in zip(*(numbers[name] for name in MEASURES), strict=True)
    ]

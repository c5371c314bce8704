"""A plain implementation of the copying experiment (docs/method.md, section 4).

One seed after another; explicit attention matrices; torch's own layers and optimizer. Nothing here
is made fast, and nothing slow on purpose. The tests compare the experiment's own code with it; the
benchmark runs both side by side. Sequences are drawn as the experiment draws them, which is part of
what a seed means.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Copier(nn.Module):
    """LSTM encoder and decoder with one attention head, over ``vocab`` tokens."""

    def __init__(self, vocab: int, hidden: int, bi: bool = False, uniform: bool = False):
        super().__init__()
        self.uniform, self.directions = uniform, 1 + bi
        self.embedding = nn.Embedding(vocab, hidden)
        self.encoder_lstm = nn.LSTM(hidden, hidden, bidirectional=bi)
        self.decoder_lstm = nn.LSTM(hidden, hidden)
        self.after_decoder_hidden = nn.Linear(2 * hidden, hidden)
        self.hidden2vocab = nn.Linear(hidden, vocab)
        self.attn_lin = nn.Linear(hidden, self.directions * hidden)
        self.project_enc = nn.Linear(self.directions * hidden, hidden)

    def forward(self, src: torch.Tensor, trg_in: torch.Tensor):
        """Log-probabilities and attention of a batch, and the states of both sides.

        Args:
            src: ``(src_len, batch)``, the end included.
            trg_in: ``(trg_len, batch)``, from the start token on.

        Returns:
            log_probs ``(trg_len, batch, vocab)``, alpha ``(trg_len, batch, src_len)``, decoded
            ``(trg_len, batch, hidden)``, states ``(src_len, batch, directions * hidden)``.
        """
        states, (h, c) = self.encoder_lstm(self.embedding(src))
        initial = (h.mean(dim=0, keepdim=True), c.mean(dim=0, keepdim=True))
        decoded, _ = self.decoder_lstm(self.embedding(trg_in), initial)
        scores = torch.einsum("tbh,sbh->tbs", self.attn_lin(decoded), states)
        if self.uniform:
            scores = torch.zeros_like(scores)
        alpha = scores.softmax(dim=-1)
        context = torch.einsum("tbs,sbh->tbh", alpha, states)
        return self.log_probs(decoded, context), alpha, decoded, states

    def log_probs(self, decoded: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """``(..., vocab)`` of d ``(..., hidden)`` and contexts ``(..., directions * hidden)``."""
        both = torch.cat([decoded, self.project_enc(context)], dim=-1)
        hidden = torch.tanh(self.after_decoder_hidden(both))
        return self.hidden2vocab(hidden).log_softmax(dim=-1)


def draw(
    rng: np.random.Generator, size: int, seq_length: int, num_vocab: int, no_rep: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fresh sequences: source ``(seq_length + 1, size)`` and target ``(seq_length + 2, size)``."""
    if no_rep:
        tokens = rng.permuted(np.tile(np.arange(num_vocab), (size, 1)), axis=1)[:, :seq_length]
    else:
        tokens = rng.integers(num_vocab, size=(size, seq_length))
    x = torch.tensor(tokens.T.copy())
    src = torch.cat([x, torch.full((1, size), num_vocab)])
    return src, torch.cat([torch.full((1, size), num_vocab + 1), src])


@torch.no_grad()
def evaluate(model: Copier, src: torch.Tensor, trg: torch.Tensor) -> dict[str, float]:
    """The measures of section 4.1 over all target positions, and the loss."""
    targets = trg[1:]
    log_probs, alpha, decoded, states = model(src, trg[:-1])
    places = torch.arange(len(targets)).unsqueeze(1)
    attended = alpha.argmax(dim=-1)
    probed = model.log_probs(decoded, states).argmax(dim=-1)  # all attention on token t
    return {
        "loss": F.nll_loss(log_probs.flatten(0, 1), targets.flatten()).item(),
        "acc": (log_probs.argmax(dim=-1) == targets).double().mean().item(),
        "attn_acc": (attended == places).double().mean().item(),
        "attn_acc_m1": (attended == places + 1).double().mean().item(),
        "attn_acc_p1": (attended == places - 1).double().mean().item(),
        "beta_acc": (probed == targets).double().mean().item(),
    }


def train(
    seed: int,
    seq_length: int = 40,
    num_vocab: int = 40,
    no_rep: bool = True,
    hidden: int = 256,
    batch_size: int = 128,
    steps: int = 200,
    bi: bool = False,
    uniform: bool = False,
) -> list[dict[str, float]]:
    """The evaluations of one seed, after the updates of steps 0, 10, 20, ..."""
    torch.manual_seed(seed)
    model = Copier(num_vocab + 2, hidden, bi, uniform)
    optimizer = torch.optim.Adam(model.parameters())
    training, evaluation = (np.random.default_rng([seed, purpose]) for purpose in (0, 1))
    history = []
    for step in range(steps):
        src, trg = draw(training, batch_size, seq_length, num_vocab, no_rep)
        log_probs, _, _, _ = model(src, trg[:-1])
        loss = F.nll_loss(log_probs.flatten(0, 1), trg[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            batch = draw(evaluation, 50, seq_length, num_vocab, no_rep)
            history.append({"step": step, **evaluate(model, *batch)})
    return history

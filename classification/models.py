"""The classifier: bidirectional LSTM, one attention head, KTIW probe β (docs/method.md, 2.1)."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from attention_dynamics.lstm import (
    gate_gradients,
    gated_states,
    input_projection,
    lstm_states,
    packing_of,
)

CONFIG_KEYS = ("hidden_dim", "intermediate_dim", "embed_dim", "batch_size")


class Output(NamedTuple):
    """Model outputs for a batch: score (batch,), alpha (tokens,), beta (tokens,)."""

    score: torch.Tensor
    alpha: torch.Tensor
    beta: torch.Tensor


class AttentionClassifier(nn.Module):
    """score = Σ α_l β_l over the real tokens of a sentence.

    Sentences are flat: the tokens of a batch one after another, with their lengths beside them.
    """

    def __init__(self, vocab: int, config: dict, uniform: bool):
        """A model over ``vocab`` words, dimensions from ``config``; α is 1/n if ``uniform``."""
        super().__init__()
        hidden = config["hidden_dim"]
        self.uniform = uniform
        self.embedding = nn.Embedding(vocab, config["embed_dim"])
        self.encoder = nn.LSTM(config["embed_dim"], hidden, bidirectional=True)
        self.hidden2attn_intermediate = nn.Linear(2 * hidden, config["intermediate_dim"])
        self.attn_intermediate2logit = nn.Linear(config["intermediate_dim"], 1)
        self.hidden2beta = nn.Linear(2 * hidden, 1)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Output:
        """Read token ids (tokens,) of sentences with ``lengths`` (batch,), a CPU tensor."""
        words, tokens = ids.unique(return_inverse=True)
        embedded = self.embedding(words)  # each distinct word once
        states, _ = lstm_states(self.encoder, embedded, lengths, tokens)
        return self.attend(states, lengths)

    def attend(self, states: torch.Tensor, lengths: torch.Tensor) -> Output:
        """As forward, from the encoder's states (tokens, 2 * hidden)."""
        beta = self.hidden2beta(states).squeeze(1)  # (tokens,)
        if self.uniform:
            # All logits 0 (the attention's weights get no gradient, so they are left out).
            logits = torch.zeros_like(beta)
        else:
            intermediate = F.relu(self.hidden2attn_intermediate(states))
            logits = self.attn_intermediate2logit(intermediate).squeeze(1)
        batch, src_len = len(lengths), int(lengths.max())
        real = (torch.arange(src_len) < lengths.unsqueeze(1)).to(beta.device)  # (batch, src_len)
        padded = logits.new_full((batch, src_len), -torch.inf).masked_scatter(real, logits)
        alpha = padded.softmax(dim=1)
        score = (alpha * beta.new_zeros(batch, src_len).masked_scatter(real, beta)).sum(dim=1)
        return Output(score, alpha[real], beta)


def projected_words(model: AttentionClassifier, words: torch.Tensor) -> torch.Tensor:
    """Input of the encoder's gates for each of ``words`` (words,), (words, 8 * hidden)."""
    with torch.no_grad():
        return input_projection(model.encoder, model.embedding(words))


def influence(
    model: AttentionClassifier,
    projected: torch.Tensor,
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    labels: torch.Tensor,
) -> tuple[Output, torch.Tensor]:
    """Outputs, and Δ (tokens,): minus d(summed loss)/d(gate) at gates of 1.

    Neither the parameters nor the embeddings need a gradient, and no word is multiplied by the
    encoder's input weights again.

    Args:
        model: whose parameters need no gradient here.
        projected: (words, 8 * hidden) of :func:`projected_words`.
        tokens: (tokens,) rows of ``projected``, the sentences of a batch one after another.
        lengths: (batch,) on the CPU.
        labels: (batch,) float.
    """
    packing = packing_of(lengths, tokens.device)
    states, kept = gated_states(model.encoder, projected, tokens, packing)
    output = model.attend(states.requires_grad_(), lengths)
    loss = F.binary_cross_entropy_with_logits(output.score, labels, reduction="sum")
    loss.backward(inputs=[states])
    return output, -gate_gradients(model.encoder, projected, tokens, packing, kept, states.grad)

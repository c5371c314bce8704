"""A plain implementation of the translation experiment (docs/method.md, section 3).

Each function follows the paper line by line with the tools at hand (padded batches, packed
sequences, explicit attention matrices, a loop over source positions for β and over target positions
for Δ, one sentence at a time in beam search). Nothing here is made fast, and nothing slow on
purpose. The tests compare the experiment's own code with it; the benchmarks run both side by side.

A pair is ``(source ids, target ids)``, both with ``<s>`` and ``</s>``.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, BOS, EOS, UNK = range(4)

Pair = tuple[list[int], list[int]]
State = tuple[torch.Tensor, torch.Tensor]


def pad(sentences: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids ``(len, batch)`` padded with 0 at the end, and lengths ``(batch,)``."""
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    rows = [torch.tensor(sentence) for sentence in sentences]
    return pad_sequence(rows, padding_value=PAD), lengths


def batches(pairs: list[Pair], batch_size: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Batches in file order: ids ``(src_len, batch)``, lengths, ids ``(trg_len, batch)``."""
    for start in range(0, len(pairs), batch_size):
        src, trg = zip(*pairs[start : start + batch_size], strict=True)
        yield *pad(src), pad(trg)[0]


# --- the model ---


class AttentionTranslator(nn.Module):
    """LSTM encoder and decoder with one attention head; log p(y_t) = log softmax of the output."""

    def __init__(
        self, vocab: int, hidden: int, num_layers: int, dropout: float, uniform: bool = False
    ):
        super().__init__()
        self.uniform = uniform
        dropout = dropout if num_layers > 1 else 0.0  # it acts between layers
        self.embedding = nn.Embedding(vocab, hidden)
        self.encoder_lstm = nn.LSTM(hidden, hidden, num_layers, dropout=dropout, bidirectional=True)
        self.decoder_lstm = nn.LSTM(hidden, hidden, num_layers, dropout=dropout)
        self.extra_ff = nn.Linear(2 * hidden, hidden)
        self.hidden2vocab = nn.Linear(hidden, vocab)
        self.attn_lin = nn.Linear(hidden, 2 * hidden)
        self.project_enc = nn.Linear(2 * hidden, hidden)

    def forward(
        self, src: torch.Tensor, src_lengths: torch.Tensor, trg_in: torch.Tensor, gates=None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log-probabilities and attention of a batch, and the states of both sides.

        Args:
            src: ``(src_len, batch)``, padded with 0 at the end.
            src_lengths: ``(batch,)``.
            trg_in: ``(trg_len, batch)``, from ``<s>`` on.
            gates: ``(src_len, batch)`` factors of the source embeddings, for Δ; None for none.

        Returns:
            log_probs ``(trg_len, batch, vocab)``, alpha ``(trg_len, batch, src_len)``, decoded
            ``(trg_len, batch, hidden)``, states ``(src_len, batch, 2 * hidden)``.
        """
        states, initial = self.encode(src, src_lengths, gates)
        decoded, _ = self.decoder_lstm(self.embedding(trg_in), initial)
        alpha = self.attention(decoded, states, src_lengths)
        context = torch.einsum("tbs,sbh->tbh", alpha, states)
        return self.log_probs(decoded, context), alpha, decoded, states

    def encode(
        self, src: torch.Tensor, src_lengths: torch.Tensor, gates: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, State]:
        """States ``(src_len, batch, 2 * hidden)``, and the decoder's first (h, c), each
        ``(layers, batch, hidden)``: the mean over directions of the encoder's last."""
        embedded = self.embedding(src)  # (src_len, batch, hidden)
        if gates is not None:
            embedded = embedded * gates.unsqueeze(-1)
        packed = pack_padded_sequence(embedded, src_lengths, enforce_sorted=False)
        states, last = self.encoder_lstm(packed)
        states, _ = pad_packed_sequence(states)
        layers, batch = self.encoder_lstm.num_layers, src.shape[1]
        return states, tuple(part.view(layers, 2, batch, -1).mean(dim=1) for part in last)

    def attention(
        self, decoded: torch.Tensor, states: torch.Tensor, src_lengths: torch.Tensor
    ) -> torch.Tensor:
        """α ``(trg_len, batch, src_len)``, 0 on padding; all scores are 0 in a uniform run."""
        scores = torch.einsum("tbh,sbh->tbs", self.attn_lin(decoded), states)
        if self.uniform:
            scores = torch.zeros_like(scores)
        padding = torch.arange(states.shape[0]) >= src_lengths.unsqueeze(1)  # (batch, src_len)
        return scores.masked_fill(padding, -math.inf).softmax(dim=-1)

    def log_probs(self, decoded: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """``(..., vocab)`` of d ``(..., hidden)`` and contexts ``(..., 2 * hidden)``."""
        both = torch.cat([decoded, self.project_enc(context)], dim=-1)
        return self.hidden2vocab(F.relu(self.extra_ff(both))).log_softmax(dim=-1)


# --- training and its measures ---


def loss_of(model: AttentionTranslator, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The mean cross-entropy over the real targets of a batch."""
    src, src_lengths, trg = batch
    log_probs, _, _, _ = model(src, src_lengths, trg[:-1])
    return F.nll_loss(log_probs.flatten(0, 1), trg[1:].flatten(), ignore_index=PAD)


@torch.no_grad()
def token_scores(
    model: AttentionTranslator, pairs: list[Pair], batch_size: int
) -> tuple[float, float]:
    """(accuracy in percent, perplexity) over all targets after ``<s>``, given those before each."""
    model.eval()
    correct, loss, count = 0, 0.0, 0
    for src, src_lengths, trg in batches(pairs, batch_size):
        log_probs, _, _, _ = model(src, src_lengths, trg[:-1])
        targets = trg[1:]
        real = targets != PAD
        correct += ((log_probs.argmax(dim=-1) == targets) & real).sum().item()
        loss -= (log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1) * real).sum().item()
        count += real.sum().item()
    return 100 * correct / count, math.exp(loss / count)


# --- α, β and Δ ---


class Scores(NamedTuple):
    """α, β and Δ of a pair, each ``(trg_len - 1, src_len)``; Δ is None when not asked for."""

    alpha: np.ndarray
    beta: np.ndarray
    grad: np.ndarray | None


def pair_scores(
    model: AttentionTranslator, pairs: list[Pair], batch_size: int, with_grad: bool
) -> list[Scores]:
    """α, β and, if ``with_grad``, Δ of all pairs, in batches in file order.

    β_ts is the log-probability of the correct target if all attention sat on s.
    """
    model.eval()
    scores = []
    for src, src_lengths, trg in batches(pairs, batch_size):
        targets = trg[1:].unsqueeze(-1)
        with torch.no_grad():
            _, alpha, decoded, states = model(src, src_lengths, trg[:-1])
            columns = []
            for state in states:  # (batch, 2 * hidden)
                log_probs = model.log_probs(decoded, state.expand(len(decoded), -1, -1))
                columns.append(log_probs.gather(-1, targets).squeeze(-1))
            beta = torch.stack(columns, dim=-1)  # (trg_len - 1, batch, src_len)
        grad = gate_gradients(model, (src, src_lengths, trg)) if with_grad else None
        first = len(scores)
        for column, (src_ids, trg_ids) in enumerate(pairs[first : first + batch_size]):
            real = slice(0, len(trg_ids) - 1), column, slice(0, len(src_ids))
            found = alpha[real].numpy(), beta[real].numpy()
            scores.append(Scores(*found, grad[real] if with_grad else None))
    return scores


def gate_gradients(model: AttentionTranslator, batch: tuple[torch.Tensor, ...]) -> np.ndarray:
    """Δ of a batch ``(trg_len - 1, batch, src_len)``: a backward pass for each target position.

    Every source embedding is multiplied by a gate of 1; Δ is minus the gradient of -log p(y_t).
    """
    src, src_lengths, trg = batch
    gates = torch.ones(src.shape, requires_grad=True)
    log_probs, _, _, _ = model(src, src_lengths, trg[:-1], gates)
    right = log_probs.gather(-1, trg[1:].unsqueeze(-1)).squeeze(-1)  # (trg_len - 1, batch)
    rows = []
    for place in range(len(right)):
        model.zero_grad()
        gates.grad = None
        (-right[place]).sum().backward(retain_graph=True)
        rows.append(-gates.grad.T.numpy())
    return np.stack(rows)


# --- translating ---


@torch.no_grad()
def beam_search(
    model: AttentionTranslator, src: list[int], beam_size: int = 5, max_len: int = 100
) -> list[int]:
    """The best translation of one sentence by the sum of log-probabilities, as ids.

    Of all continuations of the ``beam_size`` hypotheses the best ``beam_size`` are kept; a finished
    one stays among them as its own continuation. The search ends when the best is finished, or has
    ``max_len`` tokens, ``<s>`` and ``</s>`` counted.
    """
    model.eval()
    states, (h, c) = model.encode(torch.tensor(src).unsqueeze(1), torch.tensor([len(src)]))
    hypotheses, scores = [[BOS]], torch.zeros(1)
    while len(hypotheses[0]) < max_len:
        beam = len(hypotheses)
        last = torch.tensor([[hypothesis[-1] for hypothesis in hypotheses]])
        decoded, (h, c) = model.decoder_lstm(model.embedding(last), (h, c))  # (1, beam, hidden)
        repeated = states.expand(-1, beam, -1)
        alpha = model.attention(decoded, repeated, torch.full((beam,), len(src)))
        context = torch.einsum("tbs,sbh->tbh", alpha, repeated)
        log_probs = model.log_probs(decoded, context).squeeze(0)  # (beam, vocab)
        vocab = log_probs.shape[1]
        for row, hypothesis in enumerate(hypotheses):
            if hypothesis[-1] == EOS:
                log_probs[row] = -math.inf
                log_probs[row, EOS] = 0.0
        sums = (scores.unsqueeze(1) + log_probs).flatten()
        scores, best = sums.topk(min(beam_size, len(sums)))
        parents, words = best // vocab, (best % vocab).tolist()
        hypotheses = [hypotheses[p] + [word] for p, word in zip(parents, words, strict=True)]
        h, c = h[:, parents], c[:, parents]
        if hypotheses[0][-1] == EOS:  # sums of log-probabilities only fall
            break
    return [word for word in hypotheses[0] if word not in (BOS, EOS)]


# --- the baselines ---


class EmbeddingTranslator(nn.Module):
    """Mean of source embeddings, then one linear layer: no order, no attention."""

    def __init__(self, vocab: int, embed_dim: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embed_dim)
        self.linear = nn.Linear(embed_dim, vocab)

    def forward(self, src: torch.Tensor, src_lengths: torch.Tensor) -> torch.Tensor:
        """Log-probabilities ``(batch, vocab)`` of a target piece; ids ``(src_len, batch)``."""
        real = (torch.arange(len(src)).unsqueeze(1) < src_lengths).unsqueeze(-1)
        mean = (self.embedding(src) * real).sum(dim=0) / src_lengths.unsqueeze(1)  # (batch, embed)
        return self.linear(mean).log_softmax(dim=-1)

    def table(self) -> np.ndarray:
        """β^px ``(vocab, vocab)``: softmax(E W^T), a row for each source piece."""
        return (self.embedding.weight @ self.linear.weight.T).softmax(dim=-1).detach().numpy()


def embedding_loss(
    model: EmbeddingTranslator, batch: tuple[torch.Tensor, ...], published_targets: bool = False
) -> torch.Tensor:
    """-Σ log p of the target pieces of a batch; those of padding and ``<s>`` too if published
    (departure 5)."""
    src, src_lengths, trg = batch
    log_probs = model(src, src_lengths)  # (batch, vocab)
    targets = trg if published_targets else trg[1:]  # (trg_len, batch)
    right = log_probs.gather(1, targets.T)  # (batch, trg_len)
    if published_targets:
        return -right.sum()
    return -(right * (targets.T != PAD)).sum()


def ibm1(pairs: list[Pair], iterations: int) -> dict[tuple[int, int], float]:
    """IBM model 1 by EM: {(source piece, target piece): t(target | source)}.

    Sources count with ``<s>`` and ``</s>`` (``<s>`` does for the empty word), targets from the
    first piece to ``</s>``. It starts from the uniform table.
    """
    table = {(source, target): 1.0 for src, trg in pairs for target in trg[1:] for source in src}
    for _ in range(iterations):
        counts, totals = dict.fromkeys(table, 0.0), {}
        for src, trg in pairs:
            for target in trg[1:]:
                norm = sum(table[source, target] for source in src)
                for source in src:
                    share = table[source, target] / norm
                    counts[source, target] += share
                    totals[source] = totals.get(source, 0.0) + share
        table = {pair: count / totals[pair[0]] for pair, count in counts.items()}
    return table

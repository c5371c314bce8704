"""A plain implementation of the classification experiment (docs/method.md, section 2).

Each function follows the paper line by line with the tools at hand (padded batches, packed
sequences, scipy, loops over examples). Nothing here is made fast, and nothing slow on purpose. The
benchmarks run it beside the experiment's own code.

An example is ``(token ids, label)``: ids with ``<bos>`` and ``<eos>``, label 0 or 1.
"""

import copy
import math
import random

import numpy as np
import scipy.stats
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, BOS, EOS, UNK = range(4)

Example = tuple[list[int], int]


def pad(examples: list[Example]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A batch: ids ``(batch, src_len)`` padded with 0, lengths and float labels ``(batch,)``."""
    lengths = torch.tensor([len(tokens) for tokens, _ in examples])
    ids = torch.full((len(examples), int(lengths.max())), PAD)
    for row, (tokens, _) in enumerate(examples):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    labels = torch.tensor([float(label) for _, label in examples])
    return ids, lengths, labels


# --- the model ---


class AttentionClassifier(nn.Module):
    """Embedding, bidirectional LSTM, attention; the score is the attention-weighted sum of β."""

    def __init__(self, vocab: int, config: dict):
        super().__init__()
        embed, hidden = config["embed_dim"], config["hidden_dim"]
        self.embedding = nn.Embedding(vocab, embed)
        self.encoder = nn.LSTM(embed, hidden, batch_first=True, bidirectional=True)
        self.hidden2attn_intermediate = nn.Linear(2 * hidden, config["intermediate_dim"])
        self.attn_intermediate2logit = nn.Linear(config["intermediate_dim"], 1)
        self.hidden2beta = nn.Linear(2 * hidden, 1)

    def forward(
        self, ids: torch.Tensor, lengths: torch.Tensor, gates: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Score (batch,), α and β (batch, src_len) of padded ids (batch, src_len).

        ``gates`` (batch, src_len), if any, multiply the embeddings: Δ is the gradient there.
        """
        embedded = self.embedding(ids)  # (batch, src_len, embed)
        if gates is not None:
            embedded = embedded * gates.unsqueeze(-1)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        intermediate = torch.relu(self.hidden2attn_intermediate(states))
        logits = self.attn_intermediate2logit(intermediate).squeeze(-1)  # (batch, src_len)
        padding = torch.arange(ids.shape[1]) >= lengths.unsqueeze(1)
        alpha = torch.softmax(logits.masked_fill(padding, -math.inf), dim=1)
        beta = self.hidden2beta(states).squeeze(-1)  # (batch, src_len)
        return (alpha * beta).sum(dim=1), alpha, beta


# --- training ---


def train_step(model: AttentionClassifier, optimizer, batch: list[Example]) -> float:
    """One update on the mean binary cross-entropy of ``batch``; returns that loss."""
    ids, lengths, labels = pad(batch)
    optimizer.zero_grad()
    scores, _, _ = model(ids, lengths)
    loss = F.binary_cross_entropy_with_logits(scores, labels)
    loss.backward()
    optimizer.step()
    return loss.item()


# --- α, β and Δ ---


def example_scores(
    model: AttentionClassifier, examples: list[Example], batch_size: int
) -> list[dict[str, np.ndarray]]:
    """α, β and Δ of each example, each ``(src_len,)`` float32.

    Δ is minus the gradient of the summed binary cross-entropy with respect to gates fixed at 1.
    """
    model.eval()
    scores_of_examples = []
    for start in range(0, len(examples), batch_size):
        batch = examples[start : start + batch_size]
        ids, lengths, labels = pad(batch)
        gates = torch.ones(ids.shape, requires_grad=True)
        model.zero_grad()
        scores, alpha, beta = model(ids, lengths, gates)
        F.binary_cross_entropy_with_logits(scores, labels, reduction="sum").backward()
        for row, (tokens, _) in enumerate(batch):
            length = len(tokens)
            kinds = {"alpha": alpha.detach(), "beta": beta.detach(), "grad": -gates.grad}
            scores_of_examples.append(
                {kind: values[row, :length].numpy().copy() for kind, values in kinds.items()}
            )
    return scores_of_examples


# --- agreement ---


def top_match(first: np.ndarray, second: np.ndarray) -> float:
    """1 if the arg-max of ``first`` is in the top 5% of ``second``, else 0; both ``(src_len,)``."""
    greater = np.sum(second > second[np.argmax(first)])
    return float(greater < np.ceil(0.05 * len(second)))


def kendall_tau(first: np.ndarray, second: np.ndarray) -> float:
    """Kendall's tau-b of two vectors ``(src_len,)``; NaN where undefined."""
    return float(scipy.stats.kendalltau(first, second).statistic)


METRICS = {"top 5% match": top_match, "kendall tau": kendall_tau}


def agreement(metric: str, first: list[np.ndarray], second: list[np.ndarray]) -> list[float]:
    """The metric of each example, one after another."""
    return [METRICS[metric](a, b) for a, b in zip(first, second, strict=True)]


# --- the baselines ---


class EmbeddingClassifier(nn.Module):
    """Mean of word embeddings, then one linear unit: no order, no attention."""

    def __init__(self, vocab: int, embed_dim: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embed_dim)
        self.linear = nn.Linear(embed_dim, 1)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Scores ``(batch,)`` of ids ``(batch, src_len)`` padded at the end."""
        real = (torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).unsqueeze(-1)
        mean = (self.embedding(ids) * real).sum(dim=1) / lengths.unsqueeze(1)  # (batch, embed)
        return self.linear(mean).squeeze(-1)

    def beta(self) -> np.ndarray:
        """``(vocab,)``: E[w] . W."""
        return (self.embedding.weight @ self.linear.weight.squeeze(0)).detach().numpy().copy()


def embedding_loss(model: EmbeddingClassifier, examples: list[Example], batch_size: int) -> float:
    """The cross-entropy summed over ``examples``."""
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(examples), batch_size):
            ids, lengths, labels = pad(examples[start : start + batch_size])
            scores = model(ids, lengths)
            total += F.binary_cross_entropy_with_logits(scores, labels, reduction="sum").item()
    return total


def embedding_beta(
    model: EmbeddingClassifier,
    train_set: list[Example],
    val_set: list[Example],
    epochs: int,
    batch_size: int,
    lr: float,
    rng: random.Random,
) -> np.ndarray:
    """β^px ``(vocab,)`` of the epoch with the lowest validation loss (the untrained one counts)."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    best_loss, best = embedding_loss(model, val_set, batch_size), copy.deepcopy(model.beta())
    order = list(range(len(train_set)))
    for _ in range(epochs):
        rng.shuffle(order)
        for start in range(0, len(order), batch_size):
            batch = [train_set[place] for place in order[start : start + batch_size]]
            ids, lengths, labels = pad(batch)
            optimizer.zero_grad()
            scores = model(ids, lengths)
            F.binary_cross_entropy_with_logits(scores, labels, reduction="sum").backward()
            optimizer.step()
        loss = embedding_loss(model, val_set, batch_size)
        if loss < best_loss:
            best_loss, best = loss, model.beta()
    return best


def count_matrix(examples: list[Example], vocab: int) -> np.ndarray:
    """``(examples, vocab)`` float64, dense: word counts divided by the length."""
    counts = np.zeros((len(examples), vocab))
    for row, (tokens, _) in enumerate(examples):
        for token in tokens:
            counts[row, token] += 1
        counts[row] /= len(tokens)
    return counts


def logistic_fit(counts: np.ndarray, labels: list[int], C: float):
    """The logistic regression of ``labels`` on ``counts`` ``(examples, vocab)``."""
    return LogisticRegression(C=C, max_iter=1000).fit(counts, labels)

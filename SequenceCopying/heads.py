"""Models of several heads for the experiment of Section 5.2, and what makes a head good or bad."""

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from data import EVALUATION, TRAINING, Batch, Task, batches
from models import fused_attention
from torch import nn
from torch.nn import functional as F
from training import History, loss_of

from attention_dynamics.device import set_seed
from attention_dynamics.runs.training import Training

# A head is good when training from it exceeds GOOD with each of DATA_SEEDS, bad when it never does
# with any of them and ends below BAD.
GOOD, BAD = 0.95, 0.6
DATA_SEEDS = (0, 1, 2)
EVERY, EVALUATION_SIZE = 10, 400
MEASURES = ("acc", "loss")


@dataclass(frozen=True)
class Settings:
    """What decides the weights a trial starts from, and its history.

    Attributes:
        seq_length: sequences are permutations of this many tokens.
        hidden_dim: size of embeddings and states.
        bsize: sequences in a training batch.
        num_steps: updates.
        seed: of the body, the heads and the evaluation set.
    """

    seq_length: int = 40
    hidden_dim: int = 256
    bsize: int = 128
    num_steps: int = 200
    seed: int = 0

    @property
    def task(self) -> Task:
        """What is to be copied."""
        return Task(self.seq_length, self.seq_length, True)

    @property
    def evaluations(self) -> int:
        """Evaluations of a whole trial."""
        return -(-self.num_steps // EVERY)


class Body(nn.Module):
    """All of the model but its heads; every trial starts from the same one."""

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
    """One head: scores = attn_proj(d) . e, what it gives is enc_proj of its context."""

    def __init__(self, hidden: int):
        """A head on states of size ``hidden``."""
        super().__init__()
        self.attn_proj = nn.Linear(hidden, hidden)
        self.enc_proj = nn.Linear(hidden, hidden)


class MultiheadCopier(nn.Module):
    """log p(y_t) = log softmax(W tanh(F [mean over heads; d_t])) (Section 5.2)."""

    def __init__(self, body: Body, heads: list[Head]):
        """The model of a body and its heads, whose weights it takes over."""
        super().__init__()
        self.body, self.heads = body, nn.ModuleList(heads)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits (trg_len, batch, vocab) of every target, given those before it."""
        body = self.body
        states, last = body.encoder_gru(body.encoder_embedding(batch.src))
        decoded, _ = body.decoder_gru(body.decoder_embedding(batch.inputs), last)
        both = torch.cat([self.attended(decoded, states), decoded], dim=-1)
        return body.hidden2vocab(body.after_decoder_hidden(both).tanh())

    def attended(self, decoded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """The mean over heads (trg_len, batch, hidden) of enc_proj(context).

        Args:
            decoded: d (trg_len, batch, hidden).
            states: e (src_len, batch, hidden).
        """
        heads, (trg_len, batch, hidden) = len(self.heads), decoded.shape
        # All heads as one product before the attention, and one after it.
        queries = F.linear(decoded, *self._joined("attn_proj", 0))  # (trg_len, batch, heads * h)
        queries = queries.view(trg_len, batch * heads, hidden).transpose(0, 1)
        keys = states.transpose(0, 1)[:, None].expand(-1, heads, -1, -1)
        contexts = fused_attention(queries, keys.reshape(batch * heads, -1, hidden))
        contexts = contexts.view(batch, heads, trg_len, hidden).permute(2, 0, 1, 3)
        weight, bias = self._joined("enc_proj", 1)
        bias = bias.view(heads, hidden).mean(dim=0)
        return F.linear(contexts.reshape(trg_len, batch, -1), weight / heads, bias)

    def _joined(self, name: str, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        layers = [getattr(head, name) for head in self.heads]
        weight = torch.cat([layer.weight for layer in layers], dim=dim)
        return weight, torch.cat([layer.bias for layer in layers])


def make_body(settings: Settings) -> Body:
    """The body that every trial starts from."""
    set_seed(settings.seed)
    return Body(settings.task.vocab, settings.hidden_dim)


def make_head(settings: Settings, stream: int, number: int) -> Head:
    """Head initialisation ``number`` of a ``stream`` (candidates, random heads)."""
    # One seed from all three, of well mixed bits.
    mixed = np.random.SeedSequence([settings.seed, stream, number]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(mixed[0] >> 1))
    head = Head(settings.hidden_dim)
    bound = settings.hidden_dim**-0.5  # as nn.Linear starts
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return head


@functools.cache
def evaluation_batch(settings: Settings) -> Batch:
    """The fixed set of EVALUATION_SIZE sequences."""
    return next(batches(settings.task, EVALUATION_SIZE, settings.seed, EVALUATION))


def train_trial(
    settings: Settings,
    model: MultiheadCopier,
    data_seed: int,
    device: torch.device,
    end: Callable[[History], bool],
    state: Path | None = None,
) -> History:
    """The evaluations of MEASURES before the updates of steps 0, EVERY, ..., until ``end``.

    With a path ``state`` of a training state, from where an earlier process was stopped.
    """
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=device.type != "mps")
    batches_of_seed = batches(settings.task, settings.bsize, data_seed, TRAINING)
    evaluation = evaluation_batch(settings).to(device)
    described = {**asdict(settings), "data_seed": data_seed}
    with Training(state, described, model, optimizer, EVERY, {"history": []}) as training:
        history = training.notes["history"]
        for _ in range(training.step):  # those of an earlier process
            next(batches_of_seed)
        while training.step < settings.num_steps:
            if len(history) <= training.step // EVERY:
                history.append(evaluate(model, evaluation))
                if end(history):
                    break
            batch = next(batches_of_seed).to(device)
            with training.update():
                loss = training.watched(loss_of(model(batch), batch.targets))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
    # Made anew: what comes from a state would be pickled to other bytes.
    return [{key: entry[key] for key in MEASURES} for entry in history]


@torch.no_grad()
def evaluate(model: MultiheadCopier, batch: Batch) -> dict[str, float]:
    """MEASURES over all targets of a batch."""
    logits = model(batch)
    correct = (logits.argmax(dim=-1) == batch.targets).sum().item()
    return {"acc": correct / batch.targets.numel(), "loss": loss_of(logits, batch.targets).item()}


def is_good(history: History) -> bool:
    """Whether an evaluation exceeds GOOD: nothing later can change that."""
    return any(entry["acc"] > GOOD for entry in history)


def is_bad(history: History) -> bool:
    """Whether a whole trial never exceeds GOOD and ends below BAD."""
    return not is_good(history) and history[-1]["acc"] < BAD


def verdict(histories: list[History]) -> str | None:
    """Of a head, from its trials with the first of DATA_SEEDS: "good", "bad", "dropped".

    None while more trials are needed to tell.
    """
    for name, is_such in (("good", is_good), ("bad", is_bad)):
        if all(map(is_such, histories)):
            return name if len(histories) == len(DATA_SEEDS) else None
    return "dropped"

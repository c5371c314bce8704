"""Training models that copy: one seed, many seeds as one model, a trial of one or more heads."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from data import EVALUATION, TRAINING, Batch, Task, batches, stacked
from models import (
    ATTENTION_MEASURES,
    MEASURES,
    Body,
    Copier,
    Head,
    MultiheadCopier,
    attention_hits,
    compute_output,
    measure,
    stack_states,
)
from torch.nn import functional as F
from tqdm import tqdm

from attention_dynamics.cli import InputError
from attention_dynamics.device import set_seed, setup_device
from attention_dynamics.runs.outputs import PartialResults
from attention_dynamics.runs.training import Training

# The accuracy from which a seed counts as having learned to copy.
LEARNED = 0.95
EVALUATION_SIZE = 50

# Trials of heads: a head is good if training from it exceeds GOOD with each of DATA_SEEDS, bad if
# it never does with any of them and ends below BAD.
GOOD, BAD = 0.95, 0.6
DATA_SEEDS = (0, 1, 2)
TRIAL_EVERY, TRIAL_EVALUATION_SIZE = 10, 400
TRIAL_MEASURES = ("acc", "loss", *ATTENTION_MEASURES)

REQUIRED = ("acc", "loss", "beta_acc")  # measures that every version records

History = list[dict[str, float]]


@dataclass(frozen=True)
class Settings:
    """The settings that decide the history of a seed; seq2seq.py explains its options."""

    seq_length: int = 40
    num_vocab: int = 40
    no_rep: bool = False
    bi: bool = False
    hidden_dim: int = 256
    bsize: int = 128
    steps: int = 200
    save_every: int = 10
    invasive_uniform: bool = False  # departure 15
    no_context: bool = False
    early_stop: bool = False  # departure 16
    precision: str = "fp32"  # bf16 only in training

    @property
    def task(self) -> Task:
        """The copying task."""
        return Task(self.seq_length, self.num_vocab, self.no_rep)


def check_precision(precision: str, device: torch.device) -> None:
    """Raise InputError if ``device`` has no bf16 LSTM."""
    if precision == "bf16" and (
        device.type == "mps"
        or (device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported())
    ):
        raise InputError(
            f"--precision bf16: this {device.type} device has no bf16 LSTM (a CPU needs AVX-512); "
            "use --precision fp32"
        )


def make_model(settings: Settings, seed: int, seeds: int | None = None) -> Copier:
    """The untrained model of one seed; with ``seeds``, a stacked model to be filled."""
    set_seed(seed)
    return Copier(
        settings.task.vocab,
        settings.hidden_dim,
        settings.bi,
        settings.invasive_uniform,
        settings.no_context,
        seeds,
    )


def train_seed(
    settings: Settings, seed: int, device: str, threads: int, parts: PartialResults | None = None
) -> History:
    """The evaluations of one seed, after the updates of steps 0, save_every, ...

    ``parts`` saves the history and, until it is complete, the training state.
    """
    device = setup_device(device, threads)
    described = {**asdict(settings), "seed": seed}
    if parts is not None and (history := parts.get(described)) is not None:
        return history
    model = make_model(settings, seed).to(device)
    (history,) = _train(settings, described, model, _streams(settings, seed), parts)
    if parts is not None:
        parts.put(described, history)
    return history


def train_stacked(
    settings: Settings,
    seeds: list[int],
    device: torch.device,
    parts: PartialResults | None = None,
    show_progress: bool = False,
) -> list[History]:
    """As :func:`train_seed`, with all seeds as one model.

    With early_stop, training ends when all seeds have learned, and the histories are cut.
    """
    singles = [make_model(settings, seed) for seed in seeds]
    model = make_model(settings, 0, len(seeds))
    model.load_state_dict(stack_states(singles))
    of_seeds = zip(*(_streams(settings, seed) for seed in seeds), strict=True)
    streams = [map(stacked, zip(*streams, strict=True)) for streams in of_seeds]
    described = {**asdict(settings), "seeds": seeds}
    return _train(settings, described, model.to(device), streams, parts, show_progress)


def _streams(settings: Settings, seed: int) -> list[Iterator[Batch]]:
    """The batches for training and those for evaluation."""
    sizes = {TRAINING: settings.bsize, EVALUATION: EVALUATION_SIZE}
    return [batches(settings.task, size, seed, purpose) for purpose, size in sizes.items()]


def _train(settings, described, model, streams, parts, show_progress=False) -> list[History]:
    training_batches, evaluation_batches = streams
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam(model.parameters(), fused=device.type != "mps")
    every, state = settings.save_every, parts and parts.state_path(described)
    with (
        Training(state, described, model, optimizer, every, {"measured": []}) as training,
        tqdm(total=settings.steps, disable=not show_progress) as progress,
    ):
        measured = training.notes["measured"]  # each a list over seeds
        for _ in range(training.step):  # the batches of an earlier process
            next(training_batches)
        for _ in measured:
            next(evaluation_batches)
        progress.update(training.step)
        while True:
            if len(measured) < -(-training.step // every):  # after the updates of 0, every, ...
                batch = next(evaluation_batches).to(device)
                measured.append(measure(compute_output(model, batch), batch.targets))
            histories = [list(history) for history in zip(*measured, strict=True)]
            stopped = settings.early_stop and histories and all(map(learned, histories))
            if stopped or training.step == settings.steps:
                break
            batch = next(training_batches).to(device)
            with training.update():
                bf16 = settings.precision == "bf16"
                with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                    logits = model(batch)
                loss = training.check_finite(loss_of(logits, batch.targets))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            progress.update()
    histories = [add_steps(history, every, MEASURES) for history in histories]
    if settings.early_stop:
        ends = [next((i for i, e in enumerate(h) if learned([e])), len(h)) for h in histories]
        return [history[: end + 1] for history, end in zip(histories, ends, strict=True)]
    return histories


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the targets (..., trg_len, batch), summed over seeds.

    Seeds share no weights, so each gets the gradient of its own mean.
    """
    count = targets.shape[-2] * targets.shape[-1]
    total = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="sum")
    return total / count


def add_steps(history: History, every: int, measures: tuple[str, ...]) -> History:
    """A history with the step of each evaluation (``every`` apart, if not given) and ``measures``.

    The entries are new dicts: the bytes of their pickle do not depend on the process that made
    them. Attention accuracies that an earlier version did not record are left out.
    """
    return [
        {
            "step": entry.get("step", every * index),
            **{name: float(entry[name]) for name in measures if name in entry or name in REQUIRED},
        }
        for index, entry in enumerate(history)
    ]


def learned(history: History) -> bool:
    """Whether an evaluation reaches the accuracy LEARNED."""
    return any(entry["acc"] >= LEARNED for entry in history)


# --- trials of heads (docs/method.md, section 4.2) ---


@dataclass(frozen=True)
class TrialSettings:
    """The settings that decide the initial weights of a trial and its history."""

    seq_length: int = 40
    hidden_dim: int = 256
    bsize: int = 128
    num_steps: int = 200
    seed: int = 0

    @property
    def task(self) -> Task:
        """The copying task."""
        return Task(self.seq_length, self.seq_length, True)


def make_body(settings: TrialSettings) -> Body:
    """The body that every trial starts from."""
    set_seed(settings.seed)
    return Body(settings.task.vocab, settings.hidden_dim)


def make_head(settings: TrialSettings, stream: int, number: int) -> Head:
    """Head initialization ``number`` of a ``stream`` (candidates, random heads)."""
    mixed = np.random.SeedSequence([settings.seed, stream, number]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(mixed[0] >> 1))
    head = Head(settings.hidden_dim)
    bound = settings.hidden_dim**-0.5  # the initialization of nn.Linear
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return head


@functools.cache
def trial_evaluation_batch(settings: TrialSettings) -> Batch:
    """The fixed set of TRIAL_EVALUATION_SIZE sequences."""
    return next(batches(settings.task, TRIAL_EVALUATION_SIZE, settings.seed, EVALUATION))


def train_trial(
    settings: TrialSettings,
    model: MultiheadCopier,
    data_seed: int,
    device: torch.device,
    end: Callable[[History], bool],
    state: Path | None = None,
) -> History:
    """The evaluations of TRIAL_MEASURES before the updates of steps 0, 10, ..., until ``end``.

    If ``state`` holds the training state of an interrupted process, the trial resumes from it.
    """
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=device.type != "mps")
    training_batches = batches(settings.task, settings.bsize, data_seed, TRAINING)
    evaluation = trial_evaluation_batch(settings).to(device)
    described = {**asdict(settings), "data_seed": data_seed}
    with Training(state, described, model, optimizer, TRIAL_EVERY, {"history": []}) as training:
        history = training.notes["history"]
        for _ in range(training.step):  # the batches of an earlier process
            next(training_batches)
        while training.step < settings.num_steps:
            if len(history) <= training.step // TRIAL_EVERY:
                history.append(evaluate_trial(model, evaluation))
                if end(history):
                    break
            batch = next(training_batches).to(device)
            with training.update():
                loss = training.check_finite(loss_of(model(batch), batch.targets))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
    return add_steps(history, TRIAL_EVERY, TRIAL_MEASURES)


@torch.no_grad()
def evaluate_trial(model: MultiheadCopier, batch: Batch) -> dict[str, float]:
    """TRIAL_MEASURES over all targets of a batch; the attention is the mean of α over heads."""
    decoded, states = model.decode(batch)
    logits = model.combine(decoded, states)
    hits = {
        "acc": logits.argmax(dim=-1) == batch.targets,
        **attention_hits(model.alpha(decoded, states)),
    }
    numbers = {name: hit.sum().item() / batch.targets.numel() for name, hit in hits.items()}
    return {**numbers, "loss": loss_of(logits, batch.targets).item()}


def is_good(history: History) -> bool:
    """Whether an evaluation exceeds GOOD: later evaluations cannot change that."""
    return any(entry["acc"] > GOOD for entry in history)


def is_bad(history: History) -> bool:
    """Whether a complete trial never exceeds GOOD and ends below BAD."""
    return not is_good(history) and history[-1]["acc"] < BAD


def classify_head(trials: list[History]) -> str | None:
    """ "good", "bad" or "dropped", from trials with the first of DATA_SEEDS.

    None while more trials are needed to decide.
    """
    for name, is_kind in (("good", is_good), ("bad", is_bad)):
        if all(map(is_kind, trials)):
            return name if len(trials) == len(DATA_SEEDS) else None
    return "dropped"

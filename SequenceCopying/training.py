"""Training models that copy, one seed after another or many as one model (A.3)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from data import EVALUATION, TRAINING, Batch, Task, batches, stacked
from layers import stack_states
from models import Copier, measure, read
from torch.nn import functional as F

from attention_dynamics.devices import choose_device
from attention_dynamics.errors import InputError
from attention_dynamics.seeding import set_seed

# An accuracy from which a sequence counts as copied.
LEARNED = 0.95
EVALUATION_SIZE = 50

History = list[dict[str, float]]


@dataclass(frozen=True)
class Settings:
    """What decides the history of a seed.

    Attributes:
        seq_length, num_vocab, no_rep: the task, as in :class:`data.Task`.
        bi: whether the encoder reads in both directions.
        hidden_dim: size of embeddings and states.
        bsize: sequences in a training batch.
        steps: updates.
        save_every: updates between evaluations.
        invasive_uniform: whether α is uniform in training and evaluation.
        no_context: whether the decoder goes without the context.
        early_stop: whether a seed ends at the first evaluation with an accuracy of LEARNED.
        precision: "fp32" or "bf16" (automatic mixed precision in training; evaluation is in fp32).
    """

    seq_length: int = 40
    num_vocab: int = 40
    no_rep: bool = False
    bi: bool = False
    hidden_dim: int = 256
    bsize: int = 128
    steps: int = 200
    save_every: int = 10
    invasive_uniform: bool = False
    no_context: bool = False
    early_stop: bool = False
    precision: str = "fp32"

    @property
    def task(self) -> Task:
        """What is to be copied."""
        return Task(self.seq_length, self.num_vocab, self.no_rep)


def check_precision(precision: str, device: torch.device) -> None:
    """InputError when ``device`` has no bf16 LSTM."""
    if precision == "bf16" and (
        device.type == "mps"
        or (device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported())
    ):
        raise InputError(
            f"--precision bf16: this {device.type} device computes no bf16 LSTM (a CPU needs "
            "AVX-512); use --precision fp32"
        )


def make_model(settings: Settings, seed: int) -> Copier:
    """The untrained model of one seed."""
    set_seed(seed)
    return Copier(
        settings.task.vocab,
        settings.hidden_dim,
        settings.bi,
        settings.invasive_uniform,
        settings.no_context,
    )


def make_stacked_model(settings: Settings, seeds: list[int]) -> Copier:
    """The untrained models of several seeds as one, with the weights they have one by one."""
    singles = [make_model(settings, seed) for seed in seeds]
    model = Copier(
        settings.task.vocab,
        settings.hidden_dim,
        settings.bi,
        settings.invasive_uniform,
        settings.no_context,
        seeds=len(seeds),
    )
    model.load_state_dict(stack_states(singles))
    return model


def train_seed(settings: Settings, seed: int, device: str, threads: int) -> History:
    """The evaluations of one seed, after the updates of steps 0, save_every, ...

    Args:
        settings: of the run.
        seed: of weights and sequences.
        device: name, as for choose_device.
        threads: CPU threads.
    """
    device = choose_device(device, threads)
    model = make_model(settings, seed).to(device)
    size = settings.bsize
    return _train(
        settings,
        model,
        batches(settings.task, size, seed, TRAINING),
        batches(settings.task, EVALUATION_SIZE, seed, EVALUATION),
        device,
        lambda: None,
    )[0]


def train_stacked(
    settings: Settings, seeds: list[int], device: torch.device, tick: Callable[[], None]
) -> list[History]:
    """As :func:`train_seed`, all seeds as one model; ``tick`` is called after each step.

    With early_stop all go on until the last one ends, and the histories are cut.
    """
    model = make_stacked_model(settings, seeds).to(device)

    def of_all(size: int, purpose: int) -> Iterator[Batch]:
        streams = [batches(settings.task, size, seed, purpose) for seed in seeds]
        for several in zip(*streams, strict=True):
            yield stacked(list(several))

    training = of_all(settings.bsize, TRAINING)
    return _train(settings, model, training, of_all(EVALUATION_SIZE, EVALUATION), device, tick)


def _train(settings, model, training, evaluation, device, tick) -> list[History]:
    optimizer = torch.optim.Adam(model.parameters(), fused=device.type != "mps")
    histories: list[History] = []
    for step in range(settings.steps):
        batch = next(training).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
            logits = model(batch)
        optimizer.zero_grad(set_to_none=True)
        loss_of(logits, batch.targets).backward()
        optimizer.step()
        tick()
        if step % settings.save_every:
            continue
        batch = next(evaluation).to(device)
        measured = measure(read(model, batch), batch.targets)
        histories = histories or [[] for _ in measured]
        for history, entry in zip(histories, measured, strict=True):
            if not (settings.early_stop and learned(history)):
                history.append(entry)
        if settings.early_stop and all(map(learned, histories)):
            break
    return histories


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the targets (..., trg_len, batch), summed over seeds.

    No weight is shared by two seeds, so that each gets the gradient of its own mean.
    """
    targets_of_a_seed = targets.shape[-2] * targets.shape[-1]
    total = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="sum")
    return total / targets_of_a_seed


def learned(history: History) -> bool:
    """Whether an evaluation reaches the accuracy LEARNED."""
    return any(entry["acc"] >= LEARNED for entry in history)

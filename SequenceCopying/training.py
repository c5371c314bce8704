"""Training models that copy, one seed after another or many as one model (A.3)."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from data import EVALUATION, TRAINING, Batch, Task, batches, stacked
from layers import stack_states
from models import Copier, measure, read
from torch.nn import functional as F

from attention_dynamics.cli import InputError
from attention_dynamics.device import set_seed, setup_device
from attention_dynamics.runs.outputs import Parts
from attention_dynamics.runs.training import Training

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


def train_seed(
    settings: Settings, seed: int, device: str, threads: int, parts: Parts | None = None
) -> History:
    """The evaluations of one seed, after the updates of steps 0, save_every, ...

    Args:
        settings: of the run.
        seed: of weights and sequences.
        device: name, as for setup_device.
        threads: CPU threads.
        parts: where the history is kept, and the training state until then.
    """
    described = {**asdict(settings), "seed": seed}
    if parts is not None and (history := parts.get(described)) is not None:
        return history
    device = setup_device(device, threads)
    model = make_model(settings, seed).to(device)
    training = batches(settings.task, settings.bsize, seed, TRAINING)
    evaluation = batches(settings.task, EVALUATION_SIZE, seed, EVALUATION)
    state = parts and parts.state_path(described)
    history = _train(settings, described, model, training, evaluation, state, lambda _: None)[0]
    if parts is not None:
        parts.put(described, history)
    return history


def train_stacked(
    settings: Settings,
    seeds: list[int],
    device: torch.device,
    tick: Callable[[int], None],
    parts: Parts | None = None,
) -> list[History]:
    """As :func:`train_seed`, all seeds as one model; ``tick`` is told of the steps that are made.

    With early_stop all go on until the last one ends, and the histories are cut.
    """
    model = make_stacked_model(settings, seeds).to(device)

    def of_all(size: int, purpose: int) -> Iterator[Batch]:
        streams = [batches(settings.task, size, seed, purpose) for seed in seeds]
        for several in zip(*streams, strict=True):
            yield stacked(list(several))

    training, evaluation = of_all(settings.bsize, TRAINING), of_all(EVALUATION_SIZE, EVALUATION)
    described = {**asdict(settings), "seeds": seeds}
    state = parts and parts.state_path(described)
    return _train(settings, described, model, training, evaluation, state, tick)


def _train(settings, described, model, batches, evaluation, state, tick) -> list[History]:
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam(model.parameters(), fused=device.type != "mps")
    every = settings.save_every
    with Training(state, described, model, optimizer, every, {"measured": []}) as training:
        measured = training.notes["measured"]  # each a list over seeds
        for _ in range(training.step):  # those of an earlier process
            next(batches)
        for _ in measured:
            next(evaluation)
        tick(training.step)
        while True:
            if len(measured) < -(-training.step // every):  # after the updates of 0, every, ...
                batch = next(evaluation).to(device)
                measured.append(measure(read(model, batch), batch.targets))
            histories = [list(history) for history in zip(*measured, strict=True)]
            stopped = settings.early_stop and histories and all(map(learned, histories))
            if stopped or training.step == settings.steps:
                break
            batch = next(batches).to(device)
            with training.update():
                bf16 = settings.precision == "bf16"
                with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                    logits = model(batch)
                loss = training.watched(loss_of(logits, batch.targets))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            tick(1)
    return [cut(history) for history in histories] if settings.early_stop else histories


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the targets (..., trg_len, batch), summed over seeds.

    No weight is shared by two seeds, so that each gets the gradient of its own mean.
    """
    targets_of_a_seed = targets.shape[-2] * targets.shape[-1]
    total = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="sum")
    return total / targets_of_a_seed


def cut(history: History) -> History:
    """A history up to its first evaluation with the accuracy LEARNED."""
    first = next((place for place, e in enumerate(history) if learned([e])), len(history))
    return history[: first + 1]


def learned(history: History) -> bool:
    """Whether an evaluation reaches the accuracy LEARNED."""
    return any(entry["acc"] >= LEARNED for entry in history)

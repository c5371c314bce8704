"""Speed and memory of constant attention beside the stock models and a plain reference.

    python benchmarks/papa.py
    python benchmarks/papa.py --only forward --models minilm --rounds 9
    python benchmarks/papa.py --device cuda

Random weights in the sizes of MiniLM and of BERT base, random texts in PAPA's layout. All sides run
on the same batches with interleaved timings in one process, after a check that their results agree.
A row shows medians and reference / ours. Sections:

    forward   evaluation with 0, half and all heads constant beside the stock model with the
              library's fused attention (sdpa) and its plain one (eager): 256 positions, batch 16
    averages  Step 1 beside a forward pass that returns all attention, and the memory of both
    head      a training step of the classifier on the frozen encoder: without unused positions, and
              on cached states, beside the published one (the whole encoder at all 64 positions)

Prints a table per section and adds it, with facts about the machine, to benchmarks/results/.
"""

import argparse
import contextlib
import copy
import functools
import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from measure import (
    compared,
    in_process,
    modules_of,
    parse_sections,
    run_sections,
    section_parser,
    time_interleaved,
)
from reference import papa as reference
from transformers import BertConfig, BertModel

from attention_dynamics.cli import run_script
from attention_dynamics.device import peak_memory_mb

GIGABYTE = 1e9
LABELS = 3
VOCAB = 1000
CPU = torch.device("cpu")

# Sums of float32 in another order, through up to 12 layers.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Size:
    """Sizes of an encoder and of its batches.

    Attributes:
        name: name in the table.
        layers, heads, hidden: of the encoder.
        length: positions of a text, padding included.
        batch: texts.
    """

    name: str
    layers: int
    heads: int
    hidden: int
    length: int = 256
    batch: int = 16

    def __str__(self) -> str:
        return f"{self.name}, {self.length} positions, batch {self.batch}"

    def stock(self, attention: str) -> BertModel:
        """The library's model in evaluation mode, with the same weights for any attention."""
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=VOCAB,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.hidden,
            num_labels=LABELS,
            attn_implementation=attention,
        )
        return BertModel(config, add_pooling_layer=False).eval()

    def constants(self) -> torch.Tensor:
        """``(layer, head, L, L)``: random averages of attention."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.layers, self.heads, self.length, self.length)
        return torch.randn(shape, generator=generator).softmax(dim=-1)

    def constant_heads(self, number: int) -> list[tuple[int, int]]:
        """``number`` (layer, head) pairs, scattered over the layers."""
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(self.layers * self.heads, generator=generator)[:number]
        return [divmod(head, self.heads) for head in order.tolist()]

    def texts(self, pairs: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask, ``(batch, L)``, in the layout of Step 0 for single sentences or pairs.

        The first sentence starts at 0, the second at L // 2, the last separator is at L - 1; a
        sentence fills a quarter of its half to all of it.
        """
        generator = torch.Generator().manual_seed(0)
        half = self.length // 2
        ids = torch.randint(3, VOCAB, (self.batch, self.length), generator=generator)
        ends = torch.randint(half // 4, half, (2, self.batch, 1), generator=generator)
        position = torch.arange(self.length)
        second = (position >= half) & (position < half + ends[1])
        valid = (position < ends[0]) | (second & pairs) | (position == self.length - 1)
        return ids * valid, valid.long()


MODELS = {"minilm": Size("MiniLM", 6, 12, 384), "base": Size("BERT base", 12, 12, 768)}
TINY = {"layers": 2, "heads": 4, "hidden": 32, "length": 16, "batch": 4}


def parse_args(argv=None) -> argparse.Namespace:
    parser = section_parser(__doc__, RUN_SECTION)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=MODELS,
        default=list(MODELS),
        help="sizes of the encoder (default: both)",
    )
    return parse_sections(parser, "papa", argv)


def sizes(args: argparse.Namespace, **changes) -> list[Size]:
    """The sizes of the options with ``changes``, tiny ones for ``--quick``."""
    tiny = TINY if args.quick else {}
    return [replace(MODELS[name], **{**changes, **tiny}) for name in args.models]


def papa():
    """The measured modules of ``papa/``."""
    return modules_of("papa", "attention", "data", "encoder_cache", "encoders", "models")


def check(what: str, expected: torch.Tensor, actual: torch.Tensor) -> None:
    """End the benchmark when two sides disagree."""
    difference = float((expected - actual).abs().max())
    if not difference <= TOLERANCE:  # NaN too
        raise SystemExit(f"{what}: ours differs from the reference by {difference:g}")


def papa_model(size: Size, constant_heads: list[tuple[int, int]], task: str = "sequence"):
    """Our model with the weights of ``size.stock``, in evaluation mode."""
    stock = size.stock("eager")
    config = copy.deepcopy(stock.config)
    static = [[] for _ in range(size.layers)]
    for layer, head in constant_heads:
        static[layer].append(head)
    config.papa = {
        "task": task,
        "max_length": size.length,
        "static_heads": static,
        "mixed": False,
        "pooler": True,
    }
    model = papa().models.PapaModel(config, stock)
    model.set_constants(size.constants())
    return model.eval()


def on_texts(function: Callable, size: Size, device: torch.device) -> Callable:
    """A function that returns ``function(ids, valid)`` of texts on ``device``, once it is done."""
    ids, valid = (tensor.to(device) for tensor in size.texts(pairs=True))
    return synchronised(functools.partial(function, ids, valid), device)


def synchronised(function: Callable, device: torch.device) -> Callable:
    """``function``, but it waits until the device has finished."""

    def run():
        result = function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return result

    return run


# --- evaluation ---


def stock_pass(size: Size, attention: str, device: torch.device = CPU) -> Callable:
    """A function that returns all hidden states of the library's model."""
    stock = size.stock(attention).to(device)

    def states(ids: torch.Tensor, valid: torch.Tensor):
        return stock(ids, attention_mask=valid, output_hidden_states=True).hidden_states

    return on_texts(states, size, device)


def our_pass(size: Size, number: int, device: torch.device = CPU) -> Callable:
    """A function that returns all hidden states of ours, with ``number`` constant heads."""
    model = papa_model(size, size.constant_heads(number)).to(device)
    return on_texts(model.states, size, device)


@torch.no_grad()
def forward_section(args: argparse.Namespace) -> list[dict]:
    """The encoder alone, returning all hidden states."""
    rows, device, few = [], torch.device(args.device), slice(0, 2)
    for size in sizes(args):
        ids, valid = size.texts(pairs=True)
        tokens, total = valid[few].bool(), size.layers * size.heads
        runs = {attention: stock_pass(size, attention, device) for attention in ("sdpa", "eager")}
        for number in (total, total // 2, 0):
            runs[number] = our_pass(size, number, device)
            heads = size.constant_heads(number)
            plain = reference.PlainEncoder(size.stock("eager"), size.constants(), heads).eval()
            expected, actual = plain(ids[few], valid[few])[-1], runs[number]()[-1][few].cpu()
            check(f"{size}, {number} constant heads", expected[tokens], actual[tokens])
        seconds = dict(zip(runs, time_interleaved(list(runs.values()), args.rounds), strict=True))
        targets = {("sdpa", total): 1.15, ("eager", total): 1.7} if device == CPU else {}
        for number in (total, total // 2, 0):
            for stock in ("sdpa", "eager"):
                what = f"{number} of {total} heads constant, beside {stock}"
                times = seconds[stock], seconds[number]
                rows.append(compared(str(size), what, "s", *times, targets.get((stock, number))))
    return rows


# --- Step 1 ---


def attentions_pass(size: Size, device: torch.device = CPU) -> Callable:
    """A function that returns all attention of the library's model on a batch."""
    stock = size.stock("eager").to(device)

    def attentions(ids: torch.Tensor, valid: torch.Tensor):
        return stock(ids, attention_mask=valid, output_attentions=True).attentions

    return on_texts(attentions, size, device)


def recording_pass(size: Size, device: torch.device = CPU) -> Callable:
    """A function that adds a batch to our sums and returns those of each layer."""
    stock = size.stock("eager").to(device)
    kind, nothing_static = papa().attention.RecordedHeads, [[]] * size.layers
    layers, positions = papa().encoders.replace_attention(stock, kind, nothing_static, size.length)
    positions.used = torch.arange(size.length, device=device)

    def sums(ids: torch.Tensor, valid: torch.Tensor) -> list[torch.Tensor]:
        stock(ids, attention_mask=valid)
        return [heads.sums for heads in layers]

    return on_texts(sums, size, device)


@torch.no_grad()
def memory_of_pass(size: Size, ours: bool, device: torch.device) -> float:
    """GB that a pass adds to the peak of its process, or of the GPU."""
    run = recording_pass(size, device) if ours else attentions_pass(size, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return (torch.cuda.max_memory_allocated() - before) / GIGABYTE
    before = peak_memory_mb()
    run()
    return max((peak_memory_mb() - before) * 2**20, 1) / GIGABYTE


@torch.no_grad()
def averages_section(args: argparse.Namespace) -> list[dict]:
    """Time at the usual size; memory with few and with many layers times texts."""
    rows, device = [], torch.device(args.device)
    for size in sizes(args):
        ids, valid = size.texts(pairs=True)
        ours = recording_pass(size, device)
        expected = reference.averages(size.stock("eager"), [{"ids": ids, "valid": valid}])[0]
        check(f"{size}, sums", expected, torch.stack(ours()).cpu())
        times = time_interleaved([attentions_pass(size, device), ours], args.rounds)
        what = "pass over a batch, beside a forward pass with attention"
        rows.append(compared(str(size), what, "s", *times, 0.91 if device == CPU else None))
    # Peaks belong to a process; starting a new one takes seconds.
    measured = memory_of_pass if args.quick else functools.partial(in_process, memory_of_pass)
    size = sizes(args)[0]
    for layers, batch in ((size.layers, size.batch), (2 * size.layers, 2 * size.batch)):
        some = replace(size, name=f"{layers} layers", layers=layers, batch=batch)
        both = [measured(some, ours, device) for ours in (False, True)]
        rows.append(compared(str(some), "memory, layers x batch", "GB", *both, None))
    return rows


# --- training the head ---


def made_examples(size: Size, task: str) -> list[dict[str, np.ndarray]]:
    """Single sentences with labels of texts or of tokens (-100 at special tokens and padding)."""
    ids, valid = size.texts(pairs=False)
    generator = torch.Generator().manual_seed(0)
    if task == "token":
        labels = torch.randint(LABELS, valid.shape, generator=generator)
        labels = labels.masked_fill(valid == 0, -100)
        labels[:, [0, -1]] = -100
    else:
        labels = torch.randint(LABELS, valid.shape[:1], generator=generator)
    columns = {"input_ids": ids, "attention_mask": valid, "labels": labels}
    return [
        {name: of[row].numpy()[()] for name, of in columns.items()} for row in range(size.batch)
    ]


def classifiers(size: Size, task: str, device: torch.device):
    """The reference and ours, with frozen encoders and the same head, and their optimizers."""
    encoder = reference.PlainEncoder(size.stock("eager"))
    torch.manual_seed(1)
    if task == "token":
        plain = reference.TokenClassifier(encoder, LABELS)
    else:
        plain = reference.SequenceClassifier(encoder, size.length, LABELS)
    ours = papa_model(size, [], task)
    ours.freeze()
    weights = {k: value for k, value in plain.state_dict().items() if not k.startswith("encoder.")}
    (ours.head.token_head if task == "token" else ours.head).load_state_dict(weights)
    plain, ours = plain.to(device), ours.to(device)
    trained = [parameter for parameter in ours.parameters() if parameter.requires_grad]
    optimizers = torch.optim.AdamW(reference.freeze_encoder(plain)), torch.optim.AdamW(trained)
    return plain, ours, *optimizers


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Update the weights."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def head_rows(size: Size, task: str, args: argparse.Namespace) -> list[dict]:
    """Training steps without constant heads, each with its own dropout."""
    examples, device = made_examples(size, task), torch.device(args.device)
    collate = papa().data.Collator(pad_id=0)
    drop_unused = papa().data.Collator(pad_id=0, drop_unused_positions=True)
    plain, ours, plain_optimizer, our_optimizer = classifiers(size, task, device)
    head = papa().encoder_cache.HeadOnly(ours.head)

    def moved(batch: dict) -> dict:
        return {name: tensor.to(device) for name, tensor in batch.items()}

    def plain_inputs() -> list[torch.Tensor]:
        batch = moved(collate(examples))
        return [batch[name] for name in ("input_ids", "attention_mask", "labels")]

    def states_batch() -> dict[str, torch.Tensor]:
        return moved(papa().encoder_cache.collate_states([states[n] for n in range(len(states))]))

    def plain_step() -> None:
        reference.training_step(plain, plain_optimizer, *plain_inputs())

    def whole_step() -> None:
        update(our_optimizer, ours.train()(**moved(drop_unused(examples))).loss)

    def cached_step() -> None:
        update(our_optimizer, head.train()(**states_batch()).loss)

    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            cache = papa().encoder_cache.cache_states
            states = cache(ours, examples, drop_unused, Path(folder), bar=False)
        with torch.no_grad():
            ids, valid, _ = plain_inputs()
            expected = plain.eval()(ids, valid)
            expected = expected[valid.bool()] if task == "token" else expected
            whole = moved(drop_unused(examples))
            for model, batch in ((ours, whole), (head, states_batch())):
                actual = model.eval()(**batch).logits
                actual = actual[batch["attention_mask"].bool()] if task == "token" else actual
                check(f"{size}, {task}s", expected, actual)
        steps = [synchronised(step, device) for step in (plain_step, whole_step, cached_step)]
        of_plain, of_whole, of_cached = time_interleaved(steps, args.rounds)
    name, target = f"{size}, {task}s", 20 if device == CPU else None
    return [
        compared(name, "step without unused positions", "s", of_plain, of_whole, None),
        compared(name, "step on cached states", "s", of_plain, of_cached, target),
    ]


def head_section(args: argparse.Namespace) -> list[dict]:
    """Classification of sequences and of tokens, on single sentences such as CoLA's."""
    return [
        row
        for size in sizes(args, length=64)
        for task in ("sequence", "token")
        for row in head_rows(size, task, args)
    ]


RUN_SECTION = {
    "forward": forward_section,
    "averages": averages_section,
    "head": head_section,
}


def main(argv=None) -> None:
    run_sections(parse_args(argv), RUN_SECTION)


if __name__ == "__main__":
    run_script(main)

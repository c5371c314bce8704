"""Speed and memory of constant attention beside the stock models and a plain reference.

    python benchmarks/papa.py
    python benchmarks/papa.py --only forward --models minilm --rounds 9

Random weights in the sizes of MiniLM and of BERT base, made-up texts in PAPA's layout. All sides
work on the same batches, in turn, in one process; that they give the same results is checked before
anything is timed. A row shows the medians and reference / ours; below the seconds stand the
multiplications and additions. Sections:

    forward   evaluation with 0, half and all heads constant beside the stock model with the
              library's fused attention (sdpa) and its plain one (eager): 256 positions, batch 16
    averages  Step 1 beside a forward pass that returns all attention, and the memory of both
    head      a training step of the classifier on the frozen encoder: without unused positions, and
              on cached states, beside the published way (the whole encoder at all 64 positions)

Prints a table per section and keeps it, with facts about the machine, in benchmarks/results/.
"""

import argparse
import contextlib
import copy
import functools
import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from measure import (
    alternate,
    bounded,
    compared,
    flops_of,
    in_process,
    modules_of,
    parse_sections,
    run_sections,
    section_parser,
    take_turns,
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
        name: shown in the table.
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
        """The library's model in evaluation mode; the same weights with any attention."""
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
        """``(layer, head, L, L)``: made-up averages of attention."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.layers, self.heads, self.length, self.length)
        return torch.randn(shape, generator=generator).softmax(dim=-1)

    def constant_heads(self, number: int) -> list[tuple[int, int]]:
        """``number`` of the (layer, head) pairs, in an order that scatters them over the layers."""
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(self.layers * self.heads, generator=generator)[:number]
        return [divmod(head, self.heads) for head in order.tolist()]

    def texts(self, pairs: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask, ``(batch, L)``, in the layout of Step 0 for single sentences or pairs.

        The first sentence stands at 0, the second from L // 2 on, the last separator at L - 1; the
        sentences fill a quarter of their half to all of it.
        """
        generator = torch.Generator().manual_seed(0)
        half = self.length // 2
        ids = torch.randint(3, VOCAB, (self.batch, self.length), generator=generator)
        ends = torch.randint(half // 4, half, (2, self.batch, 1), generator=generator)
        place = torch.arange(self.length)
        second = (place >= half) & (place < half + ends[1])
        valid = (place < ends[0]) | (second & pairs) | (place == self.length - 1)
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
    """The chosen sizes with ``changes``, or the tiny versions of them."""
    tiny = TINY if args.quick else {}
    return [replace(MODELS[name], **{**changes, **tiny}) for name in args.models]


def papa():
    """The modules of ``papa/`` that do the work."""
    return modules_of("papa", "attention", "data", "encoder_cache", "encoders", "models")


def check(what: str, expected: torch.Tensor, actual: torch.Tensor) -> None:
    """End when two sides that should agree do not."""
    difference = float((expected - actual).abs().max())
    if not difference <= TOLERANCE:  # NaN too
        raise SystemExit(f"{what}: ours differs from the reference by {difference:g}")


def papa_model(size: Size, constant_heads: list[tuple[int, int]], task: str = "sequence"):
    """Our model with the weights of ``size.stock``, evaluation mode."""
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


def on_device(function: Callable, size: Size, device: torch.device) -> Callable:
    """A function that gives ``function(ids, valid)`` of texts on ``device``, once that is done."""
    ids, valid = (tensor.to(device) for tensor in size.texts(pairs=True))

    def run():
        result = function(ids, valid)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return result

    return run


# --- evaluation ---


def stock_pass(size: Size, attention: str, device: torch.device = CPU) -> Callable:
    """A function that gives all hidden states of the library's model."""
    stock = size.stock(attention).to(device)

    def states(ids: torch.Tensor, valid: torch.Tensor):
        return stock(ids, attention_mask=valid, output_hidden_states=True).hidden_states

    return on_device(states, size, device)


def our_pass(size: Size, number: int, device: torch.device = CPU) -> Callable:
    """A function that gives all hidden states of ours, with ``number`` constant heads."""
    model = papa_model(size, size.constant_heads(number)).to(device)
    return on_device(model.states, size, device)


@torch.no_grad()
def forward_section(args: argparse.Namespace) -> list[dict]:
    """The encoder alone, all hidden states given back."""
    rows = []
    for size in sizes(args):
        ids, valid = size.texts(pairs=True)
        few = slice(0, 2)
        total = size.layers * size.heads
        runs = {attention: stock_pass(size, attention) for attention in ("sdpa", "eager")}
        for number in (0, total // 2, total):
            runs[number] = our_pass(size, number)
            heads = size.constant_heads(number)
            plain = reference.PlainEncoder(size.stock("eager"), size.constants(), heads).eval()
            expected, actual = plain(ids[few], valid[few])[-1], runs[number]()[-1][few]
            tokens = valid[few].bool()
            check(f"{size}, {number} constant heads", expected[tokens], actual[tokens])
        seconds = dict(zip(runs, take_turns(list(runs.values()), args.rounds), strict=True))
        flops = {name: flops_of(run) / 1e9 for name, run in runs.items()}
        targets = {("sdpa", total): 1.15, ("eager", total): 1.7}
        for number in (total, total // 2, 0):
            what = f"{number} of {total} heads constant"
            for stock in ("sdpa", "eager"):
                beside, target = f"{what}, beside {stock}", targets.get((stock, number))
                times = seconds[stock], seconds[number]
                rows.append(compared(str(size), beside, "s", *times, target))
            counts = flops["sdpa"], flops[number]
            rows.append(compared(str(size), what, "GFLOP", *counts, None))
    return rows


# --- Step 1 ---


def attentions_pass(size: Size, device: torch.device = CPU) -> Callable:
    """A function that gives all attention of the library's model on a batch."""
    stock = size.stock("eager").to(device)

    def attentions(ids: torch.Tensor, valid: torch.Tensor):
        return stock(ids, attention_mask=valid, output_attentions=True).attentions

    return on_device(attentions, size, device)


def recording_pass(size: Size, device: torch.device = CPU) -> Callable:
    """A function that adds a batch to our sums and gives those of each layer."""
    stock = size.stock("eager").to(device)
    kind, nothing_static = papa().attention.RecordedHeads, [[]] * size.layers
    layers, _ = papa().encoders.replace_attention(stock, kind, nothing_static, size.length)

    def sums(ids: torch.Tensor, valid: torch.Tensor) -> list[torch.Tensor]:
        stock(ids, attention_mask=valid)
        return [heads.sums for heads in layers]

    return on_device(sums, size, device)


@torch.no_grad()
def memory_of_pass(size: Size, ours: bool) -> float:
    """GB that a pass adds to the peak of its own process."""
    run = recording_pass(size) if ours else attentions_pass(size)
    before = peak_memory_mb()
    run()
    return max((peak_memory_mb() - before) * 1e6, 1) / GIGABYTE


@torch.no_grad()
def averages_section(args: argparse.Namespace) -> list[dict]:
    """Time at the usual size; memory at 4 combinations of few or many layers and texts."""
    rows = []
    for size in sizes(args):
        ids, valid = size.texts(pairs=True)
        ours = recording_pass(size)
        expected = reference.averages(size.stock("eager"), [{"ids": ids, "valid": valid}])[0]
        check(f"{size}, sums", expected, torch.stack(ours()))
        times = alternate(attentions_pass(size), ours, args.rounds)
        what = "pass over a batch, beside a forward pass with attention"
        rows.append(compared(str(size), what, "s", *times, 0.91))  # at most 10% slower
    # Peaks belong to a process; a new one takes seconds to begin.
    measured = memory_of_pass if args.quick else functools.partial(in_process, memory_of_pass)
    few = replace(sizes(args)[0], layers=3, batch=8) if not args.quick else sizes(args)[0]
    memory = {}
    for layers in (few.layers, 4 * few.layers):
        for batch in (few.batch, 4 * few.batch):
            size = replace(few, name=f"{layers} layers", layers=layers, batch=batch)
            both = [measured(size, ours) for ours in (False, True)]
            memory[layers, batch] = both
            rows.append(compared(str(size), "memory of the pass", "GB", *both, None))
    plain, ours = (
        memory[4 * few.layers, 4 * few.batch][side]
        - memory[4 * few.layers, few.batch][side]
        - memory[few.layers, 4 * few.batch][side]
        + memory[few.layers, few.batch][side]
        for side in (0, 1)
    )
    grown = bounded("all four", "memory that grows with layers x batch", "GB", ours, 0.05)
    return [*rows, {**grown, "reference": plain}]


# --- training the head ---


def made_examples(size: Size, task: str) -> list[dict[str, np.ndarray]]:
    """Single sentences with labels, of texts or of tokens (-100 at special tokens and padding)."""
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


def plain_classifier(size: Size, task: str):
    """The reference with a frozen encoder, and its optimizer."""
    encoder = reference.PlainEncoder(size.stock("eager"))
    torch.manual_seed(1)
    if task == "token":
        model = reference.TokenClassifier(encoder, LABELS)
    else:
        model = reference.SequenceClassifier(encoder, size.length, LABELS)
    return model, torch.optim.AdamW(reference.freeze_encoder(model))


def our_classifier(size: Size, task: str, plain):
    """Ours with a frozen encoder and the head of ``plain``, and its optimizer."""
    model = papa_model(size, [], task)
    model.freeze()
    weights = {
        name: value for name, value in plain.state_dict().items() if not name.startswith("encoder.")
    }
    head = model.head.token_head if task == "token" else model.head
    head.load_state_dict(weights)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return model, torch.optim.AdamW(trained)


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step of training."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def head_rows(size: Size, task: str, rounds: int) -> list[dict]:
    """Steps of training with no constant head; each way has the dropout that belongs to it."""
    examples = made_examples(size, task)
    collate = papa().data.Collator(pad_id=0)
    drop_unused = papa().data.Collator(pad_id=0, drop_unused_positions=True)
    plain, plain_optimizer = plain_classifier(size, task)
    ours, our_optimizer = our_classifier(size, task, plain)
    head = papa().encoder_cache.HeadOnly(ours.head)

    def plain_step() -> None:
        batch = collate(examples)
        reference.training_step(
            plain, plain_optimizer, batch["input_ids"], batch["attention_mask"], batch["labels"]
        )

    def whole_step() -> None:
        ours.train()
        update(our_optimizer, ours(**drop_unused(examples)).loss)

    def states_batch() -> dict[str, torch.Tensor]:
        return papa().encoder_cache.collate_states([states[n] for n in range(len(states))])

    def cached_step() -> None:
        head.train()
        update(our_optimizer, head(**states_batch()).loss)

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            cache = papa().encoder_cache.cache_states
            states = cache(ours, examples, drop_unused, Path(folder), bar=False)
        encoding = time.perf_counter() - start
        with torch.no_grad():
            batch = collate(examples)
            valid = batch["attention_mask"].bool()
            expected = plain.eval()(batch["input_ids"], batch["attention_mask"])
            expected = expected[valid] if task == "token" else expected
            for model, model_batch in ((ours, drop_unused(examples)), (head, states_batch())):
                actual = model.eval()(**model_batch).logits
                if task == "token":
                    actual = actual[model_batch["attention_mask"].bool()]
                check(f"{size}, {task}s", expected, actual)
        steps = [plain_step, whole_step, cached_step]
        of_plain, of_whole, of_cached = take_turns(steps, rounds)
        flops = [flops_of(step) / 1e9 for step in steps]
    name = f"{size}, {task}s"
    whole, cached = "step without unused positions", "step on cached states"
    return [
        compared(name, whole, "s", of_plain, of_whole, None),
        compared(name, whole, "GFLOP", flops[0], flops[1], None),
        compared(name, cached, "s", of_plain, of_cached, 20),
        compared(name, cached, "GFLOP", flops[0], flops[2], None),
        bounded(name, "encoding a batch for the cache, once", "s", encoding, None),
    ]


def head_section(args: argparse.Namespace) -> list[dict]:
    """Classification of sequences and of tokens; single sentences, as those of CoLA."""
    return [
        row
        for size in sizes(args, length=64)
        for task in ("sequence", "token")
        for row in head_rows(size, task, args.rounds)
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

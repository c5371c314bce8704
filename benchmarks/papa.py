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

import torch
import torch.nn.functional as F
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

LABELS = 3
VOCAB = 1000
TOLERANCE = 1e-4  # sums of float32 in another order, through up to 12 layers


@dataclass(frozen=True)
class Size:
    """Sizes of an encoder, and of a batch of texts of ``length`` positions, padding included."""

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
        """(layer, head, L, L): random averages of attention."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.layers, self.heads, self.length, self.length)
        return torch.randn(shape, generator=generator).softmax(dim=-1)

    def constant_heads(self, number: int) -> list[tuple[int, int]]:
        """``number`` (layer, head) pairs, scattered over the layers."""
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(self.layers * self.heads, generator=generator)[:number]
        return [divmod(head, self.heads) for head in order.tolist()]

    def texts(self, pairs: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask, (batch, L), in the layout of Step 0 for single sentences or pairs.

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


def papa_model(size: Size, constant_heads: list[tuple[int, int]]):
    """Our model with the weights of ``size.stock``, in evaluation mode."""
    stock = size.stock("eager")
    config = copy.deepcopy(stock.config)
    static = [[h for at, h in constant_heads if at == layer] for layer in range(size.layers)]
    config.papa = {
        "task": "sequence",
        "max_length": size.length,
        "static_heads": static,
        "mixed": False,
        "pooler": True,
    }
    model = papa().models.PapaModel(config, stock)
    model.set_constants(size.constants())
    return model.eval()


# --- evaluation ---


@torch.no_grad()
def forward_section(args: argparse.Namespace) -> list[dict]:
    """The encoder alone, returning all hidden states."""
    rows, few = [], slice(0, 2)
    for size in sizes(args):
        ids, valid = size.texts(pairs=True)
        texts = ids.to(args.device), valid.to(args.device)
        tokens, total = valid[few].bool(), size.layers * size.heads
        runs = {}
        for attention in ("sdpa", "eager"):
            stock = size.stock(attention).to(args.device)
            runs[attention] = functools.partial(stock, *texts, output_hidden_states=True)
        for number in (total, total // 2, 0):
            heads = size.constant_heads(number)
            runs[number] = functools.partial(papa_model(size, heads).to(args.device).states, *texts)
            plain = reference.PlainEncoder(size.stock("eager"), size.constants(), heads).eval()
            expected, actual = plain(ids[few], valid[few])[-1], runs[number]()[-1][few].cpu()
            check(f"{size}, {number} constant heads", expected[tokens], actual[tokens])
        seconds = dict(zip(runs, time_interleaved(list(runs.values()), args.rounds), strict=True))
        for number in (total, total // 2, 0):
            for stock in ("sdpa", "eager"):
                what = f"{number} of {total} heads constant, beside {stock}"
                rows.append(compared(str(size), what, "s", seconds[stock], seconds[number]))
    return rows


# --- Step 1 ---


def attention_pass(size: Size, ours: bool, device: torch.device) -> Callable:
    """A function that adds a batch to our sums, or returns all attention of the library's model."""
    stock = size.stock("eager").to(device)
    ids, valid = (tensor.to(device) for tensor in size.texts(pairs=True))
    if not ours:
        return functools.partial(stock, ids, attention_mask=valid, output_attentions=True)
    kind, static = papa().attention.RecordedHeads, [[]] * size.layers
    layers, positions = papa().encoders.replace_attention(stock, kind, static, size.length)
    positions.used = torch.arange(size.length, device=device)

    def sums() -> list[torch.Tensor]:
        stock(ids, attention_mask=valid)
        return [heads.sums for heads in layers]

    return sums


@torch.no_grad()
def memory_of_pass(size: Size, ours: bool, device: torch.device) -> float:
    """GB that a pass adds to the peak of its process, or of the GPU."""
    run = attention_pass(size, ours, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return (torch.cuda.max_memory_allocated() - before) / 1e9
    before = peak_memory_mb()
    run()
    return max((peak_memory_mb() - before) * 2**20, 1) / 1e9


@torch.no_grad()
def averages_section(args: argparse.Namespace) -> list[dict]:
    """Time at the usual size; memory with few and with many layers times texts."""
    rows, device = [], args.device
    for size in sizes(args):
        ids, valid = size.texts(pairs=True)
        plain, ours = (attention_pass(size, ours, device) for ours in (False, True))
        expected = reference.averages(size.stock("eager"), [(ids, valid)])[0]
        check(f"{size}, sums", expected, torch.stack(ours()).cpu())
        times = time_interleaved([plain, ours], args.rounds)
        what = "pass over a batch, beside a forward pass with attention"
        rows.append(compared(str(size), what, "s", *times))
    # Peaks belong to a process; starting a new one takes seconds.
    measured = memory_of_pass if args.quick else functools.partial(in_process, memory_of_pass)
    size = sizes(args)[0]
    for layers, batch in ((size.layers, size.batch), (2 * size.layers, 2 * size.batch)):
        some = replace(size, name=f"{layers} layers", layers=layers, batch=batch)
        both = [measured(some, ours, device) for ours in (False, True)]
        rows.append(compared(str(some), "memory, layers x batch", "GB", *both))
    return rows


# --- training the head ---


def generated_examples(size: Size) -> list[dict]:
    """Single sentences with labels."""
    ids, valid = size.texts(pairs=False)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(LABELS, (size.batch,), generator=generator)
    columns = {"input_ids": ids, "attention_mask": valid, "labels": labels}
    return [
        {name: of[row].numpy()[()] for name, of in columns.items()} for row in range(size.batch)
    ]


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def head_rows(size: Size, args: argparse.Namespace) -> list[dict]:
    """Training steps without constant heads, each with its own dropout."""
    encoder = reference.PlainEncoder(size.stock("eager"))
    torch.manual_seed(1)
    plain = reference.SequenceClassifier(encoder, size.length, LABELS)
    ours = papa_model(size, [])
    ours.freeze()
    weights = {k: value for k, value in plain.state_dict().items() if not k.startswith("encoder.")}
    ours.head.load_state_dict(weights)
    plain, ours = plain.to(args.device), ours.to(args.device)
    encoder.stock.requires_grad_(False)
    cache, head = papa().encoder_cache, papa().encoder_cache.HeadOnly(ours.head)
    plain_optimizer, optimizer = (
        torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
        for model in (plain, ours)
    )
    examples, drop_unused = generated_examples(size), papa().data.Collator(0, True)

    def batch_of(collate: Callable, examples) -> dict:
        batch = collate([examples[number] for number in range(size.batch)])
        return {name: tensor.to(args.device) for name, tensor in batch.items()}

    def plain_step() -> None:
        ids, valid, labels = batch_of(papa().data.Collator(0), examples).values()
        update(plain_optimizer, F.cross_entropy(plain.train()(ids, valid), labels))

    def our_step(model, collate: Callable, examples) -> None:
        update(optimizer, model.train()(**batch_of(collate, examples)).loss)

    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            states = cache.cache_states(ours, examples, drop_unused, Path(folder), bar=False)
        both = (ours, drop_unused, examples), (head, cache.StatesCollator(0, True), states)
        with torch.no_grad():
            batch = batch_of(papa().data.Collator(0), examples)
            expected = plain.eval()(batch["input_ids"], batch["attention_mask"])
            for model, collate, inputs in both:
                check(str(size), expected, model.eval()(**batch_of(collate, inputs)).logits)
        steps = [plain_step, *(functools.partial(our_step, *side) for side in both)]
        of_plain, of_whole, of_cached = time_interleaved(steps, args.rounds)
    return [
        compared(str(size), "step without unused positions", "s", of_plain, of_whole),
        compared(str(size), "step on cached states", "s", of_plain, of_cached),
    ]


def head_section(args: argparse.Namespace) -> list[dict]:
    """Classification of single sentences as long as those of CoLA."""
    return [row for size in sizes(args, length=64) for row in head_rows(size, args)]


RUN_SECTION = {
    "forward": forward_section,
    "averages": averages_section,
    "head": head_section,
}


def main(argv=None) -> None:
    run_sections(parse_args(argv), RUN_SECTION)


if __name__ == "__main__":
    run_script(main)

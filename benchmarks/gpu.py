"""What a CUDA device gives: training steps, dumps and beam search beside the CPU's, same numbers.

    python benchmarks/gpu.py

One prepared script, a few minutes. Trains the paper's classifier and translator on generated texts
and runs encoders with constant attention on both devices in turn, checks that α, β, Δ, the
translations, averages and states agree, prints a table for each (ratio = CPU seconds / CUDA
seconds) and writes them to benchmarks/results/gpu.json.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from measure import add_results, alternate, compared, machine_facts
from torch.nn import functional as F

import papa
import translation
from attention_dynamics.cli import InputError, run_script, script_parser
from attention_dynamics.reporting.tables import format_table
from classification import CONFIG, LONG, SHORT, as_split, experiment

HERE = Path(__file__).resolve().parent

# Sums of float32 in another order, through an LSTM of up to 1,000 steps.
TOLERANCE = 1e-4


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="turns of each side (default: %(default)s)"
    )
    return parser.parse_args(argv)


def step_on(device: torch.device, split, examples: np.ndarray, vocab: int):
    """A function that makes one training step on ``device`` and waits for it."""
    torch.manual_seed(0)
    model = experiment("models").AttentionClassifier(vocab, CONFIG, uniform=False).to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        ids, lengths, labels = split.batch(examples)
        score = model(ids.to(device), lengths).score
        loss = F.binary_cross_entropy_with_logits(score, labels.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


def dump_on(device: torch.device, split, vocab: int):
    """A function that dumps α, β, Δ of ``split`` on ``device``; returns the arrays by kind."""
    torch.manual_seed(0)
    model = experiment("models").AttentionClassifier(vocab, CONFIG, uniform=False).to(device)
    model.requires_grad_(False)
    return lambda: experiment("eval_dump").dump(model, split, device)[0]


def classification_rows(devices: list[torch.device], rounds: int) -> list[dict]:
    rows = []
    for workload in (SHORT, LONG):
        split = as_split(workload.examples(seed=0)[:256])
        steps = [step_on(device, split, np.arange(32), workload.vocab) for device in devices]
        times = alternate(*steps, rounds)
        rows.append(compared(workload.name, "training step, batch 32", "s", *times, 1))
        dumps = [dump_on(device, split, workload.vocab) for device in devices]
        check_scores(*(dump() for dump in dumps))
        times = alternate(*dumps, rounds)
        rows.append(compared(workload.name, "dump of 256 texts", "s", *times, 1))
    return rows


def check_scores(on_cpu: dict[str, np.ndarray], on_cuda: dict[str, np.ndarray]) -> None:
    """End when α, β or Δ differ between the devices."""
    for kind, values in on_cpu.items():
        difference = float(np.abs(values - on_cuda[kind]).max())
        if not difference <= TOLERANCE:  # NaN too
            sys.exit(f"{kind} differs by {difference:g} between CPU and CUDA")


def translator_on(device: torch.device):
    """The paper's translator with the same weights on any device."""
    torch.manual_seed(0)
    models = translation.experiment().models
    return models.AttentionTranslator(translation.VOCAB, translation.CONFIG, False).to(device)


def translation_step_on(device: torch.device, pairs):
    """A function that makes one training step of the translator and waits for it."""
    model = translator_on(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    examples = np.arange(translation.CONFIG["batch_size"])

    def step() -> None:
        batch = pairs.batch(examples).to(device)
        loss = F.cross_entropy(model(batch), batch.targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


def translation_dump_on(device: torch.device, pairs):
    """A function that dumps α, β, Δ of ``pairs`` on ``device``; returns the arrays by kind."""
    model, dump = translator_on(device), translation.experiment().eval_dump.dump
    return lambda: dump(model, pairs, device, translation.CONFIG["batch_size"])[0]


def beam_search_on(device: torch.device, pairs):
    """A function that translates the sources of ``pairs`` on ``device``."""
    model = translator_on(device)
    translation.let_it_end(model)
    return lambda: translation.experiment().decoding.beam_search(model, pairs.src, device)


def translation_rows(devices: list[torch.device], rounds: int) -> list[dict]:
    made = translation.made_pairs(128, translation.VOCAB, seed=0)
    pairs = translation.as_pairs(made)
    name = "Multi30k-like"
    steps = [translation_step_on(device, pairs) for device in devices]
    times = alternate(*steps, rounds)
    rows = [compared(name, "training step, batch 16", "s", *times, 1)]
    dumps = [translation_dump_on(device, pairs.take(range(32))) for device in devices]
    check_scores(*(dump() for dump in dumps))
    times = alternate(*dumps, rounds)
    rows.append(compared(name, "α, β and Δ of 32 pairs", "s", *times, 1))
    searches = [beam_search_on(device, pairs) for device in devices]
    on_cpu, on_cuda = (search() for search in searches)
    # A near tie may fall either way: sums of float32 in another order.
    differing = sum(one != other for one, other in zip(on_cpu, on_cuda, strict=True))
    if differing > len(on_cpu) // 50:
        sys.exit(f"{differing} of {len(on_cpu)} translations differ between CPU and CUDA")
    times = alternate(*searches, rounds)
    rows.append(compared(name, f"beam of 5, {len(on_cpu)} sentences", "s", *times, 1))
    return rows


@torch.no_grad()
def papa_rows(devices: list[torch.device], rounds: int) -> list[dict]:
    rows = []
    for size in papa.MODELS.values():
        total = size.layers * size.heads
        for number in (0, total // 2, total):
            passes = [papa.our_pass(size, number, device) for device in devices]
            check_scores(*({"states": run()[-1].cpu().numpy()} for run in passes))
            what = f"{number} of {total} heads constant"
            rows.append(compared(str(size), what, "s", *alternate(*passes, rounds), 1))
        recorders = [papa.recording_pass(size, device) for device in devices]
        check_scores(*({"sums": torch.stack(run()).cpu().numpy()} for run in recorders))
        times = alternate(*recorders, rounds)
        rows.append(compared(str(size), "averages of a batch", "s", *times, 1))
    return rows


def main(argv=None) -> None:
    args = parse_args(argv)
    if not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device here; this benchmark needs one")
    devices = [torch.device("cpu"), torch.device("cuda")]
    facts = {**machine_facts(torch.get_num_threads()), "gpu": torch.cuda.get_device_name()}
    for section, rows_of in (
        ("classification", classification_rows),
        ("translation", translation_rows),
        ("papa", papa_rows),
    ):
        rows = rows_of(devices, args.rounds)
        print(f"\n{section}\n{format_table(rows)}", flush=True)
        add_results(HERE / "results" / "gpu.json", section, facts, rows)


if __name__ == "__main__":
    run_script(main)

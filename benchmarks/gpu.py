"""What a CUDA device gives: the classifier's training step and dump beside the CPU's, same numbers.

    python benchmarks/gpu.py

One prepared script, a minute or two. Trains the paper's classifier on generated texts on both
devices in turn, checks that α, β and Δ agree, prints a table (ratio = CPU seconds / CUDA seconds)
and writes it to benchmarks/results/gpu.json.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from measure import add_results, alternate, compared, machine_facts
from torch.nn import functional as F

from attention_dynamics.errors import InputError, run_script
from attention_dynamics.options import script_parser
from attention_dynamics.tables import format_table
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


def main(argv=None) -> None:
    args = parse_args(argv)
    if not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device here; this benchmark needs one")
    devices = [torch.device("cpu"), torch.device("cuda")]
    rows = []
    for workload in (SHORT, LONG):
        split = as_split(workload.examples(seed=0)[:256])
        steps = [step_on(device, split, np.arange(32), workload.vocab) for device in devices]
        times = alternate(*steps, args.rounds)
        rows.append(compared(workload.name, "training step, batch 32", "s", *times, 1))
        dumps = [dump_on(device, split, workload.vocab) for device in devices]
        on_cpu, on_cuda = (dump() for dump in dumps)
        for kind, values in on_cpu.items():
            difference = float(np.abs(values - on_cuda[kind]).max())
            if difference > TOLERANCE:
                sys.exit(f"{kind} differs by {difference:g} between CPU and CUDA")
        times = alternate(*dumps, args.rounds)
        rows.append(compared(workload.name, "dump of 256 texts", "s", *times, 1))
    print(format_table(rows))
    facts = {**machine_facts(torch.get_num_threads()), "gpu": torch.cuda.get_device_name()}
    add_results(HERE / "results" / "gpu.json", "classification", facts, rows)


if __name__ == "__main__":
    run_script(main)

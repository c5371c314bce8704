"""Device and thread selection, seeding, RNG state and peak memory."""

import argparse
import random
import resource
import sys
from pathlib import Path

import numpy as np
import torch

from attention_dynamics.cli import InputError, add_options, count


def add_device_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add ``--device`` and ``--threads``, the same in every script that computes with torch.

    Returns their argument group, to which a script may add options.
    """
    group = parser.add_argument_group("hardware")
    device = "device for tensors; auto takes cuda if available, else cpu (default: %(default)s)"
    choices = ["auto", "cpu", "cuda", "mps"]
    group.add_argument("--device", default="auto", choices=choices, help=device)
    threads = (
        "CPU threads. The layers are small: several jobs at once gain more than threads. A run is "
        "reproduced byte for byte only with the same number of threads"
    )
    add_options(group, threads=(count, 1, threads))
    return group


def setup_device(name: str, threads: int = 1) -> torch.device:
    """The torch device called ``name`` ("auto": cuda if available, else cpu); sets the threads.

    Raises InputError if the device is not available.
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    available = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if name in available and not available[name]():
        raise InputError(f"--device {name}: torch finds no such device; use --device cpu")
    return torch.device(name)


def peak_memory_mb() -> float:
    """The peak memory of this process so far (resident set), in MB (10^6 bytes)."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux a new process inherits that of its parent.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def set_seed(seed: int) -> None:
    """Seed Python, numpy and torch (all devices): called before the data and before the model."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def rng_state() -> dict:
    """The RNG state of Python, numpy and torch, in plain containers and tensors."""
    name, keys, *rest = np.random.get_state()
    states = {
        "python": random.getstate(),
        "numpy": (name, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_rng_state(states: dict) -> None:
    """Restore a state of :func:`rng_state`; devices that are not available are skipped."""
    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available() and len(states.get("cuda", [])) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    if torch.backends.mps.is_available() and "mps" in states:
        torch.mps.set_rng_state(states["mps"])

"""Device and thread selection, seeding, RNG state and peak memory."""

import argparse
import random
import resource
import sys
from pathlib import Path

import numpy as np
import torch

from attention_dynamics.cli import InputError


def add_device_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add ``--device`` and ``--threads``, the same in every script that computes with torch.

    Returns the group that they are in, for what else a script says of the hardware.
    """
    group = parser.add_argument_group("hardware")
    group.add_argument(
        "--device",
        default="auto",
        choices=["auto", "cpu", "cuda", "mps"],
        help="where to compute; auto takes cuda, then mps, then cpu (default: %(default)s)",
    )
    group.add_argument(
        "--threads",
        type=int,
        default=1,
        help="CPU threads; the layers are small, so several runs side by side (JOBS=n in the batch "
        "files) gain more than threads do; part of what makes a run reproducible byte for byte "
        "(default: %(default)s)",
    )
    return group


def setup_device(name: str, threads: int = 1) -> torch.device:
    """The torch device called ``name`` ("auto" picks one), with ``threads`` CPU threads set.

    Raises InputError when that device is not there or threads is below 1.
    """
    if not 1 <= threads <= 1024:
        raise InputError(f"--threads must be from 1 to 1024, not {threads}")
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cpu" and torch.backends.mps.is_available():
            name = "mps"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch sees no CUDA device here; use --device cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise InputError("--device mps: torch sees no Apple GPU here; use --device cpu")
    return torch.device(name)


def peak_memory_mb() -> float:
    """The most memory this process has held so far, in MB (resident set)."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux a new process inherits that of the one which started it.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def set_seed(seed: int) -> None:
    """Seed Python, numpy and torch (all devices): called before the data and before the model."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def generator_states() -> dict:
    """Where all generators of :func:`set_seed` stand, in plain containers and tensors."""
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


def set_generator_states(states: dict) -> None:
    """Put all generators where they stood; devices that are not here are left out."""
    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available() and len(states.get("cuda", [])) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    if torch.backends.mps.is_available() and "mps" in states:
        torch.mps.set_rng_state(states["mps"])

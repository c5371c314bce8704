"""Choosing where tensors live, and how many threads a CPU run takes."""

import argparse
import resource
import sys
from pathlib import Path

import torch

from attention_dynamics.errors import InputError


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


def choose_device(name: str, threads: int = 1) -> torch.device:
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

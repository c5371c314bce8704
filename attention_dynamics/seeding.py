"""One seed for every generator a step draws from."""

import argparse
import random

import numpy as np
import torch

LARGEST_SEED = 2**32 - 1


def seed(text: str) -> int:
    """The type of a ``--seed`` option: a whole number that every generator takes."""
    if not text.isdecimal() or len(text) > 10 or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"must be from 0 to {LARGEST_SEED}, not {text}")
    return int(text)


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

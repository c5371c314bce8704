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

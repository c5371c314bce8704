"""One seed for every generator a step draws from."""

import random

import numpy as np
import torch


def set_seed(seed: int) -> None:
    """Seed Python, numpy and torch (all devices): called before the data and before the model."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)

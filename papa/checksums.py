"""Checksums of encoders and of encoded examples."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch


def weights_checksum(model: torch.nn.Module) -> str:
    """SHA-256 of all weights of a model and their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def examples_checksum(datasets: Iterable[Sequence[dict]]) -> str:
    """SHA-256 of the tokens and labels of all examples of ``datasets``."""
    digest = hashlib.sha256()
    for examples in datasets:
        for example in map(examples.__getitem__, range(len(examples))):
            for name in sorted(example):
                digest.update(name.encode() + np.asarray(example[name]).tobytes())
    return digest.hexdigest()

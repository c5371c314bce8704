"""The files between the steps: averages of attention (Step 1) and the order of heads (Step 2)."""

import json
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attention_dynamics.cli import InputError
from attention_dynamics.runs.checkpoints import read_tensors
from attention_dynamics.runs.records import provenance
from attention_dynamics.storage.files import atomic_write, json_text, read_json, write_text

SUMS, PATTERNS, AVERAGES = "attention_sums.pt", "attention_patterns_sums.pt", "avgs.pt"
LAMBDAS, ORDER = "lambdas.npy", "sorted_heads.json"
DAMAGED = "is damaged or holds something else: make it anew"

Pairs = list[list[int]]  # [[layer, head], ...]


def averages_of(sums: Tensor, patterns: Tensor) -> Tensor:
    """sums / patterns, 0 where a pair of positions was never valid (Step 1).

    Args:
        sums: attention summed over examples, (layer, head, L, L).
        patterns: in how many examples the pair was valid, (L, L).
    """
    return torch.where(patterns > 0, sums / patterns.clamp(min=1), 0.0)


def write_averages(folder: Path, sums: Tensor, patterns: Tensor, made_of: dict) -> None:
    """Write SUMS, PATTERNS and, last, AVERAGES (float32), and what they were made of."""
    (folder / AVERAGES).unlink(missing_ok=True)  # those there were are not of this record
    write_about(folder, made_of)
    files = {SUMS: sums, PATTERNS: patterns, AVERAGES: averages_of(sums, patterns)}
    for name, tensor in files.items():
        with atomic_write(folder / name) as stream:
            torch.save(tensor.float(), stream)


def write_order(folder: Path, lambdas: Tensor, made_of: dict) -> None:
    """Write LAMBDAS (layer, head) and, last, ORDER by rising λ: the most replaceable head first."""
    heads = lambdas.shape[1]
    order = lambdas.flatten().argsort(stable=True).tolist()
    (folder / ORDER).unlink(missing_ok=True)  # the one there was is not of this record
    write_about(folder, made_of)
    with atomic_write(folder / LAMBDAS) as stream:
        np.save(stream, lambdas.cpu().numpy())
    pairs = [[number // heads, number % heads] for number in order]
    write_text(folder / ORDER, json.dumps(pairs) + "\n")


def load_tensor(path: Path, ndim: int) -> Tensor:
    """A tensor of finite floats of ``ndim`` dimensions, as float32; else InputError."""
    if not path.exists():
        raise InputError(
            f"{path} does not exist: make it with run_papa_glue_avgs_creator.py or "
            "run_papa_ner_avgs_creator.py"
        )
    tensor = read_tensors(path, "file", DAMAGED)
    if (
        not isinstance(tensor, Tensor)
        or tensor.layout != torch.strided
        or not tensor.is_floating_point()
        or tensor.ndim != ndim
        or not tensor.isfinite().all()
    ):
        raise _damaged(path)
    return tensor.float()


def load_averages(folder: Path) -> Tensor:
    """The constants (layer, head, L, L) in ``folder``; else InputError."""
    averages = load_tensor(folder / AVERAGES, 4)
    if averages.shape[2] != averages.shape[3]:
        raise _damaged(folder / AVERAGES)
    return averages


def load_lambdas(folder: Path) -> np.ndarray:
    """λ (layer, head) in ``folder``; else InputError."""
    path = folder / LAMBDAS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is unusual is refused below
            lambdas = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: make it with --sort_calculating") from None
    except PermissionError:
        raise
    except Exception:  # of many types: its header is parsed as a piece of Python
        raise _damaged(path) from None
    if (
        not isinstance(lambdas, np.ndarray)
        or lambdas.ndim != 2
        or lambdas.dtype.kind != "f"
        or not np.isfinite(lambdas).all()
    ):
        raise _damaged(path)
    return lambdas


def load_order(folder: Path, layers: int, heads: int) -> Pairs:
    """The order of all heads, the most replaceable first; InputError unless it is one."""
    path = folder / ORDER
    order = read_json(path, "order of heads")
    if not isinstance(order, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair)
        for pair in order
    ):
        raise InputError(f"{path} is no list of [layer, head]")
    if sorted(order) != [[layer, head] for layer in range(layers) for head in range(heads)]:
        raise InputError(
            f"{path} is no order of the {layers} x {heads} heads of this model "
            f"({len(order)} entries): make it with --sort_calculating"
        )
    return order


def averages_for(folder: Path, layers: int, heads: int, made_of: dict) -> Tensor:
    """The constants, checked to be of this model, length and layout; else InputError."""
    check_about(folder, made_of, "constants")
    averages = load_averages(folder)
    path, length = folder / AVERAGES, made_of["max_seq_length"]
    if tuple(averages.shape[:2]) != (layers, heads):
        raise InputError(
            f"{path} is of {averages.shape[0]} layers x {averages.shape[1]} heads, the model has "
            f"{layers} x {heads}: make the constants of this model"
        )
    if averages.shape[2] != length:
        raise InputError(
            f"{path} is of length {averages.shape[2]}, not of --max_seq_length {length}: use that, "
            "or make the constants anew"
        )
    return averages


def order_for(folder: Path, layers: int, heads: int, made_of: dict) -> Pairs:
    """The order, checked to be of this model, length and layout; else InputError."""
    check_about(folder, made_of, "order")
    return load_order(folder, layers, heads)


def static_heads(order: Pairs, number: int, layers: int) -> list[list[int]]:
    """The heads of each layer among the first ``number`` of the order, rising."""
    return [sorted(head for at, head in order[:number] if at == layer) for layer in range(layers)]


def about_path(folder: Path) -> Path:
    """Where a folder of constants or of an order says what it was made of."""
    return folder / "about.json"


def write_about(folder: Path, made_of: dict) -> None:
    """Note what the folder's files are made of."""
    write_text(about_path(folder), json_text({"made_of": made_of, **provenance()}))


def read_about(folder: Path) -> dict | None:
    """What the folder's files are made of; None when it does not say."""
    if not about_path(folder).exists():
        return None
    about = read_json(about_path(folder), "record")
    made_of = about.get("made_of") if isinstance(about, dict) else None
    if not isinstance(made_of, dict):
        raise InputError(f"{about_path(folder)} is damaged: make {folder} anew")
    return made_of


def check_about(folder: Path, made_of: dict, what: str) -> None:
    """Refuse files of another model, length or layout.

    Files of the published code do not say what they are of: only their shapes can be checked.
    """
    if not folder.is_dir():
        raise InputError(f"the folder of the {what}, {folder}, does not exist")
    earlier = read_about(folder)
    if earlier is None:
        return
    if earlier.get("encoder") != made_of["encoder"]:
        raise InputError(
            f"the {what} in {folder} are of another model ({earlier.get('model')}), not of "
            f"{made_of['model']}: make them anew, or name another folder"
        )
    for key in ("max_seq_length", "use_papa_preprocess"):
        if earlier.get(key) != made_of[key]:
            raise InputError(
                f"the {what} in {folder} were made with --{key} {earlier.get(key)}, not "
                f"{made_of[key]}: make them anew, or name another folder"
            )


def _damaged(path: Path) -> InputError:
    return InputError(f"file {path} {DAMAGED}")

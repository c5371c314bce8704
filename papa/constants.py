"""Constants (Step 1) and the order of the heads (Step 2): computing, writing and reading them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from attention_dynamics.cli import InputError
from attention_dynamics.device import setup_device
from attention_dynamics.runs.checkpoints import read_tensors
from attention_dynamics.runs.records import differences, provenance
from attention_dynamics.storage.files import (
    atomic_write,
    check_writable,
    opened,
    read_json,
    write_json,
    write_text,
)

if TYPE_CHECKING:  # transformers takes seconds to import, and plot_papa.py only reads files
    from arguments import AveragesArguments, DataArguments, LayoutArguments
    from encoders import Encoder

SUMS, PATTERNS, AVERAGES = "attention_sums.pt", "attention_patterns_sums.pt", "avgs.pt"
LAMBDAS, ORDER = "lambdas.npy", "sorted_heads.json"
ABOUT = "about.json"
CORRUPT = "is corrupt or holds something else; recreate it"


def fingerprint(encoder: Encoder, kind: str, data: DataArguments, layout: LayoutArguments) -> dict:
    """Everything that constants or an order must share with the run that uses them.

    Their ``kind`` of task, "sequence" or "token", counts: its layouts use different positions.
    """
    return {
        "model": encoder.name,
        "encoder": encoder.checksum,
        "task_kind": kind,
        "max_seq_length": data.max_seq_length,
        "use_papa_preprocess": layout.use_papa_preprocess,
    }


# --- Step 1 ---


@torch.no_grad()
def sum_attention(
    encoder: Encoder, loader: DataLoader, length: int, device: torch.device, bar: bool
) -> tuple[Tensor, Tensor]:
    """Sums of attention over examples, and the number of examples in which a pair was valid.

    Each layer adds its attention to its sums at once, so memory does not grow with the number of
    layers times the batch size. The attention of ``encoder`` is replaced for good.

    Returns:
        Sums (layer, head, length, length) and patterns (length, length), float64, on the CPU.
    """
    from attention import RecordedHeads
    from encoders import derives_positions, replace_attention

    base = encoder.base.to(device).eval()
    layers, positions = replace_attention(base, RecordedHeads, [[]] * encoder.shape[0], length)
    patterns = torch.zeros(length, length, dtype=torch.float64)
    for batch in tqdm(loader, desc="averaging", unit="batch", disable=not bar):
        batch.pop("labels", None)
        used = batch.pop("positions", torch.arange(batch["input_ids"].shape[1]))
        valid = batch["attention_mask"].double()
        patterns[used[:, None], used] += valid.t() @ valid
        positions.used = used.to(device)
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        if not derives_positions(base):
            batch["position_ids"] = positions.used[None]
        base(**batch)
    return torch.stack([heads.sums for heads in layers]).cpu(), patterns


def make_constants(
    encoder: Encoder,
    kind: str,
    dataset: Dataset,
    data: DataArguments,
    layout: LayoutArguments,
    args: AveragesArguments,
) -> None:
    """Average the attention over ``dataset`` and write the constants, unless they exist.

    Writes SUMS, PATTERNS and, last, AVERAGES: sums / patterns, 0 where a pair was never valid. All
    are float32. Raises InputError when the directory is not writable or holds different constants.
    """
    from data import Collator, examples_checksum

    folder = Path(args.output_dir)
    check_writable(folder / AVERAGES, Path(encoder.source))
    settings = fingerprint(encoder, kind, data, layout)
    settings["data"] = examples_checksum([dataset])
    if (folder / AVERAGES).exists() and not data.overwrite_output:
        earlier = read_fingerprint(folder, settings)
        if earlier == settings:
            print(f"{folder} is up to date; use --overwrite to recreate it")
            return
        raise InputError(
            f"{folder} holds different constants ({differences(earlier, settings)}); use "
            "--overwrite to replace them, or another --output_dir"
        )
    device = setup_device(args.device, torch.get_num_threads())
    collator = Collator(encoder.tokenizer.pad_token_id, layout.drop_unused_positions)
    loader = DataLoader(dataset, batch_size=args.per_device_train_batch_size, collate_fn=collator)
    length, bar = data.max_seq_length, not args.disable_tqdm
    sums, patterns = sum_attention(encoder, loader, length, device, bar)
    averages = torch.where(patterns > 0, sums / patterns.clamp(min=1), 0.0)
    write_fingerprint(folder, settings, AVERAGES)
    for name, tensor in {SUMS: sums, PATTERNS: patterns, AVERAGES: averages}.items():
        with atomic_write(folder / name) as stream:
            torch.save(tensor.float(), stream)
    print(f"{folder / AVERAGES}: {len(dataset)} examples, {tuple(sums.shape)}")


# --- Step 2 ---


def write_order(folder: Path, lambdas: Tensor, settings: dict) -> None:
    """Write LAMBDAS (layer, head) and, last, ORDER by ascending λ: most replaceable head first."""
    heads = lambdas.shape[1]
    order = lambdas.flatten().argsort(stable=True).tolist()
    write_fingerprint(folder, settings, ORDER)
    with atomic_write(folder / LAMBDAS) as stream:
        np.save(stream, lambdas.cpu().numpy())
    pairs = [[number // heads, number % heads] for number in order]
    write_text(folder / ORDER, json.dumps(pairs) + "\n")


# --- reading ---


def load_tensor(path: Path, *shape: int | None) -> Tensor:
    """A tensor of finite floats of ``shape`` (None: any size), as float32; else InputError."""
    if not path.exists():
        raise InputError(
            f"{path} does not exist; create it with run_papa_glue_avgs_creator.py or "
            "run_papa_ner_avgs_creator.py"
        )
    tensor = read_tensors(path, "file", CORRUPT)
    if not isinstance(tensor, Tensor) or not tensor.isfinite().all():
        raise InputError(f"{path} {CORRUPT}")
    sizes = itertools.zip_longest(shape, tensor.shape, fillvalue=0)
    if any(expected not in (None, size) for expected, size in sizes):
        raise InputError(
            f"{path}: other layers, heads or --max_seq_length (expected shape {shape}, got "
            f"{tuple(tensor.shape)}); recreate the constants"
        )
    return tensor.float()


def load_lambdas(folder: Path) -> np.ndarray:
    """λ (layer, head) in ``folder``; else InputError."""
    path = folder / LAMBDAS
    with opened(path, "λ") as stream:
        try:
            lambdas = np.load(stream, allow_pickle=False)
            if lambdas.ndim == 2 and np.isfinite(lambdas).all():
                return lambdas
        except Exception:  # of many types: numpy parses the header as Python
            pass
    raise InputError(f"{path} {CORRUPT}")


def load_order(folder: Path, layers: int, heads: int) -> list[list[int]]:
    """The order of all heads, [[layer, head], ...], the most replaceable first; else InputError."""
    path = folder / ORDER
    order = read_json(path, "order of heads")
    every = [[layer, head] for layer in range(layers) for head in range(heads)]
    if not isinstance(order, list) or sorted(order, key=str) != sorted(every, key=str):
        raise InputError(
            f"{path} is not an order of the {layers} x {heads} heads of this model; create it with "
            "--sort_calculating"
        )
    return order


# --- fingerprints ---


def write_fingerprint(folder: Path, settings: dict, result: str) -> None:
    """Record what ``result`` is made from, and remove an old one, which that does not describe."""
    (folder / result).unlink(missing_ok=True)
    write_json(folder / ABOUT, {"made_of": settings, **provenance()})


def read_fingerprint(folder: Path, settings: dict) -> dict:
    """What the files of ``folder`` were made from.

    What is not recorded is taken from ``settings``: earlier versions did not record the kind of
    task, and the published code writes no record.
    """
    path = folder / ABOUT
    if not path.exists():
        return settings
    about = read_json(path, "record")
    if not isinstance(about, dict) or not isinstance(about.get("made_of"), dict):
        raise InputError(f"{path} is corrupt; recreate {folder}")
    return {"task_kind": settings["task_kind"], **about["made_of"]}


def check_fingerprint(folder: Path, settings: dict, what: str) -> None:
    """Reject files of another model, kind of task, length or layout."""
    if not folder.is_dir():
        raise InputError(f"the directory of the {what}, {folder}, does not exist")
    earlier = read_fingerprint(folder, settings)
    for key in ("encoder", "max_seq_length", "use_papa_preprocess", "task_kind"):
        if earlier.get(key) != settings[key]:
            name = "model" if key == "encoder" else key
            raise InputError(
                f"{folder}: the {what} cannot be used in this run (expected {name} "
                f"{settings[name]}, got {earlier.get(name)}); give others, or recreate them"
            )

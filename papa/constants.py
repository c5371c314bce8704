"""Constants (Step 1) and the order of the heads (Step 2): computing, writing and reading them."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from checksums import examples_checksum
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
    json_text,
    read_json,
    write_text,
)

if TYPE_CHECKING:  # transformers takes seconds to import, and plot_papa.py only reads files
    from arguments import AveragesArguments, DataArguments, LayoutArguments
    from encoders import Encoder

SUMS, PATTERNS, AVERAGES = "attention_sums.pt", "attention_patterns_sums.pt", "avgs.pt"
LAMBDAS, ORDER = "lambdas.npy", "sorted_heads.json"
ABOUT = "about.json"
CORRUPT = "is corrupt or holds something else; recreate it"

Pairs = list[list[int]]  # [[layer, head], ...]


def fingerprint(encoder: Encoder, kind: str, data: DataArguments, layout: LayoutArguments) -> dict:
    """Everything that constants or an order must share with the run that uses them.

    Args:
        encoder: the pretrained encoder.
        kind: kind of task, "sequence" or "token": their layouts use different positions.
        data, layout: options of the command line.
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
    encoder: Encoder, loader: DataLoader, length: int, device: torch.device, bar: bool = True
) -> tuple[Tensor, Tensor]:
    """Sums of attention over examples, and the number of examples in which a pair was valid.

    The model runs in evaluation mode. Each layer adds its attention to its sums at once, so memory
    does not grow with the number of layers times the batch size.

    Args:
        encoder: the pretrained encoder; its attention is replaced for good.
        loader: batches with input_ids, attention_mask and, if positions are left out, positions.
        length: positions of an example, padding included.
        device: device to compute on.
        bar: whether to show a progress bar.

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


def average(sums: Tensor, patterns: Tensor) -> Tensor:
    """sums / patterns, 0 where a pair of positions was never valid (Step 1).

    Args:
        sums: attention summed over examples, (layer, head, L, L).
        patterns: number of examples in which the pair was valid, (L, L).
    """
    return torch.where(patterns > 0, sums / patterns.clamp(min=1), 0.0)


def make_constants(
    encoder: Encoder,
    kind: str,
    dataset: Dataset,
    data: DataArguments,
    layout: LayoutArguments,
    args: AveragesArguments,
) -> None:
    """Average the attention over ``dataset`` and write the constants, unless they exist.

    Raises InputError when the directory is not writable or holds different constants.
    """
    from data import Collator

    folder = Path(args.output_dir)
    check_writable(folder / AVERAGES, Path(encoder.source))
    settings = fingerprint(encoder, kind, data, layout)
    settings["data"] = examples_checksum([dataset])
    if (folder / AVERAGES).exists() and not data.overwrite_output:
        # Records of earlier versions lack the kind of task.
        earlier = {"task_kind": kind, **(read_fingerprint(folder) or {})}
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
    write_averages(folder, sums, patterns, settings)
    print(f"{folder / AVERAGES}: {len(dataset)} examples, {tuple(sums.shape)}")


# --- writing ---


def write_averages(folder: Path, sums: Tensor, patterns: Tensor, settings: dict) -> None:
    """Write SUMS, PATTERNS and, last, AVERAGES (float32), and their fingerprint."""
    (folder / AVERAGES).unlink(missing_ok=True)  # the new record does not describe the old file
    write_fingerprint(folder, settings)
    files = {SUMS: sums, PATTERNS: patterns, AVERAGES: average(sums, patterns)}
    for name, tensor in files.items():
        with atomic_write(folder / name) as stream:
            torch.save(tensor.float(), stream)


def write_order(folder: Path, lambdas: Tensor, settings: dict) -> None:
    """Write LAMBDAS (layer, head) and, last, ORDER by ascending λ: most replaceable head first."""
    heads = lambdas.shape[1]
    order = lambdas.flatten().argsort(stable=True).tolist()
    (folder / ORDER).unlink(missing_ok=True)  # the new record does not describe the old file
    write_fingerprint(folder, settings)
    with atomic_write(folder / LAMBDAS) as stream:
        np.save(stream, lambdas.cpu().numpy())
    pairs = [[number // heads, number % heads] for number in order]
    write_text(folder / ORDER, json.dumps(pairs) + "\n")


def write_fingerprint(folder: Path, settings: dict) -> None:
    """Record what the files of ``folder`` were made from."""
    write_text(folder / ABOUT, json_text({"made_of": settings, **provenance()}))


# --- reading ---


def load_tensor(path: Path, ndim: int) -> Tensor:
    """A tensor of finite floats with ``ndim`` dimensions, as float32; else InputError."""
    if not path.exists():
        raise InputError(
            f"{path} does not exist; create it with run_papa_glue_avgs_creator.py or "
            "run_papa_ner_avgs_creator.py"
        )
    tensor = read_tensors(path, "file", CORRUPT)
    if (
        not isinstance(tensor, Tensor)
        or tensor.layout != torch.strided
        or not tensor.is_floating_point()
        or tensor.ndim != ndim
        or not tensor.isfinite().all()
    ):
        raise InputError(f"{path} {CORRUPT}")
    return tensor.float()


def load_averages(folder: Path) -> Tensor:
    """The constants (layer, head, L, L) in ``folder``; else InputError."""
    averages = load_tensor(folder / AVERAGES, 4)
    if averages.shape[2] != averages.shape[3]:
        raise InputError(f"{folder / AVERAGES} {CORRUPT}")
    return averages


def load_lambdas(folder: Path) -> np.ndarray:
    """λ (layer, head) in ``folder``; else InputError."""
    path = folder / LAMBDAS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unusual content is rejected below
            lambdas = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; create it with --sort_calculating") from None
    except PermissionError:
        raise
    except Exception:  # of many types: numpy parses the header as Python
        raise InputError(f"{path} {CORRUPT}") from None
    if (
        not isinstance(lambdas, np.ndarray)
        or lambdas.ndim != 2
        or lambdas.dtype.kind != "f"
        or not np.isfinite(lambdas).all()
    ):
        raise InputError(f"{path} {CORRUPT}")
    return lambdas


def load_order(folder: Path, layers: int, heads: int) -> Pairs:
    """The order of all heads, the most replaceable first; else InputError."""
    path = folder / ORDER
    order = read_json(path, "order of heads")
    if not isinstance(order, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair)
        for pair in order
    ):
        raise InputError(f"{path} is not a list of [layer, head]; recreate it")
    if sorted(order) != [[layer, head] for layer in range(layers) for head in range(heads)]:
        raise InputError(
            f"{path} is not an order of the {layers} x {heads} heads of this model "
            f"({len(order)} entries); create it with --sort_calculating"
        )
    return order


def load_matching_averages(folder: Path, layers: int, heads: int, settings: dict) -> Tensor:
    """The constants (layer, head, L, L), checked against the run; else InputError."""
    check_fingerprint(folder, settings, "constants")
    averages = load_averages(folder)
    length = settings["max_seq_length"]
    if averages.shape != (expected := (layers, heads, length, length)):
        raise InputError(
            f"{folder / AVERAGES}: other layers, heads or --max_seq_length (expected shape "
            f"{expected}, got {tuple(averages.shape)}); recreate the constants"
        )
    return averages


def load_matching_order(folder: Path, layers: int, heads: int, settings: dict) -> Pairs:
    """The order of the heads, checked against the run; else InputError."""
    check_fingerprint(folder, settings, "order")
    return load_order(folder, layers, heads)


def read_fingerprint(folder: Path) -> dict | None:
    """What the files of ``folder`` were made from; None without a record."""
    path = folder / ABOUT
    if not path.exists():
        return None
    about = read_json(path, "record")
    settings = about.get("made_of") if isinstance(about, dict) else None
    if not isinstance(settings, dict):
        raise InputError(f"{path} is corrupt; recreate {folder}")
    return settings


def check_fingerprint(folder: Path, settings: dict, what: str) -> None:
    """Reject files of another model, kind of task, length or layout.

    Records of earlier versions lack the kind of task: a note says that it was not checked. The
    published code wrote no record: only the shapes of its files can be checked.
    """
    if not folder.is_dir():
        raise InputError(f"the directory of the {what}, {folder}, does not exist")
    earlier = read_fingerprint(folder)
    if earlier is None:
        return
    if "task_kind" not in earlier:
        print(
            f"note: {folder / ABOUT} does not record the kind of task: make sure that the {what} "
            f"were made for {settings['task_kind']} tasks",
            file=sys.stderr,
        )
    checked = {"task_kind": settings["task_kind"], **earlier}
    for key in ("encoder", "max_seq_length", "use_papa_preprocess", "task_kind"):
        if checked.get(key) != settings[key]:
            name = "model" if key == "encoder" else key
            raise InputError(
                f"{folder}: the {what} cannot be used in this run (expected {name} "
                f"{settings[name]}, got {checked.get(name)}); give others, or recreate them"
            )


def static_heads(order: Pairs, number: int, layers: int) -> list[list[int]]:
    """The heads of each layer among the first ``number`` of the order, ascending."""
    return [sorted(head for at, head in order[:number] if at == layer) for layer in range(layers)]

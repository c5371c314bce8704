"""Step 1: a pass over the training set that averages the attention of every head."""

from pathlib import Path

import torch
from arguments import AveragesArguments, DataArguments, LayoutArguments
from constants import AVERAGES, read_about, write_averages
from data import Collator
from encoders import Encoder
from models import RecordedHeads, counts_positions, install
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from training import checksum, differences, made_of

from attention_dynamics.cli import InputError
from attention_dynamics.device import setup_device
from attention_dynamics.storage.files import check_writable


@torch.no_grad()
def average(
    encoder: Encoder, loader: DataLoader, length: int, device: torch.device, bar: bool = True
) -> tuple[Tensor, Tensor]:
    """Sums of attention (layer, head, length, length), and in how many examples a pair was valid.

    The model runs in evaluation mode. Memory does not grow with the number of layers times the
    batch: each layer adds its attention to its sums at once.

    Args:
        encoder: the pretrained one, whose attention is replaced for good.
        loader: of batches with input_ids, attention_mask and, if positions are left out, places.
        length: of the examples, padding included.
        device: where to compute.
        bar: whether to show a progress bar.

    Returns:
        float64 sums and patterns (length, length), on the CPU.
    """
    base = encoder.base.to(device).eval()
    layers, columns = install(base, RecordedHeads, [[]] * encoder.layers, length)
    patterns = torch.zeros(length, length, dtype=torch.float64)
    for batch in tqdm(loader, desc="averaging", unit="batch", disable=not bar):
        batch.pop("labels", None)
        places = batch.pop("places", torch.arange(batch["input_ids"].shape[1]))
        valid = batch["attention_mask"].double()
        patterns[places[:, None], places] += valid.t() @ valid
        columns.places = places.to(device)
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        if not counts_positions(base):
            batch["position_ids"] = columns.places[None]
        base(**batch)
    return torch.stack([heads.sums for heads in layers]).cpu(), patterns


def make_constants(
    encoder: Encoder,
    dataset: Dataset,
    data: DataArguments,
    layout: LayoutArguments,
    args: AveragesArguments,
) -> None:
    """Average the attention over ``dataset`` and write the constants, unless they are there.

    Raises InputError for a folder that cannot be written to, or holds constants of something else.
    """
    folder = Path(args.output_dir)
    check_writable(folder / AVERAGES, Path(encoder.source))
    of = {**made_of(encoder, data, layout), "data": checksum([dataset])}
    if (folder / AVERAGES).exists() and not data.overwrite_output:
        earlier = read_about(folder)
        if earlier == of:
            print(f"{folder} is up to date; --overwrite makes it anew")
            return
        raise InputError(
            f"{folder} holds other constants ({differences(earlier or {}, of)}): --overwrite "
            "replaces them, or name another --output_dir"
        )
    device = setup_device(args.device, torch.get_num_threads())
    collator = Collator(encoder.tokenizer.pad_token_id, layout.drop_unused_positions)
    loader = DataLoader(dataset, batch_size=args.per_device_train_batch_size, collate_fn=collator)
    sums, patterns = average(encoder, loader, data.max_seq_length, device, not args.disable_tqdm)
    write_averages(folder, sums, patterns, of)
    print(f"{folder / AVERAGES}: {len(dataset)} examples, {tuple(sums.shape)}")

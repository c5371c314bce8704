"""The directory of a run: its record, its results, and the results of other runs in it.

Own code beside attention_dynamics.runs: the published loop over numbers of constant heads writes
all its runs to one directory, and none of their results may be lost.
"""

import shutil
from pathlib import Path

from arguments import Options
from checkpoints import last_checkpoint
from constants import ABOUT, AVERAGES, LAMBDAS, ORDER
from data import examples_checksum
from encoders import Encoder
from scores import read_record
from torch.utils.data import Dataset

from attention_dynamics.cli import InputError
from attention_dynamics.runs.paths import record_path, unfinished_path
from attention_dynamics.runs.records import differences
from attention_dynamics.storage.files import check_writable, sha256, write_json

FILES = (
    "all_results.json", "eval_results.json", "train_results.json", "trainer_state.json",
    "run.json", "unfinished.json", "predict*.txt", "checkpoint-*",
    "config.json", "model*.safetensors*", "tokenizer*", "special_tokens_map.json",
)  # fmt: skip
ORDER_FILES = (LAMBDAS, ORDER, ABOUT)

# The options of the Trainer that change results.
TRAINED = (
    "num_train_epochs", "max_steps", "learning_rate", "lr_scheduler_type",
    "lr_scheduler_kwargs", "warmup_steps", "weight_decay", "optim", "optim_args",
    "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "label_smoothing_factor",
    "data_seed", "train_sampling_strategy", "per_device_train_batch_size",
    "gradient_accumulation_steps", "dataloader_drop_last", "bf16", "fp16", "eval_strategy",
    "load_best_model_at_end", "do_train", "do_eval", "do_predict", "world_size",
)  # fmt: skip


def prepare_output_dir(record: dict, options: Options, source: Path) -> bool:
    """Prepare --output_dir for a run; False when this run is already finished there.

    The results of a finished run with different settings are moved to a subdirectory named after
    its number of constant heads and its seed.

    ``source`` is the directory of the encoder, which must not be written to. Raises InputError when
    --output_dir is not writable, a record is corrupt, or there are checkpoints of an unfinished run
    with different settings.
    """
    folder, overwrite = Path(options.trainer.output_dir), options.data.overwrite_output
    settings = record["settings"]
    check_writable(record_path(folder), source)
    for path in [record_path(folder), *folder.glob("heads*_seed*/run.json")]:
        if path.exists() and read_record(path)["settings"] == settings:
            if not overwrite:
                print(f"{path.parent} is up to date; use --overwrite to recreate it")
                return False
            remove_run(path.parent)
    if record_path(folder).exists():
        earlier = read_record(record_path(folder))
        name = f"heads{earlier['static_heads_num']}_seed{earlier['seed']}"
        target, number = folder / name, 1
        while target.exists():
            number += 1
            target = folder / f"{name}_{number}"
        target.mkdir()
        # An order stays where --sorting_heads_dir finds it, unless this run writes another.
        for path in run_files(folder, ORDER_FILES if options.papa.sort_calculating else ()):
            path.replace(target / path.name)
        print(f"note: the results of another run in {folder} were moved to {target}")
    elif overwrite:
        remove_run(folder)
    elif last_checkpoint(folder) and not options.trainer.resume_from_checkpoint:
        earlier = read_record(unfinished_path(folder))["settings"]
        if earlier != settings:
            raise InputError(
                f"{folder} holds checkpoints of an unfinished run with different settings "
                f"({differences(earlier, settings)}); use --overwrite to remove them"
            )
    write_json(unfinished_path(folder), record)
    return True


def run_files(folder: Path, more: tuple[str, ...] = ()) -> list[Path]:
    """The files of a run: results, predictions, checkpoints, the model, and ``more``."""
    return [path for pattern in (*FILES, *more) for path in folder.glob(pattern)]


def remove_run(folder: Path) -> None:
    """Remove the files of a run, its record first."""
    record_path(folder).unlink(missing_ok=True)
    for path in run_files(folder):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def run_record(task: str, encoder: Encoder, datasets: dict[str, Dataset], options: Options) -> dict:
    """All settings that determine the results of a run; collect_papa_stats.py reads them."""
    papa, args = options.papa, options.trainer
    checksums = {"encoder": encoder.checksum, "data": examples_checksum(datasets.values())}
    for name, folder, file in (
        ("constants", papa.static_heads_dir, AVERAGES),
        ("order", papa.sorting_heads_dir, ORDER),
    ):
        if folder is not None and (path := Path(folder) / file).is_file():
            checksums[name] = sha256(path)
    described = {
        "model": encoder.name,
        "task": task,
        "max_seq_length": options.data.max_seq_length,
        "num_heads": encoder.shape[0] * encoder.shape[1],
        "static_heads_num": papa.static_heads_num,
        "seed": args.seed,
        "checksums": checksums,
    }
    settings = described | vars(papa) | vars(options.layout)
    del settings["static_heads_dir"], settings["sorting_heads_dir"]  # their checksums are there
    for key in TRAINED:
        value = getattr(args, key)
        settings[key] = str(getattr(value, "value", value))
    return {**described, "settings": settings}

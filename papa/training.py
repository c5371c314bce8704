"""What run_papa_glue.py and run_papa_ner.py do alike: a model with its heads, the Trainer, results.

With ``--sort_calculating`` the order of heads is learnt (Step 2); else the first heads of the order
are constant, and the head of the task is trained and evaluated (Step 3).
"""

import functools
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from arguments import DataArguments, LayoutArguments, Options
from checkpoints import checkpoint_of, remove_checkpoints, train
from constants import (
    AVERAGES,
    LAMBDAS,
    ORDER,
    about_path,
    averages_for,
    order_for,
    static_heads,
    write_order,
)
from data import Collator
from encoders import Encoder, load_model
from models import PapaModel
from states import HeadOnly, cached, collate
from torch import Tensor
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer
from transformers.trainer_utils import PredictionOutput

from attention_dynamics.cli import InputError, RunError
from attention_dynamics.runs.records import differences, provenance
from attention_dynamics.storage.files import check_writable, read_json, sha256, write_json

# What a run leaves in its folder, beside RECORD, which is written last.
RESULTS = ("all_results.json", "eval_results.json", "train_results.json", "trainer_state.json")
MODEL = ("config.json", "model*.safetensors*", "tokenizer*", "special_tokens_map.json")
RECORD = "run.json"
UNFINISHED = "unfinished.json"  # the record while the run goes on: its checkpoints are of it

Metrics = Callable[[np.ndarray, np.ndarray], dict[str, float]]


def run(
    kind: str,
    task: str,
    labels: Sequence[str],
    encoder: Encoder,
    datasets: dict[str, Dataset],
    metrics: Metrics,
    options: Options,
    write_predictions: Callable[[dict[str, PredictionOutput]], None],
) -> None:
    """Make the model, train and evaluate it, and write the results.

    Args:
        kind: "sequence" or "token".
        task: its name, for the record.
        labels: names of the labels; none for a regression.
        encoder: the pretrained one.
        datasets: "train", "validation..." and "test..." -> examples, those that are asked for.
        metrics: of logits and labels.
        options: of the command line.
        write_predictions: is given what is predicted of each test split.
    """
    args, folder = options.trainer, Path(options.trainer.output_dir)
    record = run_record(task, encoder, datasets, options)
    with args.main_process_first(local=False):
        if not begin(folder, record, options, Path(encoder.source)):
            return
    model = make_model(kind, labels, encoder, options)
    scores, predicted = train_and_evaluate(model, encoder, datasets, metrics, options)
    if args.process_index == 0:
        write_predictions(predicted)
        if options.papa.sort_calculating:
            of = made_of(encoder, options.data, options.layout)
            write_order(folder, model.lambdas.cpu(), of)
        write_json(folder / RECORD, {**record, **provenance()})
        (folder / UNFINISHED).unlink()
        if args.save_strategy == "no":  # what a signal has left
            remove_checkpoints(folder)
        shown = ", ".join(f"{name} {scores[name]:.4f}" for name in scores if is_measured(name))
        heads = f"{options.papa.static_heads_num} of {record['num_heads']} heads constant"
        print(f"{folder}: {heads}; {shown or 'not evaluated'}")


def made_of(encoder: Encoder, data: DataArguments, layout: LayoutArguments) -> dict:
    """What constants and orders are made of, so that those of something else are refused."""
    return {
        "model": encoder.name,
        "encoder": encoder.checksum,
        "max_seq_length": data.max_seq_length,
        "use_papa_preprocess": layout.use_papa_preprocess,
    }


def make_model(kind: str, labels: Sequence[str], encoder: Encoder, options: Options) -> PapaModel:
    """The model that the options ask for: its heads, and what of it is trained.

    Raises InputError for more constant heads than there are, and for constants or an order that are
    not of this encoder.
    """
    papa, data = options.papa, options.data
    of, shape = made_of(encoder, data, options.layout), (encoder.layers, encoder.heads)
    total = encoder.layers * encoder.heads
    if papa.static_heads_num > total:
        raise InputError(
            f"--static_heads_num {papa.static_heads_num}: {encoder.name} has only {total} heads "
            f"({encoder.layers} layers x {encoder.heads})"
        )
    averages, order = None, []
    if papa.static_heads_dir:
        averages = averages_for(Path(papa.static_heads_dir), *shape, of)
    if papa.sorting_heads_dir:
        order = order_for(Path(papa.sorting_heads_dir), *shape, of)
    settings = {
        "task": kind,
        "max_length": data.max_seq_length,
        "static_heads": static_heads(order, papa.static_heads_num, encoder.layers),
        "mixed": papa.sort_calculating,
        "pooler": papa.use_freeze_extract_pooler,
    }
    model = load_model(encoder, labels, settings)
    if averages is not None:
        model.fill(averages)
    model.freeze(encoder=bool(papa.freezing), constants=papa.grad_for_classifier_and_static_only)
    return model


def begin(folder: Path, record: dict, options: Options, source: Path) -> bool:
    """Prepare ``folder`` for a run; False when this very run is finished there.

    What a finished run of other settings has left is moved to a folder of its own, named by its
    constant heads and seed: the published loop over numbers of heads names one folder for them all.

    Args:
        folder: --output_dir.
        record: of the run, as :func:`run_record` makes it.
        options: of the command line.
        source: the model's folder, which is not to be written to.

    Raises InputError for a folder that cannot be written to, a damaged record, and checkpoints of
    an unfinished run of other settings.
    """
    check_writable(folder / RECORD, source)
    overwrite, settings = options.data.overwrite_output, record["settings"]
    for path in sorted([folder / RECORD, *folder.glob(f"heads*_seed*/{RECORD}")]):
        if path.exists() and read_record(path)["settings"] == settings:
            if not overwrite:
                print(f"{path.parent} is up to date; --overwrite makes it anew")
                return False
            remove_run(path.parent)
    if (folder / RECORD).exists():
        earlier = read_record(folder / RECORD)
        name = f"heads{earlier['static_heads_num']}_seed{earlier['seed']}"
        kept, number = folder / name, 1
        while kept.exists():
            number += 1
            kept = folder / f"{name}_{number}"
        kept.mkdir()
        # An order stays where --sorting_heads_dir finds it, unless this run writes another.
        for path in left_by_run(folder, with_order=options.papa.sort_calculating):
            path.replace(kept / path.name)
        print(f"note: the results of another run in {folder} are in {kept} now")
    elif overwrite:
        remove_run(folder)
    elif checkpoint_of(folder) and not options.trainer.resume_from_checkpoint:
        earlier = read_record(folder / UNFINISHED)["settings"]
        if earlier != settings:
            raise InputError(
                f"{folder} holds checkpoints of an unfinished run of other settings "
                f"({differences(earlier, settings)}): --overwrite removes them"
            )
    write_json(folder / UNFINISHED, record)
    return True


def left_by_run(folder: Path, with_order: bool) -> list[Path]:
    """What a run has left in its folder: results, predictions, checkpoints and the model."""
    patterns = [*RESULTS, RECORD, UNFINISHED, "predict*.txt", "checkpoint-*", *MODEL]
    if with_order:
        patterns += [LAMBDAS, ORDER, about_path(folder).name]
    return [path for pattern in patterns for path in folder.glob(pattern)]


def remove_run(folder: Path) -> None:
    """Remove what a run has left in its folder, its record first."""
    (folder / RECORD).unlink(missing_ok=True)
    for path in left_by_run(folder, with_order=False):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def read_record(path: Path) -> dict:
    """The record of a run; else InputError."""
    record = read_json(path, "run record")
    numbers = ("static_heads_num", "seed")
    if (
        not isinstance(record, dict)
        or not isinstance(record.get("settings"), dict)
        or not all(type(record.get(number)) is int for number in numbers)
    ):
        raise InputError(f"{path} is no run record: remove it, or name another --output_dir")
    return record


def run_record(task: str, encoder: Encoder, datasets: dict[str, Dataset], options: Options) -> dict:
    """What decides the results of a run, for people and for collect_papa_stats.py."""
    data, papa, args = options.data, options.papa, options.trainer
    checksums = {"encoder": encoder.checksum, "data": checksum(datasets.values())}
    files = {
        "constants": (papa.static_heads_dir, AVERAGES),
        "order": (papa.sorting_heads_dir, ORDER),
    }
    for name, (folder, file) in files.items():
        if folder is not None and (path := Path(folder) / file).is_file():
            checksums[name] = sha256(path)
    described = {
        "model": encoder.name,
        "task": task,
        "max_seq_length": data.max_seq_length,
        "num_heads": encoder.layers * encoder.heads,
        "static_heads_num": papa.static_heads_num,
        "seed": args.seed,
        "checksums": checksums,
    }
    folders = ("static_heads_dir", "sorting_heads_dir")  # their contents are in the checksums
    chosen = {**vars(papa), **vars(options.layout)}
    trained = (
        "num_train_epochs", "max_steps", "learning_rate", "lr_scheduler_type",
        "lr_scheduler_kwargs", "warmup_steps", "weight_decay", "optim", "optim_args",
        "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "label_smoothing_factor",
        "data_seed", "train_sampling_strategy", "per_device_train_batch_size",
        "gradient_accumulation_steps", "dataloader_drop_last", "bf16", "fp16", "eval_strategy",
        "load_best_model_at_end", "do_train", "do_eval", "do_predict", "world_size",
    )  # fmt: skip
    trainer = {key: getattr(args, key) for key in trained}
    settings = {
        **described,
        **{key: value for key, value in chosen.items() if key not in folders},
        **{key: str(getattr(value, "value", value)) for key, value in trainer.items()},
    }
    return {**described, "settings": settings}


def checksum(datasets) -> str:
    """Of the tokens and labels of data sets."""
    digest = hashlib.sha256()
    for examples in datasets:
        for example in map(examples.__getitem__, range(len(examples))):
            for name in sorted(example):
                digest.update(name.encode() + np.asarray(example[name]).tobytes())
    return digest.hexdigest()


class FiniteTrainer(Trainer):
    """The library's, but it stops on a loss that is no number, instead of training on."""

    def training_step(self, *args, **kwargs) -> Tensor:
        """The loss of a step, whose gradients are computed; RunError when it is no number."""
        loss = super().training_step(*args, **kwargs)
        if not loss.isfinite():
            last = checkpoint_of(Path(self.args.output_dir))
            raise RunError(
                f"the loss of step {self.state.global_step + 1} is {loss.item()}: lower "
                f"--learning_rate, or train without --fp16 (last checkpoint: {last or 'none'})"
            )
        return loss


def finite_metrics(metrics: Metrics, prediction: EvalPrediction) -> dict[str, float]:
    """``metrics`` of what is predicted; RunError when that is no number."""
    if not np.isfinite(prediction.predictions).all():
        raise RunError("the model predicts what is no number: lower --learning_rate")
    return metrics(prediction.predictions, prediction.label_ids)


def train_and_evaluate(
    model: PapaModel,
    encoder: Encoder,
    datasets: dict[str, Dataset],
    metrics: Metrics,
    options: Options,
) -> tuple[dict[str, float], dict[str, PredictionOutput]]:
    """Train, evaluate and predict as the options say, and write the Trainer's results.

    Returns the scores, and what is predicted of each test split. Raises RunError when the loss is
    no number.
    """
    args, trained = options.trainer, model
    collator = Collator(encoder.tokenizer.pad_token_id, options.layout.drop_unused_positions)
    if options.papa.cache_encoder_states:
        model.to(args.device)
        folder = Path(options.model.cache_dir or Path(args.output_dir).parent) / "encoder_states"
        with args.main_process_first(local=False):
            datasets = {
                name: cached(model, examples, collator, folder, not args.disable_tqdm)
                for name, examples in datasets.items()
            }
        trained, collator = HeadOnly(model.head), collate
    validation = {name: split for name, split in datasets.items() if name.startswith("validation")}
    try:
        trainer = FiniteTrainer(
            model=trained,
            args=args,
            train_dataset=datasets.get("train"),
            eval_dataset=next(iter(validation.values()), None),
            data_collator=collator,
            compute_metrics=functools.partial(finite_metrics, metrics),
        )
    except (ValueError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"the options do not fit this model or machine: {reason}") from None
    if args.do_train:
        try:
            result = train(trainer)
        except ImportError as error:  # of an optimiser
            raise InputError(f"the options need a package: {error}") from None
        except KeyError as error:
            if "metric_for_best_model" not in str(error):
                raise
            name = args.metric_for_best_model
            raise InputError(f"--metric_for_best_model {name} is no score of this task") from None
        if args.save_strategy != "no" and trainer.is_world_process_zero():
            model.save_pretrained(args.output_dir)
            encoder.tokenizer.save_pretrained(args.output_dir)
        report(trainer, "train", {**result.metrics, "train_samples": len(datasets["train"])})
    scores = {}
    if args.do_eval:
        for name, examples in validation.items():
            # Under a name of its own in the log; eval_accuracy_mm, as GLUE scripts call it, here.
            mismatched = name.endswith("mismatched")
            prefix = "eval_mm" if mismatched else "eval"
            found = trainer.evaluate(examples, metric_key_prefix=prefix)
            found[f"{prefix}_samples"] = len(examples)
            if mismatched:
                found = {
                    f"eval_{key.removeprefix('eval_mm_')}_mm": value
                    for key, value in found.items()
                    if key.startswith(prefix)
                }
            scores |= found
        report(trainer, "eval", scores)
    predicted = {
        name: trainer.predict(examples, metric_key_prefix="predict")
        for name, examples in datasets.items()
        if name.startswith("test")
    }
    trainer.save_state()
    return scores, predicted


def is_measured(name: str) -> bool:
    """Whether an entry of the Trainer's evaluation is one of the task's own scores."""
    others = ("loss", "runtime", "per_second", "samples", "time", "epoch")
    return not name.removesuffix("_mm").endswith(others)


def report(trainer: Trainer, split: str, scores: dict) -> None:
    """Print the scores of a split, and add them to the results."""
    trainer.log_metrics(split, scores)
    trainer.save_metrics(split, scores)

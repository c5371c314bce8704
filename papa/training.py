"""What run_papa_glue.py and run_papa_ner.py do alike: a model with its heads, the Trainer, results.

With ``--sort_calculating`` the order of heads is learnt (Step 2); else the first heads of the order
are constant, and the head of the task is trained and evaluated (Step 3).
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from arguments import DataArguments, LayoutArguments, Options
from constants import AVERAGES, ORDER, averages_for, order_for, static_heads, write_order
from data import Collator
from encoders import Encoder, load_model
from models import PapaModel
from states import HeadOnly, cached, collate
from torch.utils.data import Dataset
from transformers import Trainer
from transformers.trainer_utils import PredictionOutput

from attention_dynamics.errors import InputError, WorkError
from attention_dynamics.files import read_json, sha256, write_json
from attention_dynamics.runs import provenance

# What a run leaves in its folder, beside RECORD, which is written last.
RESULTS = ("all_results.json", "eval_results.json", "train_results.json", "trainer_state.json")
RECORD = "run.json"

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
        if not begin(folder, record, options.data.overwrite_output):
            return
    model = make_model(kind, labels, encoder, options)
    predicted = train_and_evaluate(model, encoder, datasets, metrics, options)
    if args.process_index == 0:
        write_predictions(predicted)
        if options.papa.sort_calculating:
            of = made_of(encoder, options.data, options.layout)
            write_order(folder, model.lambdas.cpu(), of)
        write_json(folder / RECORD, {**record, **provenance()})


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


def begin(folder: Path, record: dict, overwrite: bool) -> bool:
    """Whether there is something to do: False when this very run is finished in ``folder``.

    The results of another run are moved to a folder of their own, named by its constant heads and
    seed: the published loop over numbers of heads names one folder for all of them.
    """
    path = folder / RECORD
    if not path.exists():
        return True
    earlier = read_json(path, "run record")
    if not isinstance(earlier, dict) or not isinstance(earlier.get("settings"), dict):
        raise InputError(f"{path} is no run record: remove it, or name another --output_dir")
    if earlier["settings"] == record["settings"]:
        if not overwrite:
            print(f"{folder} is up to date; --overwrite makes it anew")
            return False
        path.unlink()
        return True
    kept = folder / f"heads{earlier['static_heads_num']}_seed{earlier['seed']}"
    kept.mkdir(exist_ok=True)
    for name in (*RESULTS, RECORD):
        if (folder / name).exists():
            (folder / name).replace(kept / name)
    print(f"note: the results of another run in {folder} are in {kept} now")
    return True


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
        "num_train_epochs", "max_steps", "learning_rate", "lr_scheduler_type", "weight_decay",
        "warmup_steps", "per_device_train_batch_size", "gradient_accumulation_steps", "bf16",
        "fp16", "eval_strategy", "do_train", "do_eval", "do_predict", "world_size",
    )  # fmt: skip
    settings = {
        **described,
        **{key: value for key, value in chosen.items() if key not in folders},
        **{key: str(getattr(args, key)) for key in trained},
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


def train_and_evaluate(
    model: PapaModel,
    encoder: Encoder,
    datasets: dict[str, Dataset],
    metrics: Metrics,
    options: Options,
) -> dict[str, PredictionOutput]:
    """Train, evaluate and predict as the options say, and write the Trainer's results.

    Returns what is predicted of each test split. Raises WorkError when the loss is no number.
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
    trainer = Trainer(
        model=trained,
        args=args,
        train_dataset=datasets.get("train"),
        eval_dataset=next(iter(validation.values()), None),
        data_collator=collator,
        compute_metrics=lambda prediction: metrics(prediction.predictions, prediction.label_ids),
    )
    if args.do_train:
        result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        if not np.isfinite(result.training_loss):
            raise WorkError(
                f"the training loss is {result.training_loss} after {trainer.state.global_step} "
                "steps: lower --learning_rate, or train without --fp16"
            )
        if args.save_strategy != "no" and trainer.is_world_process_zero():
            model.save_pretrained(args.output_dir)
            encoder.tokenizer.save_pretrained(args.output_dir)
        report(trainer, "train", {**result.metrics, "train_samples": len(datasets["train"])})
    if args.do_eval:
        scores = {}
        for name, examples in validation.items():
            prefix = "eval_mm" if name.endswith("mismatched") else "eval"
            scores |= trainer.evaluate(examples, metric_key_prefix=prefix)
            scores[f"{prefix}_samples"] = len(examples)
        report(trainer, "eval", scores)
    predicted = {
        name: trainer.predict(examples, metric_key_prefix="predict")
        for name, examples in datasets.items()
        if name.startswith("test")
    }
    trainer.save_state()
    return predicted


def report(trainer: Trainer, split: str, scores: dict) -> None:
    """Print the scores of a split, and add them to the results."""
    trainer.log_metrics(split, scores)
    trainer.save_metrics(split, scores)

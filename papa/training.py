"""The common part of run_papa_glue.py and run_papa_ner.py: model, Trainer, results.

With ``--sort_calculating`` the order of the heads is learned (Step 2). Otherwise the first heads of
the order are constant, and the head of the task is trained and evaluated (Step 3).
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from arguments import Options
from checkpoints import last_checkpoint, remove_checkpoints, train
from constants import (
    fingerprint,
    load_matching_averages,
    load_matching_order,
    static_heads,
    write_order,
)
from data import Collator
from encoder_cache import HeadOnly, cache_states, collate_states
from encoders import Encoder
from models import PapaModel, load_model
from run_folder import prepare_output_dir, run_record
from torch import Tensor
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer
from transformers.trainer_utils import PredictionOutput

from attention_dynamics.cli import InputError, RunError
from attention_dynamics.runs.paths import record_path, unfinished_path
from attention_dynamics.runs.records import provenance
from attention_dynamics.storage.files import write_json

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
        task: name of the task, for the record.
        labels: names of the labels; none for a regression.
        encoder: the pretrained encoder.
        datasets: "train", "validation..." and "test..." -> examples of the requested splits.
        metrics: scores from logits and labels.
        options: options of the command line.
        write_predictions: writes the predictions of each test split.
    """
    args, folder = options.trainer, Path(options.trainer.output_dir)
    record = run_record(task, encoder, datasets, options)
    with args.main_process_first(local=False):
        if not prepare_output_dir(folder, record, options, Path(encoder.source)):
            return
    model = make_model(kind, labels, encoder, options)
    scores, predictions = train_and_evaluate(model, encoder, datasets, metrics, options)
    if args.process_index == 0:
        write_predictions(predictions)
        if options.papa.sort_calculating:
            settings = fingerprint(encoder, kind, options.data, options.layout)
            write_order(folder, model.lambdas.cpu(), settings)
        write_json(record_path(folder), {**record, **provenance()})
        unfinished_path(folder).unlink()
        if args.save_strategy == "no":  # only a signal saved any
            remove_checkpoints(folder)
        text = ", ".join(f"{name} {scores[name]:.4f}" for name in scores if is_score(name))
        heads = f"{options.papa.static_heads_num} of {record['num_heads']} heads constant"
        print(f"{folder}: {heads}; {text or 'not evaluated'}")


def make_model(kind: str, labels: Sequence[str], encoder: Encoder, options: Options) -> PapaModel:
    """The model of the options: its heads, and its trained parameters.

    Raises InputError for too many constant heads, and for constants or an order of another encoder,
    kind of task, length or layout.
    """
    papa, data = options.papa, options.data
    settings = fingerprint(encoder, kind, data, options.layout)
    shape, total = (encoder.layers, encoder.heads), encoder.layers * encoder.heads
    if papa.static_heads_num > total:
        raise InputError(
            f"--static_heads_num: too many heads for {encoder.name} (expected at most {total}, "
            f"{encoder.layers} layers x {encoder.heads} heads, got {papa.static_heads_num})"
        )
    averages, order = None, []
    if papa.static_heads_dir:
        averages = load_matching_averages(Path(papa.static_heads_dir), *shape, settings)
    if papa.sorting_heads_dir:
        order = load_matching_order(Path(papa.sorting_heads_dir), *shape, settings)
    config = {
        "task": kind,
        "max_length": data.max_seq_length,
        "static_heads": static_heads(order, papa.static_heads_num, encoder.layers),
        "mixed": papa.sort_calculating,
        "pooler": papa.use_freeze_extract_pooler,
    }
    model = load_model(encoder, labels, config)
    if averages is not None:
        model.set_constants(averages)
    model.freeze(encoder=bool(papa.freezing), constants=papa.grad_for_classifier_and_static_only)
    return model


class FiniteTrainer(Trainer):
    """The library's Trainer, stopped by a loss that is not finite."""

    def training_step(self, *args, **kwargs) -> Tensor:
        """The loss of a step, with its gradients; RunError when it is not finite."""
        loss = super().training_step(*args, **kwargs)
        if not loss.isfinite():
            last = last_checkpoint(Path(self.args.output_dir))
            raise RunError(
                f"the loss of step {self.state.global_step + 1} is {loss.item()}: lower "
                f"--learning_rate, or train without --fp16 (last checkpoint: {last or 'none'})"
            )
        return loss


def finite_metrics(metrics: Metrics, prediction: EvalPrediction) -> dict[str, float]:
    """The scores of a prediction; RunError when it is not finite."""
    if not np.isfinite(prediction.predictions).all():
        raise RunError("the predictions are not finite: lower --learning_rate")
    return metrics(prediction.predictions, prediction.label_ids)


def train_and_evaluate(
    model: PapaModel,
    encoder: Encoder,
    datasets: dict[str, Dataset],
    metrics: Metrics,
    options: Options,
) -> tuple[dict[str, float], dict[str, PredictionOutput]]:
    """Train, evaluate and predict as the options say, and write the Trainer's results.

    Returns the scores, and the predictions of each test split. Raises RunError when the loss is not
    finite.
    """
    args, trained = options.trainer, model
    collator = Collator(encoder.tokenizer.pad_token_id, options.layout.drop_unused_positions)
    if options.papa.cache_encoder_states:
        model.to(args.device)
        folder = Path(options.model.cache_dir or Path(args.output_dir).parent) / "encoder_states"
        with args.main_process_first(local=False):
            datasets = {
                name: cache_states(model, examples, collator, folder, not args.disable_tqdm)
                for name, examples in datasets.items()
            }
        trained, collator = HeadOnly(model.head), collate_states
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
        except ImportError as error:  # of an optimizer
            raise InputError(f"the options need a package: {error}") from None
        except KeyError as error:
            if "metric_for_best_model" not in str(error):
                raise
            name = args.metric_for_best_model
            raise InputError(
                f"--metric_for_best_model {name} is not a score of this task"
            ) from None
        if args.save_strategy != "no" and trainer.is_world_process_zero():
            model.save_pretrained(args.output_dir)
            encoder.tokenizer.save_pretrained(args.output_dir)
        write_scores(trainer, "train", {**result.metrics, "train_samples": len(datasets["train"])})
    scores = {}
    if args.do_eval:
        for name, examples in validation.items():
            # The mismatched split is logged as eval_mm_accuracy, so that the scores of the matched
            # one stay apart, and written as eval_accuracy_mm, as by the GLUE scripts.
            mismatched = name.endswith("mismatched")
            prefix = "eval_mm" if mismatched else "eval"
            evaluated = trainer.evaluate(examples, metric_key_prefix=prefix)
            evaluated[f"{prefix}_samples"] = len(examples)
            if mismatched:
                evaluated = {
                    f"eval_{key.removeprefix('eval_mm_')}_mm": value
                    for key, value in evaluated.items()
                    if key.startswith(prefix)
                }
            scores |= evaluated
        write_scores(trainer, "eval", scores)
    predictions = {
        name: trainer.predict(examples, metric_key_prefix="predict")
        for name, examples in datasets.items()
        if name.startswith("test")
    }
    trainer.save_state()
    return scores, predictions


def is_score(name: str) -> bool:
    """Whether an entry of the Trainer's evaluation is a score of the task."""
    others = ("loss", "runtime", "per_second", "samples", "time", "epoch")
    return not name.removesuffix("_mm").endswith(others)


def write_scores(trainer: Trainer, split: str, scores: dict) -> None:
    """Print the scores of a split, and write them to the results."""
    trainer.log_metrics(split, scores)
    trainer.save_metrics(split, scores)

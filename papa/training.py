"""The common part of run_papa_glue.py and run_papa_ner.py: model, Trainer, results.

With ``--sort_calculating`` the order of the heads is learned (Step 2). Otherwise the first heads of
the order are constant, and the head of the task is trained and evaluated (Step 3).
"""

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from arguments import Options
from checkpoints import last_checkpoint, train
from constants import AVERAGES, check_fingerprint, fingerprint, load_order, load_tensor, write_order
from data import Collator
from encoder_cache import HeadOnly, StatesCollator, cache_states
from encoders import Encoder
from models import PapaModel, load_model
from readers import Task
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
    task: Task,
    encoder: Encoder,
    datasets: dict[str, Dataset],
    metrics: Metrics,
    options: Options,
    write_predictions: Callable[[Path, Task, dict[str, PredictionOutput]], None],
) -> None:
    """Make the model, train and evaluate it, and write the results.

    Args:
        kind: "sequence" or "token".
        datasets: "train", "validation..." and "test..." -> examples of the requested splits.
        metrics: scores from logits and labels.
        write_predictions: writes the predictions of each test split to a directory.
    """
    args, papa, folder = options.trainer, options.papa, Path(options.trainer.output_dir)
    record = run_record(task.name or "own", encoder, datasets, options)
    with args.main_process_first(local=False):
        if not prepare_output_dir(record, options, Path(encoder.source)):
            return
    settings = fingerprint(encoder, kind, options.data, options.layout)
    model = make_model(task.labels, encoder, options, settings)
    predictions = train_and_evaluate(model, encoder, datasets, metrics, options)
    if args.process_index == 0:
        write_predictions(folder, task, predictions)
        if papa.sort_calculating:
            write_order(folder, model.lambdas.cpu(), settings)
        write_json(record_path(folder), {**record, **provenance()})
        unfinished_path(folder).unlink()
        if args.save_strategy == "no":  # only a signal saved any
            for path in folder.glob("checkpoint-*"):
                shutil.rmtree(path)
        print(f"{folder}: {papa.static_heads_num} of {record['num_heads']} heads constant")


def make_model(
    labels: Sequence[str], encoder: Encoder, options: Options, settings: dict
) -> PapaModel:
    """The model of the options: its heads, and its trained parameters.

    Raises InputError for a wrong number of constant heads, and for constants or an order that do
    not match the ``settings``, from :func:`constants.fingerprint`.
    """
    papa, length, (layers, heads) = options.papa, options.data.max_seq_length, encoder.shape
    if not 0 <= papa.static_heads_num <= layers * heads:
        raise InputError(
            f"--static_heads_num must be from 0 to {layers * heads} for {encoder.name} ({layers} "
            f"layers x {heads} heads), not {papa.static_heads_num}"
        )
    averages, order = None, []
    if papa.static_heads_dir:
        check_fingerprint(Path(papa.static_heads_dir), settings, "constants")
        path = Path(papa.static_heads_dir, AVERAGES)
        averages = load_tensor(path, layers, heads, length, length)
    if papa.sorting_heads_dir:
        check_fingerprint(Path(papa.sorting_heads_dir), settings, "order")
        order = load_order(Path(papa.sorting_heads_dir), layers, heads)
    static = [[] for _ in range(layers)]
    for layer, head in sorted(order[: papa.static_heads_num]):
        static[layer].append(head)
    config = {
        "task": settings["task_kind"],
        "max_length": length,
        "static_heads": static,
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


def checked_metrics(metrics: Metrics, best: str | None, prediction: EvalPrediction) -> dict:
    """The scores of a prediction.

    Raises RunError when it is not finite, InputError when ``best`` (--metric_for_best_model) is
    none of the scores.
    """
    if not np.isfinite(prediction.predictions).all():
        raise RunError("the predictions are not finite: lower --learning_rate")
    scores = metrics(prediction.predictions, prediction.label_ids)
    if best and best.removeprefix("eval_") not in {"loss", *scores}:
        names = ", ".join(["loss", *scores])
        raise InputError(f"--metric_for_best_model {best} is not a metric here; there are {names}")
    return scores


def train_and_evaluate(
    model: PapaModel,
    encoder: Encoder,
    datasets: dict[str, Dataset],
    metrics: Metrics,
    options: Options,
) -> dict[str, PredictionOutput]:
    """Train, evaluate and predict as the options say, and write the Trainer's results.

    Returns the predictions of each test split.
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
        trained, collator = HeadOnly(model.head), StatesCollator(collator.pad_id, True)
    splits = {kind: [n for n in datasets if n.startswith(kind)] for kind in ("validation", "test")}
    try:
        trainer = FiniteTrainer(
            model=trained,
            args=args,
            train_dataset=datasets.get("train"),
            eval_dataset=datasets[splits["validation"][0]] if args.do_eval else None,
            data_collator=collator,
            compute_metrics=functools.partial(checked_metrics, metrics, args.metric_for_best_model),
        )
    except (ValueError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"the options do not fit this model or machine: {reason}") from None
    results = {}
    if args.do_train:
        results["train"] = train(trainer).metrics | {"train_samples": len(datasets["train"])}
        if args.save_strategy != "no" and trainer.is_world_process_zero():
            model.save_pretrained(args.output_dir)
            encoder.tokenizer.save_pretrained(args.output_dir)
    for name in splits["validation"]:
        # The mismatched split is logged as eval_mm_accuracy, so that the scores of the matched one
        # stay apart, and written as eval_accuracy_mm, as by the GLUE scripts.
        prefix = "eval_mm" if name.endswith("mismatched") else "eval"
        scores = trainer.evaluate(datasets[name], metric_key_prefix=prefix)
        scores[f"{prefix}_samples"] = len(datasets[name])
        if prefix == "eval_mm":
            own = [key for key in scores if key.startswith(prefix)]
            scores = {f"eval_{key.removeprefix('eval_mm_')}_mm": scores[key] for key in own}
        results["eval"] = results.get("eval", {}) | scores
    for split, values in results.items():
        trainer.log_metrics(split, values)
        trainer.save_metrics(split, values)
    predictions = {
        name: trainer.predict(datasets[name], metric_key_prefix="predict")
        for name in splits["test"]
    }
    trainer.save_state()
    return predictions

"""Classify sentences with an encoder some of whose heads are constant (GLUE, or your own files).

The order of heads (Step 2), then the results for a number of constant heads (Step 3):

    python run_papa_glue.py --model_name_or_path bert-base-uncased --task_name cola --do_train \\
        --do_eval --max_seq_length 64 --per_device_train_batch_size 16 --num_train_epochs 15 \\
        --learning_rate 2e-5 --lr_scheduler_type constant --eval_strategy epoch \\
        --save_strategy no --use_papa_preprocess --use_freeze_extract_pooler true \\
        --static_heads_dir constants --sort_calculating true --output_dir sorted

    python run_papa_glue.py ... --grad_for_classifier_only true --static_heads_num 72 \\
        --static_heads_dir constants --sorting_heads_dir sorted --output_dir results

Reads the task from the hub, from a folder of GLUE tsv files (--task_dir) or from csv, tsv or json
files (--train_file, --validation_file, --test_file), and the constants of
run_papa_glue_avgs_creator.py. Writes all_results.json, eval_results.json, trainer_state.json and
run.json to --output_dir; with --sort_calculating also lambdas.npy and sorted_heads.json; with
--do_predict predict_results_{task}.txt; the model, unless --save_strategy is no.
"""

import functools
from pathlib import Path

import arguments
from data import encode_sequences
from encoders import open_encoder
from glue import SUBMITS_NAMES, load_sequence_task
from metrics import metrics
from readers import Task
from training import run
from transformers.trainer_utils import PredictionOutput

from attention_dynamics.cli import run_script
from attention_dynamics.device import set_seed
from attention_dynamics.storage.files import write_text


def parse_args(argv=None) -> arguments.Options:
    return arguments.parse_run(__doc__, argv)


def write_predictions(folder: Path, task: Task, predicted: dict[str, PredictionOutput]) -> None:
    """Write a line per test example in the format of submissions to GLUE.

    That is the label's number, but its name for mnli, qnli, rte and your own task, or the score of
    stsb, from 0 to 5.
    """
    names = task.labels
    if task.name and task.name not in SUBMITS_NAMES:
        names = range(len(task.labels))
    for split, output in predicted.items():
        name = (task.name or "own") + ("-mm" if split.endswith("mismatched") else "")
        if task.labels:
            values = [names[number] for number in output.predictions.argmax(axis=1)]
        else:
            scores = output.predictions[:, 0]
            values = [f"{value:.3f}" for value in (scores.clip(0, 5) if task.name else scores)]
        lines = "".join(f"{index}\t{value}\n" for index, value in enumerate(values))
        write_text(folder / f"predict_results_{name}.txt", "index\tprediction\n" + lines)


def main(argv=None) -> None:
    options = parse_args(argv)
    set_seed(options.trainer.seed)
    encoder = open_encoder(options.model)
    task = load_sequence_task(options.data, options.model.cache_dir, options.splits)
    run(
        "sequence",
        task,
        encoder,
        encode_sequences(task, encoder.tokenizer, options.data, options.layout),
        functools.partial(metrics, task.name),
        options,
        write_predictions,
    )


if __name__ == "__main__":
    run_script(main)

"""Label words with an encoder some of whose heads are constant (entities, parts of speech, chunks).

The order of heads (Step 2), then the results for a number of constant heads (Step 3):

    python run_papa_ner.py --model_name_or_path bert-base-uncased --task_name ner \\
        --dataset_name conll2003 --do_train --do_eval --max_seq_length 64 \\
        --per_device_train_batch_size 16 --num_train_epochs 15 --learning_rate 2e-5 \\
        --lr_scheduler_type constant --eval_strategy epoch --save_strategy no \\
        --use_papa_preprocess --use_freeze_extract_pooler true --static_heads_dir constants \\
        --sort_calculating true --output_dir sorted

    python run_papa_ner.py ... --grad_for_classifier_only true --static_heads_num 72 \\
        --static_heads_dir constants --sorting_heads_dir sorted --output_dir results

Reads the task from the hub (--dataset_name) or from CoNLL, CoNLL-U or json files (--train_file,
--validation_file, --test_file), and the constants of run_papa_ner_avgs_creator.py. Writes
all_results.json, eval_results.json, trainer_state.json and run.json to --output_dir; with
--sort_calculating also lambdas.npy and sorted_heads.json; with --do_predict predictions.txt; the
model, unless --save_strategy is no.
"""

import functools
from pathlib import Path

import arguments
from data import encode_tokens
from encoders import open_encoder
from metrics import IGNORED, token_metrics
from readers import Task
from token_tasks import load_token_task
from training import run
from transformers.trainer_utils import PredictionOutput

from attention_dynamics.cli import run_script
from attention_dynamics.device import set_seed
from attention_dynamics.storage.files import write_text


def parse_args(argv=None) -> arguments.Options:
    return arguments.parse_run(__doc__, argv, arguments.TokenArguments)


def write_predictions(folder: Path, task: Task, predicted: dict[str, PredictionOutput]) -> None:
    """Write a line per sentence of the test split, the labels of its words (if not cut off)."""
    for output in predicted.values():
        rows = zip(output.predictions.argmax(axis=2), output.label_ids, strict=True)
        lines = [" ".join(task.labels[number] for number in row[of != IGNORED]) for row, of in rows]
        write_text(folder / "predictions.txt", "".join(f"{line}\n" for line in lines))


def main(argv=None) -> None:
    options = parse_args(argv)
    tokens = options.tokens
    set_seed(options.trainer.seed)
    encoder = open_encoder(options.model)
    task = load_token_task(options.data, tokens, options.model.cache_dir, options.splits)
    datasets = encode_tokens(
        task, encoder.tokenizer, options.data, options.layout, tokens.label_all_tokens
    )
    entity_level = tokens.return_entity_level_metrics
    metrics = functools.partial(
        token_metrics, task.name, names=task.labels, entity_level=entity_level
    )
    run("token", task, encoder, datasets, metrics, options, write_predictions)


if __name__ == "__main__":
    run_script(main)

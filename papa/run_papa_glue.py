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
from data import SequenceTask, encode_sequences, load_sequence_task
from encoders import open_encoder
from tasks import metrics
from training import run
from transformers.trainer_utils import PredictionOutput

from attention_dynamics.cli import run_script
from attention_dynamics.device import set_seed
from attention_dynamics.storage.files import write_text


def parse_args(argv=None) -> arguments.Options:
    kinds = (
        arguments.ModelArguments,
        arguments.DataArguments,
        arguments.LayoutArguments,
        arguments.PapaArguments,
        arguments.TrainerArguments,
    )
    parser, *parsed = arguments.parse(__doc__, kinds, argv)
    options = arguments.Options(*parsed)
    arguments.check_options(parser, options)
    return options


def write_predictions(
    folder: Path, task: SequenceTask, predicted: dict[str, PredictionOutput]
) -> None:
    """Write a line per test example, its label or value, as GLUE's server takes it."""
    for split, output in predicted.items():
        name = (task.name or "own") + ("-mm" if split.endswith("mismatched") else "")
        if task.labels:
            values = [task.labels[number] for number in output.predictions.argmax(axis=1)]
        else:
            values = [f"{value:.3f}" for value in output.predictions[:, 0]]
        lines = "".join(f"{place}\t{value}\n" for place, value in enumerate(values))
        write_text(folder / f"predict_results_{name}.txt", "index\tprediction\n" + lines)


def main(argv=None) -> None:
    options = parse_args(argv)
    data, layout = options.data, options.layout
    set_seed(options.trainer.seed)
    encoder = open_encoder(options.model)
    task = load_sequence_task(
        data.task_name,
        files=options.files,
        task_dir=data.task_dir,
        dataset_name=data.dataset_name,
        dataset_config_name=data.dataset_config_name,
        cache_dir=options.model.cache_dir,
        splits=options.splits,
    )
    datasets = {
        name: encode_sequences(
            split,
            encoder.tokenizer,
            data.max_seq_length,
            papa_layout=layout.use_papa_preprocess,
            pad_to_max_length=data.pad_to_max_length,
            published_token_types=layout.published_token_types,
            max_samples=data.max_samples(name),
        )
        for name, split in task.splits.items()
    }
    run(
        "sequence",
        task.name or "own",
        task.labels,
        encoder,
        datasets,
        functools.partial(metrics, task.name),
        options,
        functools.partial(write_predictions, Path(options.trainer.output_dir), task),
    )


if __name__ == "__main__":
    run_script(main)

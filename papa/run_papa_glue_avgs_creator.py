"""Average the attention of every head over a task's training sentences: the constants (Step 1).

    python run_papa_glue_avgs_creator.py --model_name_or_path bert-base-uncased --task_name cola \\
        --max_length 64 --per_device_train_batch_size 8 --output_dir constants \\
        --use_papa_preprocess true --pad_to_max_length

Reads the task from the hub, from a folder of GLUE tsv files (--task_dir) or from csv, tsv or json
files (--train_file). Writes avgs.pt (layer, head, L, L), attention_sums.pt of the same shape and
attention_patterns_sums.pt (L, L), all float32, and about.json.
"""

import arguments
from constants import make_constants
from data import encode_sequences, load_sequence_task
from encoders import open_encoder

from attention_dynamics.cli import run_script
from attention_dynamics.device import set_seed


def parse_args(argv=None) -> list:
    kinds = (
        arguments.ModelArguments,
        arguments.DataArguments,
        arguments.LayoutArguments,
        arguments.AveragesArguments,
    )
    parser, *parsed = arguments.parse(__doc__, kinds, argv)
    arguments.check_counts(parser, *parsed)
    return parsed


def main(argv=None) -> None:
    model_args, data, layout, args = parse_args(argv)
    set_seed(args.seed)
    encoder = open_encoder(model_args)
    task = load_sequence_task(
        data.task_name,
        files={"train": data.train_file},
        task_dir=data.task_dir,
        dataset_name=data.dataset_name,
        dataset_config_name=data.dataset_config_name,
        cache_dir=model_args.cache_dir,
        splits=["train"],
    )
    dataset = encode_sequences(
        task.splits["train"],
        encoder.tokenizer,
        data.max_seq_length,
        papa_layout=layout.use_papa_preprocess,
        pad_to_max_length=data.pad_to_max_length,
        published_token_types=layout.published_token_types,
        max_samples=data.max_train_samples,
    )
    make_constants(encoder, "sequence", dataset, data, layout, args)


if __name__ == "__main__":
    run_script(main)

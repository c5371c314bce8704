"""Average the attention of every head over the training sentences of a token task (Step 1).

    python run_papa_ner_avgs_creator.py --model_name_or_path bert-base-uncased --task_name ner \\
        --dataset_name conll2003 --max_length 64 --per_device_train_batch_size 8 \\
        --output_dir constants --use_papa_preprocess true --pad_to_max_length

Reads the task from the hub (--dataset_name) or from a CoNLL, CoNLL-U or json file (--train_file).
Writes avgs.pt (layer, head, L, L), attention_sums.pt of the same shape and
attention_patterns_sums.pt (L, L), all float32, and about.json.
"""

import arguments
from constants import make_constants
from data import encode_tokens, load_token_task
from encoders import open_encoder

from attention_dynamics.cli import run_script
from attention_dynamics.device import set_seed


def parse_args(argv=None) -> list:
    kinds = (
        arguments.ModelArguments,
        arguments.DataArguments,
        arguments.LayoutArguments,
        arguments.AveragesArguments,
        arguments.TokenArguments,
    )
    parser, *parsed = arguments.parse(__doc__, kinds, argv)
    arguments.check_counts(parser, *parsed)
    return parsed


def main(argv=None) -> None:
    model_args, data, layout, args, tokens = parse_args(argv)
    set_seed(args.seed)
    encoder = open_encoder(model_args)
    task = load_token_task(
        data.task_name or "ner",
        files={"train": data.train_file},
        dataset_name=data.dataset_name,
        dataset_config_name=data.dataset_config_name,
        text_column_name=tokens.text_column_name,
        label_column_name=tokens.label_column_name,
        cache_dir=model_args.cache_dir,
        splits=["train"],
    )
    dataset = encode_tokens(
        task.splits["train"],
        task.labels,
        encoder.tokenizer,
        data.max_seq_length,
        papa_layout=layout.use_papa_preprocess,
        pad_to_max_length=data.pad_to_max_length,
        label_all_tokens=tokens.label_all_tokens,
        max_samples=data.max_train_samples,
    )
    make_constants(encoder, "token", dataset, data, layout, args)


if __name__ == "__main__":
    run_script(main)

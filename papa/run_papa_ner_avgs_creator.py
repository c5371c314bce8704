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
from data import encode_tokens
from encoders import open_encoder
from token_tasks import load_token_task

from attention_dynamics.cli import run_script
from attention_dynamics.device import set_seed


def parse_args(argv=None) -> tuple:
    return arguments.parse_averages(__doc__, argv, arguments.TokenArguments)


def main(argv=None) -> None:
    model, data, layout, args, tokens = parse_args(argv)
    set_seed(args.seed)
    encoder = open_encoder(model)
    task = load_token_task(data, tokens, model.cache_dir, ["train"])
    datasets = encode_tokens(task, encoder.tokenizer, data, layout, tokens.label_all_tokens)
    make_constants(encoder, "token", datasets["train"], data, layout, args)


if __name__ == "__main__":
    run_script(main)

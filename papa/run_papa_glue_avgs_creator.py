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
from data import encode_sequences
from encoders import open_encoder
from glue import load_sequence_task

from attention_dynamics.cli import run_script
from attention_dynamics.device import set_seed


def parse_args(argv=None) -> tuple:
    return arguments.parse_averages(__doc__, argv)


def main(argv=None) -> None:
    model, data, layout, args = parse_args(argv)
    set_seed(args.seed)
    encoder = open_encoder(model)
    task = load_sequence_task(data, model.cache_dir, ["train"])
    datasets = encode_sequences(task, encoder.tokenizer, data, layout)
    make_constants(encoder, "sequence", datasets["train"], data, layout, args)


if __name__ == "__main__":
    run_script(main)

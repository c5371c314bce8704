"""Draw the course of training: agreement and accuracy as figures, sentence pairs as a page.

    python plot_dynamics.py --dataset multi30k
    python plot_dynamics.py --dataset toy --split train --metric "top 5% match" --examples 3 17
    python plot_dynamics.py --dataset multi30k --perf bleu

Reads outputs/{dataset}_logs.pkl (our format or the published layout), the baselines of
embedding_beta.py and ibm1_beta.py where they exist, the pieces of data/, and the true alignment
where data/ has one (toy). Writes

    {out_dir}/{dataset}_{split}_{acc|bleu}_{top5|tau}.svg, .png, .csv
                                            figure and its numbers
    {out_dir}/{dataset}_matrices.html       sentence pairs with α and β^uf over training

and prints their paths. The page needs no network; it opens in any browser; append #iteration=2000
to the address to open it at that checkpoint. --examples takes positions in the split of the logs,
from 0. --perf bleu needs logs with BLEU at each checkpoint (eval_dump.py --eval_bleu).
"""

import argparse

from alignment import true_cells
from baselines import load_inputs
from data import load_dataset

from attention_dynamics.analysis.inputs import AnalysisInputs
from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.names import PERFORMANCES
from attention_dynamics.reporting.plot import add_plot_options, plot
from attention_dynamics.runs.paths import check_name


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_plot_options(parser, " from those of 5 to 20 pieces")
    parser.add_argument(
        "--perf",
        choices=tuple(PERFORMANCES["translation"]),
        default="acc",
        help="performance that picks the gold iteration and is drawn (default: %(default)s)",
    )
    return parser.parse_args(argv)


def main(argv=None) -> None:
    args = parse_args(argv)
    check_name(args.dataset)

    def page_options(inputs: AnalysisInputs) -> dict:
        dataset = load_dataset(args.dataset)
        inputs.check_data(dataset.checksum)
        is_val = args.split == "val"  # the truth is known for validation pairs only
        return {
            "words": [dataset.pieces.id_to_piece(index) for index in range(dataset.vocab)],
            "marked": true_cells(args.dataset, inputs.logs, dataset.pieces) if is_val else None,
        }

    performance = PERFORMANCES["translation"][args.perf]
    stem = f"{args.dataset}_{args.split}_{args.perf}"
    page = f"{args.dataset}_matrices.html"
    plot(args, performance, stem, page, load_inputs, page_options)


if __name__ == "__main__":
    run_script(main)

"""Draw the course of training: agreement and accuracy as figures, single sentences as a page.

    python plot_dynamics.py --dataset Furd
    python plot_dynamics.py --dataset toy --split train --metric "top 5% match" --examples 3 17

Reads outputs/{dataset}_logs.pkl (our format or the published layout), the baselines of
embedding_beta.py and logistic_beta.py where they exist, and the words in data/{dataset}_train.json.
Writes

    {out_dir}/{dataset}_{split}_{top5|tau}.svg, .png, .csv   figure and its numbers
    {out_dir}/{dataset}_tokens.html                          sentences with α and β^uf over training

and prints their paths. The page needs no network; it opens in any browser; append
#iteration=250 to the address to open it at that checkpoint. --examples takes positions in the
split, from 0; for val these are positions in data/{dataset}_test.json.
"""

import argparse

from baselines import load_inputs
from data import canonical_name, load_dataset
from planted import planted_mask

from attention_dynamics.analysis.inputs import AnalysisInputs
from attention_dynamics.cli import run_script, script_parser
from attention_dynamics.names import PERFORMANCES
from attention_dynamics.reporting.plot import add_plot_options, plot

SENTIMENT = ("negative", "positive")
LABEL_NAMES = {
    "IMDB": SENTIMENT,
    "Furd": SENTIMENT,
    "Yelp": SENTIMENT,
    "Amzn": SENTIMENT,
    "AG_News": ("World", "Business"),
    "Newsgroups": ("baseball", "hockey"),
    "SMS": ("ham", "spam"),
}


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_plot_options(parser, ", half of each label")
    return parser.parse_args(argv)


def main(argv=None) -> None:
    args = parse_args(argv)
    args.dataset = canonical_name(args.dataset)

    def page_options(inputs: AnalysisInputs) -> dict:
        dataset = load_dataset(args.dataset)
        inputs.check_data(dataset.checksum)
        return {
            "words": dataset.vocabulary,
            "beta_sign": inputs.beta_sign,
            "label_names": LABEL_NAMES.get(args.dataset, ("label 0", "label 1")),
            "marked": planted_mask(args.dataset, inputs.logs),
        }

    performance = PERFORMANCES["classification"]["acc"]
    stem = f"{args.dataset}_{args.split}"
    plot(args, performance, stem, f"{args.dataset}_tokens.html", load_inputs, page_options)


if __name__ == "__main__":
    run_script(main)

"""Draw the course of training: agreement and accuracy as figures, single sentences as a page.

    python plot_dynamics.py --dataset Furd
    python plot_dynamics.py --dataset toy --split train --metric "top 5% match" --examples 3 17

Reads outputs/{dataset}_logs.pkl (our format or the published layout), the baselines of
embedding_beta.py and logistic_beta.py where they exist, and the words in data/{dataset}_train.json.
Writes

    {out_dir}/{dataset}_{split}_{top5|tau}.svg, .png, .csv   figure and its numbers (method A.1)
    {out_dir}/{dataset}_tokens.html                          sentences with α and β^uf over training

and prints their paths. The page needs no network; it opens in any browser, at one checkpoint with
#iteration=250 behind its address. --examples counts the examples of the split from 0, for val as in
data/{dataset}_test.json.
"""

import argparse
from pathlib import Path

from data import canonical_name, load_dataset
from measured import ACCURACIES, beta_sign, load_inputs, summarise_measured
from planted import planted_mask

from attention_dynamics.cli import InputError, count, run_script, script_parser, seed
from attention_dynamics.names import METRICS, PERFORMANCES, SHORT
from attention_dynamics.reporting.figures import plot_dynamics
from attention_dynamics.reporting.viewer import choose_examples, examples_at, write_token_page
from attention_dynamics.storage.files import check_writable

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
    parser.add_argument("--dataset", required=True, help="name in outputs/, such as Furd or toy")
    parser.add_argument(
        "--split", choices=tuple(ACCURACIES), default="val", help="examples (default: %(default)s)"
    )
    parser.add_argument("--metric", choices=METRICS, help="of agreement (default: one figure each)")
    parser.add_argument(
        "--include_normal",
        action="store_true",
        help="draw agr_normal too, the KTIW of a run with attention",
    )
    parser.add_argument(
        "--num_examples",
        type=count,
        help="sentences on the page, drawn at random, half of each label (default: 12)",
    )
    parser.add_argument(
        "--examples", type=int, nargs="+", help="numbers of the sentences on the page instead"
    )
    parser.add_argument(
        "--embed_dim",
        type=count,
        default=256,
        help="of the embedding baseline to read (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=seed,
        default=0,
        help="of the sentences, shuffles and bootstrap (default: %(default)s)",
    )
    parser.add_argument(
        "--out_dir", default="figures", help="folder to write to (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    if args.examples and args.num_examples is not None:
        parser.error("--examples names the sentences, so --num_examples has nothing to choose")
    if args.num_examples is None:
        args.num_examples = 12
    return args


def main(argv=None) -> None:
    args = parse_args(argv)
    args.dataset = canonical_name(args.dataset)
    perf, perf_label = PERFORMANCES["classification"]["acc"].splits[args.split]
    out_dir = Path(args.out_dir)
    page = out_dir / f"{args.dataset}_tokens.html"
    check_writable(page)

    measured = load_inputs(args.dataset, args.embed_dim)
    for line in measured.missing:
        print(line)
    logs = measured.logs
    if args.examples:
        examples = examples_at(logs, args.split, args.examples)
    else:
        examples = choose_examples(logs, args.split, args.num_examples, args.seed)

    words = load_dataset(args.dataset)
    if measured.data is not None and measured.data != words.checksum:
        raise InputError(
            f"the logs of {args.dataset} were made from other data than data/ holds now: prepare "
            "that data again, or train and dump again"
        )

    # All of them before anything is written: they may refuse the logs.
    metrics = [args.metric] if args.metric else METRICS
    results = {m: summarise_measured(measured, m, args.split, args.seed) for m in metrics}
    write_token_page(
        page,
        logs,
        words.vocabulary,
        examples,
        beta_sign(measured.logs),
        perf=perf,
        perf_label=perf_label,
        label_names=LABEL_NAMES.get(args.dataset, ("label 0", "label 1")),
        marked=planted_mask(args.dataset, logs),
    )
    print(page)
    for metric, result in results.items():
        paths = plot_dynamics(
            out_dir / f"{args.dataset}_{args.split}_{SHORT[metric]}",
            result,
            title=f"{args.dataset}, {args.split} examples",
            metric=metric,
            perf_label=perf_label,
            include_normal=args.include_normal,
        )
        for path in paths:
            print(path)


if __name__ == "__main__":
    run_script(main)

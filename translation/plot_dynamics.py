"""Draw the course of training: agreement and accuracy as figures, sentence pairs as a page.

    python plot_dynamics.py --dataset multi30k
    python plot_dynamics.py --dataset toy --split train --metric "top 5% match" --examples 3 17
    python plot_dynamics.py --dataset multi30k --perf bleu

Reads outputs/{dataset}_logs.pkl (our format or the published layout), the baselines of
embedding_beta.py and ibm1_beta.py where they exist, the pieces of data/, and the true alignment
where data/ has one (toy). Writes

    {out_dir}/{dataset}_{split}_{acc|bleu}_{top5|tau}.svg, .png, .csv
                                            figure and its numbers (method A.2)
    {out_dir}/{dataset}_matrices.html       sentence pairs with α and β^uf over training

and prints their paths. The page needs no network; it opens in any browser, at one checkpoint with
#iteration=2000 behind its address. --examples counts the pairs of the split from 0, as the logs
hold them. --perf bleu needs logs with BLEU at each checkpoint (eval_dump.py --eval_bleu).
"""

import argparse
from pathlib import Path

from alignment import true_cells
from data import load_dataset
from measured import SPLITS, load_inputs, summarise_measured

from attention_dynamics.cli import InputError, count, run_script, script_parser, seed
from attention_dynamics.names import METRICS, PERFORMANCES, SHORT
from attention_dynamics.reporting.figures import plot_dynamics
from attention_dynamics.reporting.viewer import choose_examples, examples_at, write_matrix_page
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.files import check_writable


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--dataset", required=True, help="name in outputs/, such as toy")
    parser.add_argument(
        "--split", choices=SPLITS, default="val", help="pairs (default: %(default)s)"
    )
    parser.add_argument("--metric", choices=METRICS, help="of agreement (default: one figure each)")
    parser.add_argument(
        "--perf",
        choices=("acc", "bleu"),
        default="acc",
        help="performance that picks the gold iteration and is drawn (default: %(default)s)",
    )
    parser.add_argument(
        "--include_normal",
        action="store_true",
        help="draw agr_normal too, the KTIW of a run with attention",
    )
    parser.add_argument(
        "--num_examples",
        type=count,
        help="pairs on the page, drawn at random from those of 5 to 20 pieces (default: 12)",
    )
    parser.add_argument(
        "--examples", type=int, nargs="+", help="numbers of the pairs on the page instead"
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
        help="of the pairs, shuffles and bootstrap (default: %(default)s)",
    )
    parser.add_argument(
        "--out_dir", default="figures", help="folder to write to (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    if args.examples and args.num_examples is not None:
        parser.error("--examples names the pairs, so --num_examples has nothing to choose")
    if args.num_examples is None:
        args.num_examples = 12
    return args


def main(argv=None) -> None:
    args = parse_args(argv)
    check_name(args.dataset)
    performance = PERFORMANCES["translation"][args.perf]
    perf, perf_label = performance.splits[args.split]
    out_dir = Path(args.out_dir)
    page = out_dir / f"{args.dataset}_matrices.html"
    check_writable(page)

    measured = load_inputs(args.dataset, args.embed_dim)
    for line in measured.missing:
        print(line)
    logs = measured.logs
    if args.examples:
        examples = examples_at(logs, args.split, args.examples)
    else:
        examples = choose_examples(logs, args.split, args.num_examples, args.seed)

    data = load_dataset(args.dataset)
    if measured.data is not None and measured.data != data.checksum:
        raise InputError(
            f"the logs of {args.dataset} were made from other data than data/ holds now: prepare "
            "that data again, or train and dump again"
        )
    pieces = [data.pieces.id_to_piece(index) for index in range(data.vocab)]

    # The truth is known of validation pairs alone.
    marked = true_cells(args.dataset, logs, data.pieces) if args.split == "val" else None

    # All of them before anything is written: they may refuse the logs.
    metrics = [args.metric] if args.metric else METRICS
    results = {
        m: summarise_measured(measured, m, args.split, args.perf, args.seed) for m in metrics
    }
    write_matrix_page(
        page,
        logs,
        pieces,
        examples,
        perf=perf,
        perf_label=perf_label,
        unit=performance.unit,
        marked=marked,
    )
    print(page)
    for metric, result in results.items():
        paths = plot_dynamics(
            out_dir / f"{args.dataset}_{args.split}_{args.perf}_{SHORT[metric]}",
            result,
            title=f"{args.dataset}, {args.split} pairs",
            metric=metric,
            perf_label=perf_label,
            percent=True,
            unit=performance.unit,
            include_normal=args.include_normal,
        )
        for path in paths:
            print(path)


if __name__ == "__main__":
    run_script(main)

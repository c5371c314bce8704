"""Turn a public dataset, or your own texts, into data/{dataset}_{train,test}.json.

    python prepare_data.py                                              # the generated corpus "toy"
    python prepare_data.py --dataset IMDB --source aclImdb_v1.tar.gz
    python prepare_data.py --dataset Furd --source trainDevTestTrees_PTB.zip
    python prepare_data.py --dataset AG_News --source ag_news_csv.tar.gz
    python prepare_data.py --dataset Newsgroups --source 20news-bydate.tar.gz
    python prepare_data.py --dataset Yelp --source yelp_review_polarity_csv.tgz
    python prepare_data.py --dataset Amzn --source amazon_review_polarity_csv.tgz
    python prepare_data.py --dataset SMS --source smsspamcollection.zip
    python prepare_data.py --dataset IMDB --download                    # from the Hugging Face hub
    python prepare_data.py --dataset mine --train my_train.csv --test my_test.csv

--source is a file, a directory or an archive (.zip, .tar, .tgz, ...), read without being unpacked;
files may be gzipped. Formats of the public datasets:

  IMDB        aclImdb/{train,test}/{pos,neg}/ID_RATING.txt; pos is 1
  Furd        Stanford Sentiment Treebank: train.txt and test.txt of trees; neutral sentences are
              left out; positive is 1
  AG_News     train.csv and test.csv of class,title,description; World is 0, Business 1, the others
              are left out
  Newsgroups  20news-bydate-{train,test}/rec.sport.{baseball,hockey}/NUMBER; headers, footers and
              quotes are removed; hockey is 1
  Yelp        train.csv and test.csv of class,text; class 2 (4 and 5 stars) is 1
  Amzn        train.csv and test.csv of class,title,text; class 2 (4 and 5 stars) is 1
  SMS         SMSSpamCollection: ham or spam, TAB, message; spam is 1; split 80/20 by --seed

--train and --test read your own texts from one file each: CSV, TSV (quotes are text) or JSON lines
with --text_column and --label_column.

Writes data/{dataset}_{train,test}.json, {"vocab": [word, ...], "XY": [[[word index, ...], label],
...]} (the vocabulary is the same in both: words by descending training count, ties by first
occurrence, then those only in test), data/{dataset}_about.json (source, checksum, counts),
data/w2v.pkl (word -> vector, of --word_vectors; empty if there is none), and for toy
data/toy_truth.json. Only --download uses the network.
"""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from data import DATASETS, canonical_name, data_paths
from preparation.columns import read_columns
from preparation.corpus import Corpus
from preparation.sources import REPOSITORIES, SPLITS, read_hub, read_source
from preparation.tokenizer import tokenize
from preparation.toy import make_toy
from preparation.vectors import read_vectors
from tqdm import tqdm

from attention_dynamics.cli import InputError, add_options, run_script, script_parser, seed
from attention_dynamics.preparation import (
    TOY,
    ReadReport,
    add_source_options,
    check_source_options,
    download_revision,
    empty_warning,
    file_facts,
    incomplete_warning,
    length_columns,
    reserve_outputs,
    shared_warning,
    summarize_preparation,
)
from attention_dynamics.runs.records import locked
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.files import read_json, write_json, write_pickle
from attention_dynamics.storage.pickles import load_pickle

VECTORS = Path("data") / "w2v.pkl"

# The evaluation takes this many test examples from the start of the file (--test_set_size).
_EVALUATED = 4000


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--dataset",
        default=TOY,
        metavar="NAME",
        help=f"{', '.join(DATASETS)} (SNS is SMS, SST is Furd), toy, or a new name with --train "
        "and --test (default: %(default)s)",
    )
    add_source_options(parser, "examples")
    parser.add_argument("--train", metavar="FILE", help="training texts: csv, tsv or jsonl")
    parser.add_argument("--test", metavar="FILE", help="test texts, in the same format")
    header = "in --train and --test: a name in the header, or a 0-based number if there is none"
    add_options(
        parser,
        text_column=(str, "text", f"column of the texts {header}"),
        label_column=(str, "label", "column of the labels, by name or number"),
        seed=(seed, 0, "random seed (split, order, toy corpus)"),
    )
    parser.add_argument(
        "--labels",
        nargs=2,
        metavar=("ZERO", "ONE"),
        help="values of the label column that mean 0 and 1 (default: 0 and 1, or else the two "
        "values in the file, sorted)",
    )
    parser.add_argument(
        "--word_vectors",
        metavar="FILE",
        help="GloVe, fastText or word2vec text; vectors of the words of all datasets in data/ are "
        "stored in data/w2v.pkl",
    )
    args = parser.parse_args(argv)
    args.dataset = canonical_name(args.dataset)
    given = check_source_options(args, parser)
    if bool(args.train) != bool(args.test):
        parser.error("--train and --test go together")
    if args.dataset in DATASETS and not given:
        parser.error(
            f"--dataset {args.dataset} needs --source PATH (its public distribution), --download, "
            "or --train FILE and --test FILE"
        )
    if args.dataset not in (TOY, *DATASETS) and not args.train:
        parser.error(
            f"unknown --dataset {args.dataset}: known are {', '.join(DATASETS)} and toy; your own "
            "texts need --train FILE and --test FILE"
        )
    return args


def main(argv=None) -> None:
    """Read, tokenize, check, report, write."""
    args = parse_args(argv)
    about_path = Path("data") / f"{args.dataset}_about.json"
    with contextlib.ExitStack() as stack:
        paths = [about_path, *data_paths(args.dataset)]
        stack.enter_context(reserve_outputs(__file__, about_path, paths, args.overwrite))
        if args.word_vectors:
            stack.enter_context(locked(VECTORS))
        _prepare(args, argv, about_path)


def _prepare(args: argparse.Namespace, argv: list[str] | None, about_path: Path) -> None:
    report = ReadReport()
    toy = make_toy(args.seed) if args.dataset == TOY else None
    origin, examples = ({"source": None}, toy.examples) if toy else _open(args, report)
    corpus = Corpus(tqdm(examples, args.dataset, unit=" examples", disable=None))
    warnings = _check(corpus, report, args)
    repeated, shared = corpus.duplicates()
    if shared.any():
        warnings.append(shared_warning(shared.sum(), "examples", "test", args.drop_duplicates))
    if args.drop_duplicates:
        corpus.drop_train(shared)
        _require_both_labels(corpus, "without those that are in the test set, ")
    counts = corpus.sort_words()
    vectors = _merge_vectors(args, corpus.words)
    if vectors and not args.word_vectors:
        report.notes.append(
            f"{VECTORS} already exists and is kept; --word_vectors FILE adds the words it lacks"
        )

    splits = [
        {
            "split": split,
            "examples": len(corpus.labels[split]),
            **dict(zip(("label 0", "label 1"), corpus.label_counts(split), strict=True)),
            **length_columns(corpus.lengths[split], "tokens"),
        }
        for split in SPLITS
    ]
    has_vector = np.array([word in vectors for word in corpus.words], dtype=bool)
    totals = {
        "words": len(corpus.words),
        "words in training": int((counts > 0).sum()),
        "words more than twice in training": int((counts > 2).sum()),
        "words with a vector": int(has_vector.sum()),
        "share of training tokens with a vector": float(
            counts[has_vector].sum() / max(1, counts.sum())
        ),
        "examples without a token": int(sum((corpus.lengths[s] == 0).sum() for s in SPLITS)),
        "training examples that repeat an earlier one": repeated,
        "training examples that are in test": int(shared.sum()),
    }
    origin["word_vectors"] = file_facts(args.word_vectors) if args.word_vectors else None
    about = summarize_preparation(args, argv, origin, splits, totals, report.notes, warnings)

    about_path.unlink(missing_ok=True)  # until all files are written, the set is not complete
    for split, path in zip(SPLITS, data_paths(args.dataset), strict=True):
        corpus.write(path, split)
    if toy:
        write_json(Path("data") / "toy_truth.json", toy.truth, None)
    if args.word_vectors or not VECTORS.exists():
        write_pickle(VECTORS, vectors)
    write_json(about_path, about)


def _open(args: argparse.Namespace, report: ReadReport) -> tuple[dict, Iterator]:
    """The origin of the texts, for about.json, and (split, tokens, label) of each example."""
    if args.download:
        revision = download_revision(REPOSITORIES[args.dataset][0], args.revision, report)
        origin = {"revision": revision}
        examples = read_hub(args.dataset, revision, args.seed, report)
    elif args.source:
        source = Source(args.source)
        origin = {"source": file_facts(source.path)}
        examples = read_source(args.dataset, source, args.seed, report)
    else:
        parts = {"train": Source(args.train), "test": Source(args.test)}
        origin = {split: file_facts(source.path) for split, source in parts.items()}
        columns = args.text_column, args.label_column
        examples = read_columns(parts, columns, args.labels, report)
    return origin, ((split, tokenize(text), label) for split, text, label in examples)


def _check(corpus: Corpus, report: ReadReport, args: argparse.Namespace) -> list[str]:
    """Warnings about the examples; InputError if no classifier can be trained on them."""
    counts, warnings = {}, []
    for split in SPLITS:
        lengths = corpus.lengths[split]
        if not len(lengths):
            raise InputError(
                f"{args.dataset} has no {split} example (after filtering): check its files"
            )
        if empty := empty_warning(split, int((lengths == 0).sum()), len(lengths), "documents"):
            warnings.append(empty)
        counts[split] = corpus.label_counts(split)
    _require_both_labels(corpus, "")
    counts["all"] = tuple(map(sum, zip(*counts.values(), strict=True)))
    for split, expected in report.expected.items():
        if counts[split] != expected:
            warnings.append(incomplete_warning(split, _shown(counts[split]), _shown(expected)))
    evaluated = corpus.labels["test"][:_EVALUATED]
    if len(set(evaluated.tolist())) == 1:
        warnings.append(
            f"the first {len(evaluated):,} test examples, which are evaluated, all have the label "
            f"{evaluated[0]}: shuffle the test file"
        )
    return warnings


def _require_both_labels(corpus: Corpus, when: str) -> None:
    if not all(corpus.label_counts("train")):
        counts = _shown(corpus.label_counts("train"))
        raise InputError(f"{when}the training set has {counts}: a classifier needs both")


def _shown(counts: tuple[int, int]) -> str:
    return f"{sum(counts):,} examples ({counts[0]:,} of label 0, {counts[1]:,} of label 1)"


def _merge_vectors(args: argparse.Namespace, words: list[str]) -> dict[str, np.ndarray]:
    """The content of data/w2v.pkl: unchanged, or the file's vectors for all datasets in data/.

    One file serves all datasets, so a new one must not remove the vectors of another.
    """
    present = load_pickle(VECTORS, "word vectors") if VECTORS.exists() else {}
    if not args.word_vectors:
        return present
    wanted = set(words)
    for path in {*VECTORS.parent.glob("*_train.json")} - {data_paths(args.dataset)[0]}:
        wanted.update(read_json(path, "data file")["vocab"])
    vectors = read_vectors(args.word_vectors, wanted)
    changed = [w for w, v in present.items() if not np.array_equal(vectors.get(w), v)]
    if changed and not args.overwrite:
        raise InputError(
            f"{VECTORS} holds other vectors than {args.word_vectors} for {len(changed):,} words "
            f"(such as {changed[0]!r}), and other datasets may use them; --overwrite replaces them"
        )
    return vectors


if __name__ == "__main__":
    run_script(main)

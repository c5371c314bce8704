"""Turn a public data set, or your own texts, into data/{dataset}_{train,test}.json.

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

--source is a file, a folder or an archive (.zip, .tar, .tgz, ...), read without being unpacked;
files may be gzipped. The forms each data set is read from:

  IMDB        aclImdb/{train,test}/{pos,neg}/ID_RATING.txt; pos is 1
  Furd        Stanford Sentiment Treebank: train.txt and test.txt of trees (neutral sentences are
              left out), or train.tsv and test.tsv with a header sentence, label; positive is 1
  AG_News     train.csv and test.csv of class,title,description; World is 0, Business 1, the others
              are left out. Parts of the training set go with --train FILE --test FILE: text,label
              (0 to 3), with a header or without; of a header's gt and label, gt is taken
  Newsgroups  20news-bydate-{train,test}/rec.sport.{baseball,hockey}/NUMBER; headers, footers and
              quotes are removed; hockey is 1
  Yelp        train.csv and test.csv of class,text; or train.csv (else dev.csv) and test.csv with a
              header text, label2 (Review Stars: N.0); or yelp_labelled.txt. 4 and 5 stars are 1
  Amzn        train.csv and test.csv of class,title,text; or the Multi-Domain set's
              DOMAIN/{positive,negative}.review; or amazon_cells_labelled.txt. 4 and 5 stars are 1
  SMS         SMSSpamCollection: ham or spam, TAB, message; spam is 1

A set without a split of its own (SMS, *.review, *_labelled.txt) is split 80/20 by --seed. --train
and --test read one file each: a known data set in the forms above, anything else as CSV, TSV
(quotes are text) or JSON lines with --text_column and --label_column.

Writes data/{dataset}_{train,test}.json, {"vocab": [word, ...], "XY": [[[word index, ...], label],
...]} (the vocabulary is the same in both: words by falling training count, ties by first
occurrence, then those only in test), data/{dataset}_about.json (source, checksum, counts),
data/w2v.pkl (word -> vector, of --word_vectors; empty when there is none), and for toy
data/toy_truth.json. Only --download uses the network.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from data import canonical_name, data_paths
from preparation.columns import LABEL_COLUMN, TEXT_COLUMN, read_columns
from preparation.corpus import SPLITS, Corpus, stored_vocabulary
from preparation.examples import FULL, Example, Findings
from preparation.hub import read_hub, resolve_revision
from preparation.sources import has_file_reader, read_file, read_source
from preparation.tokeniser import tokenise
from preparation.toy import Toy, make_toy
from preparation.vectors import read_vectors
from tqdm import tqdm

from attention_dynamics.cli import InputError, run_script, script_parser
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.records import file_facts, preparation_command
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.files import write_json, write_pickle
from attention_dynamics.storage.pickles import load_pickle

TOY = "toy"
VECTORS = Path("data") / "w2v.pkl"

# The evaluation takes this many test examples from the start of the file (--test_set_size).
_EVALUATED = 4000


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--dataset",
        default=TOY,
        metavar="NAME",
        help=f"{', '.join(FULL)} (SNS is SMS), toy, or a new name with --train and --test "
        "(default: %(default)s)",
    )
    parser.add_argument("--source", metavar="PATH", help="file, folder or archive it comes in")
    parser.add_argument(
        "--download", action="store_true", help="get it from the Hugging Face hub instead"
    )
    parser.add_argument(
        "--revision",
        metavar="COMMIT",
        help="with --download: the commit of the hub's repository (default: the newest, which is "
        "printed and kept in about.json)",
    )
    parser.add_argument("--train", metavar="FILE", help="training texts: csv, tsv or jsonl")
    parser.add_argument("--test", metavar="FILE", help="test texts, in the same form")
    parser.add_argument(
        "--text_column",
        metavar="COLUMN",
        help="of --train and --test: a name in the header, or a 0-based number where there is no "
        f"header (default: {TEXT_COLUMN})",
    )
    parser.add_argument(
        "--label_column", metavar="COLUMN", help=f"likewise (default: {LABEL_COLUMN})"
    )
    parser.add_argument(
        "--labels",
        nargs=2,
        metavar=("ZERO", "ONE"),
        help="the values of the label column that mean 0 and 1 (default: 0 and 1, or else the two "
        "there are, sorted)",
    )
    parser.add_argument(
        "--word_vectors",
        metavar="FILE",
        help="GloVe, fastText or word2vec text; vectors of the words of all data sets in data/ are "
        "kept in data/w2v.pkl",
    )
    parser.add_argument(
        "--drop_duplicates",
        action="store_true",
        help="leave out training examples whose tokens are a test example's",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of what is drawn: the split, the order, or the toy corpus (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    args = parser.parse_args(argv)
    args.dataset = canonical_name(args.dataset)
    if args.seed < 0:
        parser.error(f"--seed must not be negative, but is {args.seed}")
    _check_options(args, parser)
    return args


def _check_options(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """End with the reason when options do not go together."""
    if bool(args.train) != bool(args.test):
        parser.error("--train and --test go together")
    ways = {"--source": args.source, "--download": args.download, "--train": args.train}
    given = [option for option, value in ways.items() if value]
    if len(given) > 1:
        parser.error(f"{' and '.join(given)} exclude each other: the texts come from one of them")
    columns = {
        "--text_column": args.text_column,
        "--label_column": args.label_column,
        "--labels": args.labels,
    }
    for option, value in columns.items():
        if value is not None and not args.train:
            parser.error(f"{option} says how to read --train and --test: give these too")
    if args.train and (args.text_column or TEXT_COLUMN) == (args.label_column or LABEL_COLUMN):
        parser.error("--text_column and --label_column are the same column")
    if args.labels and args.labels[0] == args.labels[1]:
        parser.error(f"--labels names {args.labels[0]!r} twice: 0 and 1 are different labels")
    if args.revision and not args.download:
        parser.error("--revision goes with --download")
    if args.dataset == TOY:
        if given:
            parser.error(f"--dataset toy is generated here and takes no {given[0]}")
    elif args.dataset not in FULL:
        if not args.train:
            parser.error(
                f"unknown --dataset {args.dataset}: known are {', '.join(FULL)} and toy; your own "
                "texts need --train FILE and --test FILE"
            )
    elif not given:
        parser.error(
            f"--dataset {args.dataset} needs --source PATH (its public distribution), --download, "
            "or --train FILE and --test FILE"
        )


def main(argv=None) -> None:
    """Read, tokenise, check, report, write."""
    args = parse_args(argv)
    paths = dict(zip(SPLITS, data_paths(args.dataset), strict=True))
    about_path = Path("data") / f"{args.dataset}_about.json"
    if not args.overwrite:
        for path in (*paths.values(), about_path):
            if path.exists():
                raise InputError(f"{path} is there already; --overwrite replaces it")

    found = Findings()
    toy = make_toy(args.seed) if args.dataset == TOY else None
    origin, examples = _toy_examples(toy) if toy else _open(args, found)
    corpus = Corpus(tqdm(examples, args.dataset, unit=" examples", disable=None))
    warnings = _check(corpus, found, args)
    repeated, shared = corpus.duplicates()
    if shared.any():
        fate = "left out" if args.drop_duplicates else "kept (--drop_duplicates leaves them out)"
        warnings.append(f"{shared.sum():,} training examples are also test examples: {fate}")
    if args.drop_duplicates:
        corpus.drop_train(shared)
        _require_both_labels(corpus, "without those that are in the test set, ")
    counts = corpus.sort_words()
    vectors = _merge_vectors(args, corpus.words)

    splits = [_split_row(corpus, split) for split in SPLITS]
    in_vocabulary = np.array([word in vectors for word in corpus.words], dtype=bool)
    totals = {
        "words": len(corpus.words),
        "words in training": int((counts > 0).sum()),
        "words more than twice in training": int((counts > 2).sum()),
        "words with a vector": int(in_vocabulary.sum()),
        "share of training tokens with a vector": float(
            counts[in_vocabulary].sum() / max(1, counts.sum())
        ),
        "examples without a token": int(sum((corpus.lengths[s] == 0).sum() for s in SPLITS)),
        "training examples that repeat an earlier one": repeated,
        "training examples that are in test": int(shared.sum()),
    }
    if len(vectors) and not args.word_vectors:
        found.notes.append(
            f"{VECTORS} was there before and is kept; --word_vectors FILE adds the words it lacks"
        )
    print(format_table(splits, digits=1))
    print()
    print(format_table([{"": name, args.dataset: value} for name, value in totals.items()]))
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    for warning in warnings:
        print(f"WARNING: {warning}", file=sys.stderr)

    about_path.unlink(missing_ok=True)  # until all is written, there is no complete set of files
    for split, path in paths.items():
        corpus.write(path, split)
    if toy:
        write_json(Path("data") / "toy_truth.json", toy.truth(args.seed), None)
    if args.word_vectors or not VECTORS.exists():
        write_pickle(VECTORS, vectors)
    about = {
        "dataset": args.dataset,
        "command": preparation_command(argv),
        "seed": args.seed,
        **origin,
        "word_vectors": file_facts(args.word_vectors) if args.word_vectors else None,
        "splits": splits,
        **totals,
        "notes": found.notes,
        "warnings": warnings,
    }
    # Last, so that it stands for a complete set of files.
    write_json(about_path, about)


def _open(args: argparse.Namespace, found: Findings) -> tuple[dict, Iterator]:
    """Where the texts come from, for about.json, and (split, tokens, label) of each example."""
    if args.download:
        revision = resolve_revision(args.dataset, args.revision)
        if not args.revision:
            found.notes.append(f"downloaded at --revision {revision}, the newest now")
        origin = {"revision": revision}
        examples = read_hub(args.dataset, revision, args.seed, found)
    elif args.source:
        source = Source(args.source)
        origin = {"source": file_facts(args.source)}
        examples = read_source(args.dataset, source, args.seed, found)
    else:
        parts = {"train": Source(args.train), "test": Source(args.test)}
        origin = {split: file_facts(source.path) for split, source in parts.items()}
        examples = _read_files(args, parts, found)
    return origin, ((split, tokenise(text), label) for split, text, label in examples)


def _read_files(
    args: argparse.Namespace, parts: dict[str, Source], found: Findings
) -> Iterator[Example]:
    if has_file_reader(args.dataset) and not (args.text_column or args.label_column or args.labels):
        for split, source in parts.items():
            yield from read_file(args.dataset, source, split, found)
        return
    yield from read_columns(
        parts,
        args.text_column or TEXT_COLUMN,
        args.label_column or LABEL_COLUMN,
        tuple(args.labels) if args.labels else None,
        found,
    )


def _toy_examples(toy: Toy) -> tuple[dict, Iterator]:
    examples = (
        (split, words, label)
        for split in SPLITS
        for words, label in zip(toy.sentences[split], toy.labels[split], strict=True)
    )
    return {"source": None}, examples


def _check(corpus: Corpus, found: Findings, args: argparse.Namespace) -> list[str]:
    """What is unusual about the examples; InputError for what no classifier can be trained on."""
    for split in SPLITS:
        if not len(corpus.labels[split]):
            raise InputError(
                f"{args.dataset} has no {split} example (after filtering): check its files"
            )
    _require_both_labels(corpus, "")
    warnings = []
    counts = {split: corpus.label_counts(split) for split in SPLITS}
    counts["all"] = tuple(np.sum(list(counts.values()), axis=0).tolist())
    for split, expected in found.expected.items():
        if counts[split] != expected:
            warnings.append(
                f"{split} has {_shown(counts[split])}, the complete public distribution "
                f"{_shown(expected)}: its results are not those of the complete set"
            )
    evaluated = corpus.labels["test"][:_EVALUATED]
    if len(set(evaluated.tolist())) == 1:
        warnings.append(
            f"the first {len(evaluated):,} test examples, which are evaluated, all have the label "
            f"{evaluated[0]}: shuffle the test file"
        )
    return warnings


def _require_both_labels(corpus: Corpus, when: str) -> None:
    zeros, ones = corpus.label_counts("train")
    if not zeros or not ones:
        raise InputError(
            f"{when}the training set has {zeros:,} examples of label 0 and {ones:,} of label 1: a "
            "classifier needs both"
        )


def _shown(counts: tuple[int, int]) -> str:
    return f"{sum(counts):,} examples ({counts[0]:,} of label 0, {counts[1]:,} of label 1)"


def _split_row(corpus: Corpus, split: str) -> dict:
    zeros, ones = corpus.label_counts(split)
    lengths = corpus.lengths[split]
    return {
        "split": split,
        "examples": len(lengths),
        "label 0": zeros,
        "label 1": ones,
        "min tokens": int(lengths.min()),
        "mean": round(float(lengths.mean()), 3),
        "median": float(np.median(lengths)),
        "max": int(lengths.max()),
    }


def _merge_vectors(args: argparse.Namespace, words: list[str]) -> dict[str, np.ndarray]:
    """The content of data/w2v.pkl: as it is, or the file's vectors for all data sets in data/.

    One file serves all data sets, so a new one must not take the vectors of another away.
    """
    present = load_pickle(VECTORS, "word vectors") if VECTORS.exists() else {}
    if not isinstance(present, dict):
        raise InputError(f"{VECTORS} is not a dict of word vectors; move it away")
    if not args.word_vectors:
        return present
    wanted = set(words)
    for path in VECTORS.parent.glob("*_train.json"):
        if path != data_paths(args.dataset)[0]:
            wanted.update(stored_vocabulary(path))
    vectors = read_vectors(args.word_vectors, wanted)
    changed = [w for w, v in present.items() if not np.array_equal(vectors.get(w), v)]
    if changed and not args.overwrite:
        raise InputError(
            f"{VECTORS} holds other vectors than {args.word_vectors} for {len(changed):,} words "
            f"(such as {changed[0]!r}), and other data sets may use them; --overwrite replaces them"
        )
    return vectors


if __name__ == "__main__":
    run_script(main)

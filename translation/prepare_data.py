"""Turn a public parallel corpus, or your own pair of files, into the sentence pairs in data/.

    python prepare_data.py                                         # the generated languages "toy"
    python prepare_data.py --dataset multi30k --source task1/raw
    python prepare_data.py --dataset iwslt14 --source iwslt14.tokenized.de-en/tmp
    python prepare_data.py --dataset news_commentary_v14_en_nl \\
        --source news-commentary-v14.en-nl.tsv.gz
    python prepare_data.py --dataset multi30k --download           # from the Hugging Face hub
    python prepare_data.py --dataset mine --src_lang de --trg_lang en --train a.de a.en \\
        --val b.de b.en

--source is a file, a directory or an archive (.zip, .tar, .tgz, ...), read without being unpacked;
files may be gzipped. Formats of the public datasets:

  multi30k  task 1, raw: train.de, train.en, val.de, val.en
  iwslt14   {train,valid}.{de,en}, tokenized by the fairseq preparation (its directory, or
            tmp/ in it); or the original train.tags.de-en.{de,en}: lines with tags (<url>, ...) are
            left out, and every 23rd pair is validation
  news_commentary_v14_{en_nl,en_pt,it_pt}
            the table news-commentary-v14.en-nl.tsv, whose columns are in the order of its name
            (English, Dutch), and the source side is the first language of the dataset's name,
            whichever column it is in; or one file .en and one .nl of aligned lines

--train SRC TRG and --val SRC TRG read aligned files instead, for a known dataset or a new name
(letters, digits and _ . -; it needs --src_lang and --trg_lang): one sentence a line, or the
<seg id="..."> lines of .xml, or train.tags.*. So the tuning and test sets of IWSLT14 can replace
its training text:

    python prepare_data.py --dataset iwslt14 --train valid.de.gz valid.en.gz \\
        --val IWSLT14.TED.dev2010.de-en.de.xml IWSLT14.TED.dev2010.de-en.en.xml

If there is no validation split, --val_size training pairs, drawn with --seed, become
one. Pairs with an empty side are left out. The sentencepiece vocabulary of both sides is trained at
the end.

Writes data/FOLDER/: {train,val}.{de,en} for multi30k, {train,valid}.{de,en} for iwslt14 and
{train,val}.{SRC_LANG,TRG_LANG} for a new name, a sentence a line; for news-commentary
data/news-commentary-v14-en-nl/{train,val}.{src,trg}, JSON lists of sentences, and the same as lines
in {train,val}.{src,trg}_raw; the vocabulary FOLDER.model; about.json (source, checksum, counts);
and for toy truth.json, the true word alignment. Only --download uses the network.
"""

import argparse

import numpy as np
import sentencepiece
from data import LAYOUTS, VOCAB_SIZE, Layout, make_pieces
from preparation.sources import (
    FULL,
    REPOSITORIES,
    Pair,
    Split,
    read_files,
    read_hub,
    read_source,
    split_by_seed,
)
from preparation.toy import SOURCE, TARGET, make_toy

from attention_dynamics.cli import InputError, add_options, count, run_script, script_parser, seed
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
from attention_dynamics.runs.paths import check_name
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.files import json_text, write_together

# Nearly all words of the toy languages are one piece each; they allow few more pieces.
TOY_VOCAB_SIZE = 620
VAL_SIZE = 2000


def parse_args(argv=None) -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--dataset",
        default=TOY,
        metavar="NAME",
        help=f"{', '.join(LAYOUTS)}, toy, or a new name with --train (default: %(default)s)",
    )
    add_source_options(parser, "pairs")
    parser.add_argument(
        "--repository",
        metavar="NAME",
        help="with --download: repository on the hub, with a column for each language, or with a "
        f"column 'translation' that holds both (multi30k: {REPOSITORIES['multi30k']})",
    )
    parser.add_argument(
        "--configuration",
        metavar="NAME",
        help="with --download: configuration of a repository that has several, such as en-nl",
    )
    pair = {"nargs": 2, "metavar": ("SRC", "TRG")}
    parser.add_argument("--train", **pair, help="aligned files of training sentences")
    parser.add_argument("--val", **pair, help="aligned files of validation sentences")
    parser.add_argument("--src_lang", metavar="LANG", help="source language of a new dataset")
    parser.add_argument("--trg_lang", metavar="LANG", help="target language of a new dataset")
    parser.add_argument(
        "--val_size",
        type=count,
        help=f"number of pairs of a validation split drawn here (default: {VAL_SIZE})",
    )
    parser.add_argument(
        "--vocab_size",
        type=count,
        help=f"number of subword tokens (pieces) (default: {VOCAB_SIZE}; toy: {TOY_VOCAB_SIZE})",
    )
    add_options(parser, seed=(seed, 0, "random seed (split, toy languages)"))
    args = parser.parse_args(argv)
    _check_options(args, parser)
    return args


def _check_options(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """End with the reason if options conflict."""
    given, name = check_source_options(args, parser), args.dataset
    known, new = name in LAYOUTS, name not in (*LAYOUTS, TOY)
    languages = {args.src_lang, args.trg_lang} - {None}
    has_val = args.val or name == TOY or (args.source and name in FULL)
    hub_only = (args.repository or args.configuration) and not args.download
    unnamed = args.download and not (args.repository or name in REPOSITORIES)
    for conflict, message in (
        (args.val and not args.train, "--val goes with --train"),
        (hub_only, "--repository and --configuration go with --download"),
        (known and not given, f"--dataset {name} needs --source, --download, or --train SRC TRG"),
        (known and unnamed, f"no repository of {name} is known: name one with --repository"),
        (languages and not new, f"--src_lang and --trg_lang are of a new dataset, not {name}"),
        (
            new and not (args.train or args.repository),
            f"unknown --dataset {name}: known are {', '.join(LAYOUTS)} and toy; your own pair of "
            "files needs --train SRC TRG, --src_lang and --trg_lang",
        ),
        (new and len(languages) < 2, f"{name} needs two different --src_lang and --trg_lang"),
        (args.val_size and has_val, f"--val_size: the validation split of {name} is not drawn"),
    ):
        if conflict:
            parser.error(message)


def main(argv=None) -> None:
    """Read, check, train the vocabulary, report, write."""
    args = parse_args(argv)
    layout, languages = _layout(args)
    paths = [layout.about, layout.pieces, *layout.paths("train"), *layout.paths("val")]
    with reserve_outputs(__file__, layout.about.parent, paths, args.overwrite):
        _prepare(args, argv, layout, languages)


def _layout(args: argparse.Namespace) -> tuple[Layout, Pair]:
    """The paths of the dataset, and its two languages."""
    if layout := LAYOUTS.get(args.dataset):
        if layout.is_json:  # news_commentary_v14_en_nl
            return layout, tuple(args.dataset.split("_")[-2:])
        return layout, (layout.src, layout.trg)
    check_name(args.dataset)
    for known, layout in LAYOUTS.items():
        if args.dataset.lower() == layout.folder.lower():
            raise InputError(f"{args.dataset} is the folder of --dataset {known}: use that name")
    is_toy = args.dataset == TOY
    languages = (SOURCE, TARGET) if is_toy else (args.src_lang, args.trg_lang)
    for language in languages:
        check_name(language, "language")
    return Layout(args.dataset, "val", *languages), languages


def _prepare(args: argparse.Namespace, argv: list[str] | None, layout: Layout, languages: Pair):
    report = ReadReport()
    toy = make_toy(args.seed) if args.dataset == TOY else None
    if toy:
        origin = {"source": None}
        splits = {
            split: Split([(" ".join(src), " ".join(trg)) for src, trg in pairs], 0)
            for split, pairs in toy.pairs.items()
        }
    else:
        origin, splits = _read(args, languages, report)
    for split, (pairs, _) in splits.items():
        if not pairs:
            raise InputError(
                f"{args.dataset} has no {split} pair with text on both sides: check its files"
            )
    if "val" not in splits:
        val_size = args.val_size or VAL_SIZE
        splits = split_by_seed(splits["train"], val_size, args.seed)
        drawn = f"{val_size:,} pairs, drawn with seed {args.seed}, are used"
        report.notes.append(f"no validation split is defined: {drawn}")
    warnings, duplicates = _check(args, splits, report)

    text = splits["train"].pairs
    if toy:
        # In natural text a word has several right contexts; only strings with several become
        # pieces. In the toy languages a space always follows, except after a word on its own.
        text = text + [(word, word) for word in toy.words]
    vocab_size = args.vocab_size or (TOY_VOCAB_SIZE if toy else VOCAB_SIZE)
    model = make_pieces(layout.about.parent, text, vocab_size)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    files, rows = {layout.pieces: model}, []
    for split, (pairs, _) in splits.items():
        sides = zip(languages, layout.paths(split), zip(*pairs, strict=True), strict=True)
        for language, path, sentences in sides:
            lengths = np.array([*map(len, pieces.encode([*sentences]))])  # no <s> and </s>
            row = {"split": split, "side": language, "pairs": len(pairs)}
            rows.append(row | length_columns(lengths, "pieces"))
            files[path] = "".join(f"{sentence}\n" for sentence in sentences).encode()
            if layout.is_json:
                files[path.with_name(f"{path.name}_raw")] = files[path]
                files[path] = json_text(sentences, None).encode()
    totals = {
        "pieces in the vocabulary": pieces.vocab_size(),
        **{f"{split} pairs dropped, a side empty": splits[split].dropped for split in splits},
        **duplicates,
    }
    origin |= {"languages": [*languages], "vocab_size": vocab_size}
    about = summarize_preparation(args, argv, origin, rows, totals, report.notes, warnings)
    files[layout.about] = json_text(about).encode()
    if toy:
        truth = layout.about.with_name("truth.json")
        files[truth] = json_text(toy.truth(args.seed), None).encode()
    write_together(files)


def _read(
    args: argparse.Namespace, languages: Pair, report: ReadReport
) -> tuple[dict, dict[str, Split]]:
    """The origin of the texts, for about.json, and the splits."""
    if args.source:
        splits = read_source(args.dataset, languages, Source(args.source), report)
        return {"source": file_facts(args.source)}, splits
    report.expected = FULL.get(args.dataset, {})
    if args.download:
        repository = args.repository or REPOSITORIES[args.dataset]
        revision = download_revision(repository, args.revision, report)
        splits = read_hub(repository, args.configuration, revision, languages)
        return {"repository": repository, "revision": revision}, splits
    parts = {split: paths for split in ("train", "val") if (paths := getattr(args, split))}
    splits = {split: read_files(paths, f"--{split}") for split, paths in parts.items()}
    return {split: [*map(file_facts, paths)] for split, paths in parts.items()}, splits


def _check(
    args: argparse.Namespace, splits: dict[str, Split], report: ReadReport
) -> tuple[list[str], dict[str, int]]:
    """Warnings about the pairs, and counts of duplicates, which are dropped on request."""
    warnings = []
    for split, (pairs, dropped) in splits.items():
        expected = report.expected.get(split, len(pairs))
        if len(pairs) != expected:
            warnings.append(incomplete_warning(split, f"{len(pairs):,} pairs", f"{expected:,}"))
        if empty := empty_warning(split, dropped, len(pairs) + dropped, "pairs"):
            warnings.append(empty)
        if dropped:
            warnings.append(f"{split} pairs left out because a side is empty: {dropped:,}")
    train, val = splits["train"].pairs, {*splits["val"].pairs}
    unshared = [pair for pair in train if pair not in val]
    shared = len(train) - len(unshared)
    duplicates = {
        "training pairs that repeat an earlier one": len(train) - len({*train}),
        "training pairs that are in validation": shared,
    }
    if shared:
        warnings.append(shared_warning(shared, "pairs", "validation", args.drop_duplicates))
    if args.drop_duplicates:
        if not unshared:
            raise InputError("without those that are in validation, no training pair is left")
        splits["train"] = splits["train"]._replace(pairs=unshared)
    return warnings, duplicates


if __name__ == "__main__":
    run_script(main)

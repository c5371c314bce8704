"""Turn a public parallel corpus, or your own pair of files, into the sentence pairs in data/.

    python prepare_data.py                                         # the generated languages "toy"
    python prepare_data.py --dataset multi30k --source task1/raw
    python prepare_data.py --dataset iwslt14 --source iwslt14.tokenized.de-en/tmp
    python prepare_data.py --dataset news_commentary_v14_en_nl \\
        --source news-commentary-v14.en-nl.tsv.gz
    python prepare_data.py --dataset multi30k --download           # from the Hugging Face hub
    python prepare_data.py --dataset mine --src_lang de --trg_lang en --train a.de a.en \\
        --val b.de b.en

--source is a file, a folder or an archive (.zip, .tar, .tgz, ...), read without being unpacked;
files may be gzipped. The forms each data set is read from:

  multi30k  task 1, raw: train.de, train.en, val.de, val.en
  iwslt14   {train,valid}.{de,en}, tokenised by the fairseq preparation (its tmp/, or its folder);
            or the original train.tags.de-en.{de,en}: lines with tags (<url>, <title>, ...) are left
            out, and each 23rd pair is validation
  news_commentary_v14_{en_nl,en_pt,it_pt}
            the table news-commentary-v14.en-nl.tsv, whose columns are in the order of its name
            (English, Dutch), and the source side is the first language of the data set's name,
            whichever column it is in; or one file .en and one .nl of aligned lines

--train SRC TRG and --val SRC TRG read aligned files instead, for a known data set or a new name
(letters, digits and _ . -; it needs --src_lang and --trg_lang): one sentence a line, or the
<seg id="..."> lines of .xml, or train.tags.*. So the tuning and test sets of IWSLT14 can stand in
for its training text:

    python prepare_data.py --dataset iwslt14 --train valid.de.gz valid.en.gz \\
        --val IWSLT14.TED.dev2010.de-en.de.xml IWSLT14.TED.dev2010.de-en.en.xml

Where there is no validation split, --val_size pairs drawn by --seed are one. Pairs with an empty
side are left out. The sentencepiece vocabulary of both sides is trained right away.

Writes data/FOLDER/: {train,val}.{de,en} for multi30k, {train,valid}.{de,en} for iwslt14 and
{train,val}.{SRC_LANG,TRG_LANG} for a new name, a sentence a line; for news-commentary
data/news-commentary-v14-en-nl/{train,val}.{src,trg}, JSON lists of sentences, and the same as lines
in {train,val}.{src,trg}_raw; the vocabulary FOLDER.model; about.json (source, checksum, counts);
and for toy truth.json, the true word alignment. Only --download uses the network.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import sentencepiece
from data import LAYOUTS, VOCAB_SIZE, Layout, left_out_of_pieces, make_pieces
from preparation.sources import (
    FULL,
    LANGUAGES,
    REPOSITORIES,
    Findings,
    Pair,
    Split,
    has_validation,
    read_files,
    read_hub,
    read_source,
    split_by_seed,
)
from preparation.toy import SOURCE, TARGET, Toy, make_toy

from attention_dynamics.cli import InputError, count, run_script, script_parser, seed
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.paths import check_name
from attention_dynamics.runs.records import file_facts, preparation_command
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.files import json_text, write_together
from attention_dynamics.storage.hub import resolve_revision

TOY = "toy"
# Nearly all of the toy languages' words are a piece of their own; they allow hardly more pieces.
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
    parser.add_argument("--source", metavar="PATH", help="file, folder or archive it comes in")
    parser.add_argument(
        "--download", action="store_true", help="get it from the Hugging Face hub instead"
    )
    parser.add_argument(
        "--repository",
        metavar="NAME",
        help="with --download: the hub's repository, with a column per language or a column "
        f"translation of both (default: for multi30k {REPOSITORIES['multi30k']})",
    )
    parser.add_argument(
        "--configuration", metavar="NAME", help="of a repository that has several, such as en-nl"
    )
    parser.add_argument(
        "--revision",
        metavar="COMMIT",
        help="with --download: the commit of the hub's repository (default: the newest, which is "
        "printed and kept in about.json)",
    )
    parser.add_argument(
        "--train", nargs=2, metavar=("SRC", "TRG"), help="aligned files of training sentences"
    )
    parser.add_argument(
        "--val", nargs=2, metavar=("SRC", "TRG"), help="aligned files of validation sentences"
    )
    parser.add_argument("--src_lang", metavar="LANG", help="of a new name, such as de")
    parser.add_argument("--trg_lang", metavar="LANG", help="likewise, such as en")
    parser.add_argument(
        "--val_size",
        type=count,
        help=f"pairs of a validation split that is drawn here (default: {VAL_SIZE})",
    )
    parser.add_argument(
        "--vocab_size",
        type=count,
        help=f"pieces of the vocabulary (default: {VOCAB_SIZE}; toy: {TOY_VOCAB_SIZE})",
    )
    parser.add_argument(
        "--drop_duplicates",
        action="store_true",
        help="leave out training pairs that are also validation pairs",
    )
    parser.add_argument(
        "--seed",
        type=seed,
        default=0,
        help="of what is drawn: the split, or the toy languages (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    args = parser.parse_args(argv)
    _check_options(args, parser)
    return args


def _check_options(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """End with the reason when options do not go together."""
    known = args.dataset in LAYOUTS
    ways = {"--source": args.source, "--download": args.download, "--train": args.train}
    given = [option for option, value in ways.items() if value]
    if len(given) > 1:
        parser.error(f"{' and '.join(given)} exclude each other: the texts come from one of them")
    if args.val and not args.train:
        parser.error("--val goes with --train")
    for option in ("repository", "configuration", "revision"):
        if getattr(args, option) and not args.download:
            parser.error(f"--{option} goes with --download")
    languages = [args.src_lang, args.trg_lang]
    if args.dataset == TOY:
        if given:
            parser.error(f"--dataset toy is generated here and takes no {given[0]}")
    elif known:
        if not given:
            parser.error(
                f"--dataset {args.dataset} needs --source PATH (its public distribution), "
                "--download, or --train SRC TRG"
            )
        if args.download and not (args.repository or args.dataset in REPOSITORIES):
            parser.error(
                f"no repository of {args.dataset} is known that can be read without running its "
                "code: name one with --repository, or give its distribution as --source"
            )
    else:
        if not args.train and not (args.download and args.repository):
            parser.error(
                f"unknown --dataset {args.dataset}: known are {', '.join(LAYOUTS)} and toy; your "
                "own pair of files needs --train SRC TRG, --src_lang and --trg_lang"
            )
        if not all(languages):
            parser.error(f"a new name, {args.dataset}, needs --src_lang and --trg_lang")
        if args.src_lang == args.trg_lang:
            parser.error("--src_lang and --trg_lang are the same: they are the files' endings")
    if any(languages) and (known or args.dataset == TOY):
        parser.error(
            f"--src_lang and --trg_lang name the sides of a new data set, not {TOY}'s "
            "or a known one's"
        )
    split_is_there = (
        args.val or args.dataset == TOY or (args.source and has_validation(args.dataset))
    )
    if args.val_size and split_is_there:
        parser.error("--val_size is of a validation split that is drawn; here it is given")


def main(argv=None) -> None:
    """Read, check, train the vocabulary, report, write."""
    args = parse_args(argv)
    layout, languages = _layout(args)
    sides = {split: layout.paths(split) for split in ("train", "val")}
    if not args.overwrite:
        for path in (*sides["train"], *sides["val"], layout.about, layout.pieces):
            if path.exists():
                raise InputError(f"{path} is there already; --overwrite replaces it")

    found = Findings()
    toy = make_toy(args.seed) if args.dataset == TOY else None
    origin, splits = _toy_splits(toy) if toy else _open(args, languages, found)
    for split, (pairs, _) in splits.items():
        if not pairs:
            raise InputError(
                f"{args.dataset} has no {split} pair with text on both sides: check its files"
            )
    if "val" not in splits:
        val_size = args.val_size or VAL_SIZE
        splits = split_by_seed(splits["train"], val_size, args.seed)
        found.notes.append(
            f"no validation split is defined: {val_size:,} pairs, drawn with seed {args.seed}, are "
            "it"
        )
    warnings, duplicates = _check(args, splits, found)

    text = splits["train"].pairs
    if toy:
        # In natural text a word ends in several ways, and only what does so can become a piece.
        # Here a space always follows, except where words stand alone.
        text = text + [(word, word) for word in toy.words]
    if line := left_out_of_pieces(text):
        warnings.append(line)
    folder = layout.about.parent
    vocab_size = args.vocab_size or (TOY_VOCAB_SIZE if toy else VOCAB_SIZE)
    model = make_pieces(folder, text, vocab_size)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    rows = [
        _row(split, language, [pair[side] for pair in splits[split].pairs], pieces)
        for split in splits
        for side, language in enumerate(languages)
    ]
    totals = {
        "pieces in the vocabulary": pieces.vocab_size(),
        **{f"{split} pairs dropped, a side empty": splits[split].dropped for split in splits},
        **duplicates,
    }
    print(format_table(rows, digits=1))
    print()
    print(format_table([{"": name, args.dataset: value} for name, value in totals.items()]))
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    for warning in warnings:
        print(f"WARNING: {warning}", file=sys.stderr)

    about = {
        "dataset": args.dataset,
        "languages": [*languages],
        "command": preparation_command(argv),
        "seed": args.seed,
        **origin,
        "vocab_size": vocab_size,
        "splits": rows,
        **totals,
        "notes": found.notes,
        "warnings": warnings,
    }
    files = {layout.about: json_text(about).encode(), layout.pieces: model}
    if toy:
        files[folder / "truth.json"] = json_text(toy.truth(args.seed), None).encode()
    for split, paths in sides.items():
        for side, path in enumerate(paths):
            sentences = [pair[side] for pair in splits[split].pairs]
            files |= _files(path, sentences, layout.is_json)
    write_together(files)


def _layout(args: argparse.Namespace) -> tuple[Layout, Pair]:
    """Where the data set goes, and its two languages."""
    if args.dataset in LAYOUTS:
        return LAYOUTS[args.dataset], LANGUAGES[args.dataset]
    if args.dataset == TOY:
        return Layout(TOY, "val", SOURCE, TARGET), (SOURCE, TARGET)
    check_name(args.dataset)
    for option in ("src_lang", "trg_lang"):
        check_name(getattr(args, option), f"--{option}")
    for known, layout in LAYOUTS.items():
        if args.dataset.lower() == layout.folder.lower():
            raise InputError(f"{args.dataset} is the folder of --dataset {known}: use that name")
    languages = (args.src_lang, args.trg_lang)
    return Layout(args.dataset, "val", *languages), languages


def _toy_splits(toy: Toy) -> tuple[dict, dict[str, Split]]:
    joined = {
        split: Split([(" ".join(src), " ".join(trg)) for src, trg in pairs], 0)
        for split, pairs in toy.pairs.items()
    }
    return {"source": None}, joined


def _open(
    args: argparse.Namespace, languages: Pair, found: Findings
) -> tuple[dict, dict[str, Split]]:
    """Where the texts come from, for about.json, and the splits."""
    if args.download:
        repository = args.repository or REPOSITORIES[args.dataset]
        revision = resolve_revision(repository, args.revision)
        if not args.revision:
            found.notes.append(f"downloaded at --revision {revision}, the newest now")
        origin = {"repository": repository, "revision": revision}
        found.expected = FULL.get(args.dataset, {})
        return origin, read_hub(
            repository, args.configuration, revision, languages, args.val_size, found
        )
    if args.source:
        source = Source(args.source)
        return {"source": file_facts(source.path)}, read_source(args.dataset, source, found)
    found.expected = FULL.get(args.dataset, {})
    parts = {split: getattr(args, split) for split in ("train", "val") if getattr(args, split)}
    splits = {split: read_files(paths, f"--{split}") for split, paths in parts.items()}
    return {split: [*map(file_facts, paths)] for split, paths in parts.items()}, splits


def _check(
    args: argparse.Namespace, splits: dict[str, Split], found: Findings
) -> tuple[list[str], dict[str, int]]:
    """What is unusual about the pairs, and counts of duplicates; drops those if asked to."""
    warnings = []
    for split, (pairs, dropped) in splits.items():
        expected = found.expected.get(split, len(pairs))
        if len(pairs) != expected:
            warnings.append(
                f"{split} has {len(pairs):,} pairs, the complete public distribution {expected:,}: "
                "its results are not those of the complete set"
            )
        if dropped:
            warnings.append(f"{dropped:,} {split} pairs are left out: a side is empty")
    train, val = splits["train"].pairs, {*splits["val"].pairs}
    shared = sum(pair in val for pair in train)
    duplicates = {
        "training pairs that repeat an earlier one": len(train) - len({*train}),
        "training pairs that are in validation": shared,
    }
    if shared:
        fate = "left out" if args.drop_duplicates else "kept (--drop_duplicates leaves them out)"
        warnings.append(f"{shared:,} training pairs are also validation pairs: {fate}")
    if shared and args.drop_duplicates:
        train = [pair for pair in train if pair not in val]
        if not train:
            raise InputError("without those that are in validation, no training pair is left")
        splits["train"] = splits["train"]._replace(pairs=train)
    return warnings, duplicates


def _row(split: str, language: str, sentences: list[str], pieces) -> dict:
    """The lengths of one side in pieces, <s> and </s> not counted."""
    lengths = np.fromiter(map(len, pieces.encode(sentences)), dtype=np.int64)
    return {
        "split": split,
        "side": language,
        "pairs": len(lengths),
        "min pieces": int(lengths.min()),
        "mean": round(float(lengths.mean()), 3),
        "median": float(np.median(lengths)),
        "max": int(lengths.max()),
    }


def _files(path: Path, sentences: list[str], is_json: bool) -> dict[Path, bytes]:
    """What a side of a split is written as."""
    lines = "".join(f"{sentence}\n" for sentence in sentences).encode()
    if not is_json:
        return {path: lines}
    return {path: json_text(sentences, None).encode(), path.with_name(f"{path.name}_raw"): lines}


if __name__ == "__main__":
    run_script(main)

"""Readers of the review data sets: IMDB, Yelp and Amzn in the forms they are distributed in."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import BinaryIO

from attention_dynamics.cli import InputError
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import delimited_rows, text_lines
from preparation.examples import (
    LABELLED_SENTENCES,
    MULTI_DOMAIN,
    Example,
    Findings,
    label_of,
    note_split,
    one_file,
    peeked,
    real_names,
    shuffled,
    split_by_seed,
    unknown_label,
    unlike,
)

# --- IMDB: aclImdb/{train,test}/{pos,neg}/ID_RATING.txt


def read_imdb(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    pattern = re.compile(r"(?:^|/)(train|test)/(pos|neg)/\d+_(\d+)\.txt$")
    members = {name: match for name in source.names if (match := pattern.search(name))}
    if not members:
        raise unlike(source, "IMDB", "aclImdb/{train,test}/{pos,neg}/ID_RATING.txt")
    rows = {}
    for name, stream in source.open_all(members):
        split, polarity, rating = members[name].groups()
        where = source.place(name)
        if not (int(rating) <= 4 if polarity == "neg" else 7 <= int(rating) <= 10):
            raise InputError(f"{where} has the rating {rating}: neg is 1 to 4, pos is 7 to 10")
        text = "".join(text_lines(stream, where))
        rows[name] = Example(split, text, int(polarity == "pos"))
    # One class comes after the other in the folders, and the evaluation takes the first 4,000.
    found.notes.append(f"the reviews, stored by class, are shuffled with seed {seed}")
    yield from shuffled([rows[name] for name in sorted(rows)], seed)


# --- Yelp and Amzn: polarity CSV, reviews with stars, labelled sentences, Multi-Domain reviews

_STARS = re.compile(r"(?:Review Stars: )?([1-5])(?:\.0)?$")
_NOT_THE_PAPERS = "not the polarity set of the paper, so not its numbers"
_SENTENCES = re.compile(r"(?:^|/)(?:yelp|amazon_cells)_labelled\.txt$")
_MULTI = re.compile(r"(?:^|/)[^/]+/(positive|negative)\.review$")


def read_yelp(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    yield from _reviews(source, "Yelp", seed, found)


def read_amzn(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    if any(_MULTI.search(name) for name in source.names):
        yield from _multi_domain(source, seed, found)
    else:
        yield from _reviews(source, "Amzn", seed, found)


def _reviews(source: Source, dataset: str, seed: int, found: Findings) -> Iterator[Example]:
    sentences = [name for name in real_names(source) if _SENTENCES.search(name)]
    tables = [name for name in real_names(source) if re.search(r"(^|/)test\.csv$", name, re.I)]
    if sentences and tables:
        raise InputError(
            f"source {source.path} holds more than one distribution ({sentences[0]}, {tables[0]}); "
            "give the file or folder of one of them"
        )
    if sentences:
        yield from _labelled_sentences(source, sentences, seed, found)
        return
    expected = (
        "train.csv and test.csv of the polarity set (class, title, text), or *_labelled.txt"
        + (
            ", or train.csv or dev.csv and test.csv with text and stars"
            if dataset == "Yelp"
            else ", or DOMAIN/{positive,negative}.review of the Multi-Domain set"
        )
    )
    train = one_file(source, dataset, ("train", "dev"), "csv", expected)
    test = one_file(source, dataset, ("test",), "csv", expected)
    if not re.search(r"(^|/)train\.", train, re.IGNORECASE):
        found.notes.append(f"there is no train.csv: {train} is the training set")
    for name, stream in source.open_all([train, test]):
        for text, label in reviews_file(stream, source.place(name), found):
            yield Example("train" if name == train else "test", text, label)


def reviews_file(stream: BinaryIO, where: str, found: Findings) -> Iterator[tuple[str, int]]:
    """1 and 2 stars are 0, 4 and 5 stars 1, 3 stars are left out; class 1 is 0 and class 2 is 1."""
    rows, first = peeked(delimited_rows(text_lines(stream, where), where, ",", quoting=True))
    fields = first[1] if first else []
    stars = [name for name in ("label2", "stars") if name in fields]
    if "text" in fields and stars:
        found.notes.append(f"{PurePath(where).name} has stars: {_NOT_THE_PAPERS}")
        text_column, stars_column = fields.index("text"), fields.index(stars[0])
        next(rows)
        for number, row in rows:
            match = _STARS.match(row[stars_column])
            if not match:
                raise unknown_label(row[stars_column], "Review Stars: 1.0 to 5.0", where, number)
            if match[1] != "3":
                yield row[text_column], int(match[1] > "3")
        return
    if fields == [str(column) for column in range(len(fields))]:
        next(rows, None)
        found.notes.append(
            f"{PurePath(where).name}: the first line {','.join(fields)} is column numbers, left out"
        )
    for number, row in rows:
        if len(row) not in (2, 3):
            raise InputError(
                f"{where} has {len(row)} columns: expected class,text or class,title,text, or a "
                "header with text and label2 or stars; name others with --text_column and "
                "--label_column"
            )
        label = label_of(row[0], {"1": 0, "2": 1}, where, number)
        # As its readme says, line breaks are written \n; quotes inside are \" as well as doubled.
        yield " ".join(row[1:]).replace("\\n", " ").replace('\\"', '"'), label


def _labelled_sentences(
    source: Source, names: list[str], seed: int, found: Findings
) -> Iterator[Example]:
    found.expected = LABELLED_SENTENCES
    found.notes.append(f"these are the Sentiment Labelled Sentences: {_NOT_THE_PAPERS}")
    items = []
    for name, stream in source.open_all(names):
        where = source.place(name)
        lines = text_lines(stream, where)
        for number, row in delimited_rows(lines, where, "\t", quoting=False):
            if len(row) != 2:
                raise InputError(f"{where} line {number} is not sentence<TAB>label")
            items.append((row[0], label_of(row[1].strip(), {"0": 0, "1": 1}, where, number)))
    note_split(found, seed)
    for split, (text, label) in split_by_seed(items, seed):
        yield Example(split, text, label)


def _multi_domain(source: Source, seed: int, found: Findings) -> Iterator[Example]:
    found.expected = MULTI_DOMAIN
    found.notes.append(f"these are the Multi-Domain reviews: {_NOT_THE_PAPERS}")
    rows = {}
    for name, stream in source.open_all(n for n in source.names if _MULTI.search(n)):
        positive = _MULTI.search(name)[1] == "positive"
        where = source.place(name)
        rows[name] = [(text, label) for text, label in _multi_domain_file(stream, where, positive)]
    items = [item for name in sorted(rows) for item in rows[name]]
    note_split(found, seed)
    found.notes.append(f"the reviews, stored by class, are shuffled with seed {seed}")
    for split, (text, label) in split_by_seed(shuffled(items, seed), seed):
        yield Example(split, text, label)


def _multi_domain_file(stream: BinaryIO, where: str, positive: bool) -> Iterator[tuple[str, int]]:
    """Reviews of a file that looks like XML and is not: each tag stands alone on its line."""
    review: dict[str, list[str]] | None = None
    tag, number = None, 0
    for number, line in enumerate(text_lines(stream, where), 1):
        mark = line.strip()
        if tag is not None:
            if mark == f"</{tag}>":
                tag = None
            else:
                review[tag].append(line)
        elif mark == "<review>":
            review = {}
        elif mark == "</review>" and review is not None:
            text, rating = (
                "".join(review.get("title", []) + review.get("review_text", [])),
                "".join(review.get("rating", [])).strip(),
            )
            if rating not in (("4.0", "5.0") if positive else ("1.0", "2.0")):
                accepted = "4.0 or 5.0" if positive else "1.0 or 2.0"
                raise unknown_label(rating, accepted, where, number)
            yield text, int(positive)
            review = None
        elif review is not None and re.fullmatch(r"<\w+>", mark):
            tag = mark[1:-1]
            # A tag given twice counts as it stands last.
            review[tag] = []
        elif mark and not re.fullmatch(r"</?data>", mark):
            raise InputError(
                f"{where} line {number} stands outside of the tags of a <review>: {mark[:60]!r}"
            )
    if review is not None:
        raise InputError(f"{where} ends at line {number} inside of a <review>: it is cut short")

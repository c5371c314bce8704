"""Readers of the public distributions: each yields (split, text, label) of the binary task.

What is filtered out belongs to the task (neutral sentences, other topics); anything malformed is an
InputError with file, line, and what was expected.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from data import DATASETS

from attention_dynamics.cli import InputError
from attention_dynamics.preparation import ReadReport
from attention_dynamics.storage import hub
from attention_dynamics.storage.archives import Source
from attention_dynamics.storage.text import delimited_rows, text_lines

SPLITS = ("train", "test")

# The fraction of test examples if a distribution defines no split.
TEST_FRACTION = 0.2


class Example(NamedTuple):
    """One text with its label, 0 or 1, in the split "train" or "test" ("all" if it has none)."""

    split: str
    text: str
    label: int | None  # None for a label that is none of the task's: to be left out


def unescape_treebank(text: str) -> str:
    """``text`` with brackets for -LRB- and the like, and plain slashes and stars."""
    return _ESCAPE.sub(lambda match: match[2] or _BRACKETS[match[1].lower()], text)


_BRACKETS = {"lrb": "(", "rrb": ")", "lsb": "[", "rsb": "]", "lcb": "{", "rcb": "}"}
_ESCAPE = re.compile(r"-(lrb|rrb|lsb|rsb|lcb|rcb)-|\\([/*])", re.IGNORECASE)


def restore_ag_news(text: str) -> str:
    """``text`` with spaces for its backslashes (line breaks) and ``&#39;`` for `` #39;``."""
    return re.sub(r" (#\d+|quot|amp|lt|gt|nbsp);", r"&\1;", text.replace("\\", " "))


def _restore_polarity(text: str) -> str:
    # As its readme says, line breaks are written \n; quotes inside are \" as well as doubled.
    return text.replace("\\n", " ").replace('\\"', '"')


# The directories of label 0 and of label 1.
_DIRECTORIES = {"IMDB": ("neg", "pos"), "Newsgroups": ("rec.sport.baseball", "rec.sport.hockey")}

# Columns of train.csv and test.csv, class -> label (None: left out), and how texts are cleaned.
_STARS = {"1": 0, "2": 1}
_CSV = {
    "AG_News": ("class,title,description", {"1": 0, "2": None, "3": 1, "4": None}, restore_ag_news),
    "Yelp": ("class,text", _STARS, _restore_polarity),
    "Amzn": ("class,title,text", _STARS, _restore_polarity),
}

# Repository of the hub, columns of the text, label there -> label (others are left out).
_BINARY = {0: 0, 1: 1}
REPOSITORIES = {
    "IMDB": ("stanfordnlp/imdb", ("text",), _BINARY),
    "Furd": ("SetFit/sst2", ("text",), _BINARY),
    "AG_News": ("fancyzhx/ag_news", ("text",), {0: 0, 2: 1}),
    "Newsgroups": ("SetFit/20_newsgroups", ("text",), {9: 0, 10: 1}),
    "Yelp": ("fancyzhx/yelp_polarity", ("text",), _BINARY),
    "Amzn": ("fancyzhx/amazon_polarity", ("title", "content"), _BINARY),
    "SMS": ("ucirvine/sms_spam", ("sms",), _BINARY),
}


def read_source(dataset: str, source: Source, seed: int, report: ReadReport) -> Iterator[Example]:
    """The examples of a known dataset from its public distribution.

    Raises InputError if the source does not look like it, naming the files expected and found.
    """
    if dataset in _DIRECTORIES:
        examples = _read_directories(dataset, source)
    elif dataset in _CSV:
        examples = _read_csv(dataset, source)
    else:
        examples = {"Furd": _read_trees, "SMS": _read_sms}[dataset](source)
    return _arrange(dataset, examples, seed, report)


def read_hub(dataset: str, revision: str, seed: int, report: ReadReport) -> Iterator[Example]:
    """The examples of a known dataset from the hub, shuffled and split like the distribution's.

    Raises InputError if the download fails or the repository has other columns.
    """
    repository, columns, labels = REPOSITORIES[dataset]
    splits = hub.load_splits(repository, revision=revision)
    clean = {"Furd": unescape_treebank, "AG_News": restore_ag_news}.get(dataset, str)

    def rows() -> Iterator[Example]:
        for split in (split for split in SPLITS if split in splits):
            wanted = {*columns, "label"}
            hub.check_columns(f"{repository} {split}", splits[split].column_names, wanted)
            for row in splits[split]:
                text = " ".join(row[column] for column in columns)
                yield Example(split, clean(text), labels.get(row["label"]))

    return _arrange(dataset, rows(), seed, report)


def _arrange(
    dataset: str, examples: Iterable[Example], seed: int, report: ReadReport
) -> Iterator[Example]:
    """Draw the split if there is none; shuffle examples that are stored by class.

    The evaluation takes the first test examples, so that these must not be of one class.
    """
    report.expected = DATASETS[dataset]
    examples = _labeled(examples, report)
    if "all" in report.expected:
        examples = list(examples)
        report.notes.append(
            f"no split is defined: {TEST_FRACTION:.0%} of the rows, drawn with seed {seed}, are "
            "the test set"
        )
        order = np.random.default_rng(seed).permutation(len(examples))
        test = set(order[: round(TEST_FRACTION * len(examples))].tolist())
        for index, example in enumerate(examples):
            yield example._replace(split="test" if index in test else "train")
    elif dataset in _DIRECTORIES:
        examples = list(examples)
        report.notes.append(f"the texts, stored by class, are shuffled with seed {seed}")
        for index in np.random.default_rng(seed).permutation(len(examples)):
            yield examples[index]
    else:
        yield from examples


def _labeled(examples: Iterable[Example], report: ReadReport) -> Iterator[Example]:
    """The examples with a label of the task; the number of the others is noted."""
    left_out = Counter()
    for example in examples:
        if example.label is not None:
            yield example
        else:
            left_out[example.split] += 1
    for split, count in left_out.items():
        report.notes.append(f"{split} rows left out because they have other labels: {count:,}")


def _read_directories(dataset: str, source: Source) -> list[Example]:
    """aclImdb/{train,test}/{pos,neg}/FILE, 20news-bydate-{train,test}/GROUP/FILE."""
    classes = _DIRECTORIES[dataset]
    pattern = re.compile(rf"(?:^|/)[^/]*(train|test)/({'|'.join(classes)})/[^/]+$")
    members = {name: match for name in source.names if (match := pattern.search(name))}
    if not members:
        expected = f"directories {{train,test}}/{{{','.join(classes)}}} of texts"
        raise source.not_recognized(dataset, expected)
    examples = {}
    for name, stream in source.open_all(members):
        split, of_class = members[name].groups()
        if dataset == "IMDB":
            text = "".join(text_lines(stream, source.place(name)))
        else:
            text = _strip_post(stream.read().decode("latin-1"))
        examples[name] = Example(split, text, classes.index(of_class))
    return [examples[name] for name in sorted(examples)]


def _strip_post(text: str) -> str:
    # Private in scikit-learn, but these are what "headers, footers and quotes removed" means.
    from sklearn.datasets import _twenty_newsgroups as strip

    # They look for "\n\n": with "\r\n" they would take everything for the header.
    text = strip.strip_newsgroup_header(text.replace("\r\n", "\n"))
    return strip.strip_newsgroup_quoting(strip.strip_newsgroup_footer(text))


def _split_files(source: Source, dataset: str, suffix: str, content: str) -> dict[str, str]:
    """{file name: split} of the train and the test file; InputError if one is not unique."""
    names = {}
    for split in SPLITS:
        pattern = re.compile(rf"(?:^|/){split}\.{suffix}$", re.IGNORECASE)
        matching = [name for name in source.names if pattern.search(name)]
        if len(matching) != 1:
            expected = f"one train.{suffix} and one test.{suffix} of {content}"
            raise source.not_recognized(dataset, expected)
        names[matching[0]] = split
    return names


def _read_csv(dataset: str, source: Source) -> Iterator[Example]:
    columns, labels, clean = _CSV[dataset]
    names = _split_files(source, dataset, "csv", columns)
    for name, stream in source.open_all(names):
        where = source.place(name)
        for number, row in delimited_rows(text_lines(stream, where), where, ",", quoting=True):
            if len(row) != len(columns.split(",")):
                raise InputError(
                    f"{where} has {len(row)} column(s), expected {columns}; give files with other "
                    "columns as --train FILE --test FILE"
                )
            label = _label(row[0], labels, where, number)
            yield Example(names[name], clean(" ".join(row[1:])), label)


def _read_trees(source: Source) -> Iterator[Example]:
    """Stanford Sentiment Treebank, a tree such as (3 (2 It) (4 shines)) in each line."""
    names = _split_files(source, "Furd", "txt", "trees")
    for name, stream in source.open_all(names):
        where = source.place(name)
        for number, line in enumerate(text_lines(stream, where), 1):
            # Only ASCII white space ends a line: a leaf may end in, or hold, a no-break space.
            line = line.strip(" \t\r\n")
            tree = re.match(r"\(([0-4]) .*\)$", line)
            leaves = re.findall(r"\([0-4] ([^()]+)\)", line)
            if line and (not tree or not leaves or line.count("(") != line.count(")")):
                raise InputError(
                    f"{where} line {number} is not a sentiment tree such as (3 (2 It) (4 shines)): "
                    f"{line[:60]!r}"
                )
            if line:
                label = None if tree[1] == "2" else int(tree[1] > "2")
                yield Example(names[name], unescape_treebank(" ".join(leaves)), label)


def _read_sms(source: Source) -> Iterator[Example]:
    """ham or spam, TAB, message in each line; quotes are text, messages hold unbalanced ones."""
    names = [name for name in source.names if re.search(r"(^|/)smsspam[^/]*$", name, re.I)]
    names = names or source.names
    if len(names) != 1:
        raise source.not_recognized("SMS", "one file SMSSpamCollection")
    for name, stream in source.open_all(names):
        where = source.place(name)
        for number, line in enumerate(text_lines(stream, where), 1):
            label, _, message = line.rstrip("\r\n").partition("\t")
            if label:
                yield Example("all", message, _label(label, {"ham": 0, "spam": 1}, where, number))


def _label(value: str, labels: dict[str, int | None], where: str, number: int) -> int | None:
    if value not in labels:
        raise InputError(
            f"{where} line {number} has the label {value[:60]!r}; accepted are {', '.join(labels)}"
        )
    return labels[value]

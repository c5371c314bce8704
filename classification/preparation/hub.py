"""The public datasets in the form of the Hugging Face hub."""

from collections.abc import Iterator
from typing import NamedTuple

from attention_dynamics.preparation import ReadReport
from attention_dynamics.storage import hub
from preparation.examples import FULL, Example, shuffled, split_by_seed, unknown_label
from preparation.sources import restore_ag_news, unescape_treebank


class _Repository(NamedTuple):
    """A repository, the columns of its text, and what its labels mean (None: left out)."""

    name: str
    texts: tuple[str, ...]
    label: str
    labels: dict[int, int | None]


_BINARY = {0: 0, 1: 1}
_REPOSITORIES = {
    "IMDB": _Repository("stanfordnlp/imdb", ("text",), "label", _BINARY),
    "Furd": _Repository("SetFit/sst2", ("text",), "label", _BINARY),
    "AG_News": _Repository("fancyzhx/ag_news", ("text",), "label", {0: 0, 1: None, 2: 1, 3: None}),
    "Newsgroups": _Repository(
        "SetFit/20_newsgroups", ("text",), "label", {**dict.fromkeys(range(20)), 9: 0, 10: 1}
    ),
    "Yelp": _Repository("fancyzhx/yelp_polarity", ("text",), "label", _BINARY),
    "Amzn": _Repository("fancyzhx/amazon_polarity", ("title", "content"), "label", _BINARY),
    "SMS": _Repository("ucirvine/sms_spam", ("sms",), "label", _BINARY),
}
_BY_CLASS = ("IMDB", "Newsgroups")
_CLEAN = {"Furd": unescape_treebank, "AG_News": restore_ag_news}


def repository_name(dataset: str) -> str:
    """The name of the repository of a known dataset."""
    return _REPOSITORIES[dataset].name


def read_hub(dataset: str, revision: str, seed: int, report: ReadReport) -> Iterator[Example]:
    """The examples of a known dataset; shuffled and split by seed like those of the distribution.

    Raises InputError if the download fails or the repository has other columns or labels.
    """
    repository = _REPOSITORIES[dataset]
    splits = hub.load_splits(repository.name, revision)
    report.expected = FULL[dataset]
    if "test" in splits:
        examples = (e for split in ("train", "test") for e in _rows(repository, splits, split))
    else:
        items = list(_rows(repository, splits, "train"))
        divided = split_by_seed(items, seed, report)
        examples = (example._replace(split=split) for split, example in divided)
    if dataset in _BY_CLASS:
        examples = shuffled(list(examples), seed)
        report.notes.append(f"the examples, stored by class, are shuffled with seed {seed}")
    clean = _CLEAN.get(dataset, str)
    for example in examples:
        yield example._replace(text=clean(example.text))


def _rows(repository: _Repository, splits, split: str) -> Iterator[Example]:
    where = f"{repository.name} {split}"
    wanted = {*repository.texts, repository.label}
    hub.check_columns(where, splits[split].column_names, wanted)
    for number, row in enumerate(splits[split]):
        value = row[repository.label]
        if value not in repository.labels:
            accepted = ", ".join(map(str, repository.labels))
            raise unknown_label(str(value), accepted, where, number)
        if (label := repository.labels[value]) is not None:
            yield Example(split, " ".join(row[column] for column in repository.texts), label)

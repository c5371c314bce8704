"""Tasks of token classification (entities, parts of speech, chunks), from files or the hub."""

import itertools
import re
import sys
from collections.abc import Iterable

import readers
from arguments import DataArguments, TokenArguments
from readers import Split, Table, Task

from attention_dynamics.cli import InputError

TOKEN_TASKS = ("ner", "pos", "chunk")
OUTSIDE = "O"
_TAG = re.compile(r"[BIESLUMW](-.+)?")  # BIO, BIOES, BILOU, BMEWO and the like
_STARTS, _ENDS = "BSUW", "ESLUW"
# The columns of labels in the files of CoNLL's shared tasks (2003: word, pos, chunk, ner; 2000: the
# first three). A file with fewer columns has its label in the last one, and so has ner.
_CONLL_COLUMNS = {"pos": 1, "chunk": 2}


def load_token_task(
    data: DataArguments,
    tokens: TokenArguments,
    cache_dir: str | None = None,
    splits: Iterable[str] = ("train", "validation"),
) -> Task:
    """Load the task of labeled words that the command line names (ner by default).

    Args:
        data, tokens: the default column of words is tokens, form or the first one; that of labels
            {task_name}_tags, upos, that of ``_CONLL_COLUMNS`` or the second one.
        cache_dir: cache directory of the hub's library.
        splits: the splits to read; labels come from "train", which is always read too.

    The labels are those of the hub in their order, or those of "train" sorted. Labels of ner and
    chunk in other schemes than BIO are converted to it (see :func:`to_bio`).

    Raises InputError for a missing split or column, a malformed line, labels that mark no entities,
    and a label that "train" lacks: no model trained on it could predict that.
    """
    name = (data.task_name or "ner").lower()
    if name not in TOKEN_TASKS:
        raise InputError(f"--task_name {name} is not a task of words ({', '.join(TOKEN_TASKS)})")
    if data.task_dir:
        raise InputError("--task_dir is for GLUE: give --train_file and --validation_file")
    wanted = list(dict.fromkeys(("train", *splits)))
    tables = readers.read_splits(
        data, data.files, wanted, lambda path, _: readers.read_words(path), cache_dir
    )
    text, label = _columns(tables["train"], name, tokens)
    read = {split: _sentences(table, text, label) for split, table in tables.items()}
    where, rows = tables["train"].where, read["train"].labels
    names = tables["train"].label_names.get(label) or tuple(sorted({*itertools.chain(*rows)}))
    if len(names) < 2:
        raise InputError(f"{where} has {len(names)} different label(s): training needs two or more")
    if name != "pos":
        names = _convert(read, names, where)
    for split, (_, labels) in read.items():
        if unknown := {*itertools.chain(*labels)} - {*names}:
            raise readers.unknown_label(tables[split].where, min(unknown), names)
    return Task(name, names, {split: read[split] for split in splits})


def _columns(table: Table, task_name: str, tokens: TokenArguments) -> tuple[str, str]:
    present = list(table.rows[0][1])
    last = len(present) - 1
    conll = str(min(_CONLL_COLUMNS.get(task_name, last), last))
    likely = (f"{task_name}_tags", "upos", conll, *present[1:])
    text = next((name for name in ("tokens", "form") if name in present), present[0])
    label = next((name for name in likely if name in present[1:]), None)
    text, label = tokens.text_column_name or text, tokens.label_column_name or label
    if {text, label} <= {*present}:
        return text, label
    raise InputError(
        f"{table.where} has no words in column {text!r} with labels in {label!r}; it has "
        f"{', '.join(present[:12])}: choose with --text_column_name and --label_column_name"
    )


def _sentences(table: Table, text: str, label: str) -> Split:
    """Sentences that have words, from a column of lists of words and one of lists of labels."""
    names = table.label_names.get(label)
    sentences = Split([], [])
    for place, row in table.rows:
        words, labels = row.get(text), row.get(label)
        lists = isinstance(words, list) and isinstance(labels, list)
        if not lists or len(words) != len(labels) or not all(isinstance(w, str) for w in words):
            raise InputError(
                f"{place}: not a list of words and one of as many labels; choose the columns with "
                "--text_column_name and --label_column_name"
            )
        if words:
            sentences.texts.append(words)
            sentences.labels.append([names[one] if names else str(one) for one in labels])
    if not sentences.texts:
        raise InputError(f"{table.where} has no sentences")
    return sentences


# --- schemes of entity tags ---


def _convert(read: dict[str, Split], names: tuple[str, ...], where: str) -> tuple[str, ...]:
    """The names of the labels in the BIO scheme; converts the labels of ``read`` in place.

    Raises InputError for labels that mark no entities.
    """
    tagged = [name for name in names if name != OUTSIDE]
    types = [name for name in tagged if not _TAG.fullmatch(name)]
    if types and (OUTSIDE not in names or len(types) < len(tagged)):
        raise InputError(
            f"{where}: the label {types[0]!r} does not mark an entity (expected O, and tags such "
            "as B-PER and I-PER, or only types such as PER); fix the labels, choose the column "
            "with --label_column_name, or give --task_name pos if every word has a label"
        )
    if not types and _is_bio(tagged, read["train"].labels):
        return names
    prefix = "I-" if types else ""
    for split in read.values():
        split.labels[:] = [
            to_bio([tag if tag == OUTSIDE else prefix + tag for tag in row]) for row in split.labels
        ]
    shown = "labels without B- and I- (neighbors of a type are one entity)" if types else "tags"
    print(f"note: {shown} ({', '.join(tagged[:6])}) are converted to BIO", file=sys.stderr)
    converted = {start + (prefix + tag)[1:] for tag in tagged for start in "BI"}
    return tuple(sorted({OUTSIDE, *converted}))


def to_bio(tags: list[str]) -> list[str]:
    """A sentence's tags in the BIO scheme (B- begins every entity, I- continues it).

    Converts IOB1 (B- only between neighbors of a type), IOE, BIOES, BILOU and BMEWO: seqeval knows
    no L, U and M.
    """
    converted, before = [], OUTSIDE
    for tag in tags:
        begins = tag[0] in _STARTS or before[0] in _ENDS or _is_first(before, tag)
        converted.append(tag if tag == OUTSIDE else ("B" if begins else "I") + tag[1:])
        before = tag
    return converted


def _is_first(before: str, tag: str) -> bool:
    return before == OUTSIDE or before[1:] != tag[1:]  # of another type


def _is_bio(tagged: list[str], rows: list[list[str]]) -> bool:
    """Whether tags are BIO already: B and I only, and some B not after its own type.

    In IOB1, the scheme of CoNLL-2003's own files, every B follows an entity of its type.
    """
    pairs = (pair for row in rows for pair in itertools.pairwise([OUTSIDE, *row]))
    has_first = any(tag[0] == "B" and _is_first(before, tag) for before, tag in pairs)
    prefixes = {tag[0] for tag in tagged}
    return prefixes == {"B"} or (prefixes == {"B", "I"} and has_first)

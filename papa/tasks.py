"""The tasks by name: sentences and labels of GLUE, and the metrics of every task."""

from typing import NamedTuple

import numpy as np

from attention_dynamics.cli import InputError

IGNORED = -100  # the label of a position without one, as torch's cross entropy skips it


class Glue(NamedTuple):
    """A task of GLUE.

    Attributes:
        columns: the one or two columns of text, as the hub names them.
        labels: names in the order of their numbers; none for a regression.
        file_columns, file_label: the same columns in the tsv files of the distribution.
    """

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    file_columns: tuple[str, ...]
    file_label: str = "label"


_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
GLUE = {
    "cola": Glue(("sentence",), ("unacceptable", "acceptable"), ("sentence",)),
    "mnli": Glue(
        ("premise", "hypothesis"), ("entailment", "neutral", "contradiction"), _PAIR, "gold_label"
    ),
    "mrpc": Glue(_PAIR, ("not_equivalent", "equivalent"), ("#1 String", "#2 String"), "Quality"),
    "qnli": Glue(("question", "sentence"), _ENTAILMENT, ("question", "sentence")),
    "qqp": Glue(
        ("question1", "question2"),
        ("not_duplicate", "duplicate"),
        ("question1", "question2"),
        "is_duplicate",
    ),
    "rte": Glue(_PAIR, _ENTAILMENT, _PAIR),
    "sst2": Glue(("sentence",), ("negative", "positive"), ("sentence",)),
    "stsb": Glue(_PAIR, (), _PAIR, "score"),
    "wnli": Glue(_PAIR, _ENTAILMENT[::-1], _PAIR),
}
TOKEN_TASKS = ("ner", "pos", "chunk")

_MAIN = {
    "cola": "matthews_correlation",
    "mrpc": "f1",
    "qqp": "f1",
    "stsb": "pearson",
    "ner": "f1",
    "chunk": "f1",
}


def glue_name(task_name: str) -> str:
    """The name of a GLUE task however it is spelled (COLA, SST-2); InputError for another one."""
    name = task_name.lower().replace("-", "")
    if name not in GLUE:
        raise InputError(
            f"--task_name {task_name} is no task of GLUE: give one of {', '.join(GLUE)}; for a "
            "task of your own leave it out and give --train_file and --validation_file"
        )
    return name


def token_task_name(task_name: str) -> str:
    """ner, pos or chunk in whatever case; InputError for another one."""
    name = task_name.lower()
    if name not in TOKEN_TASKS:
        raise InputError(
            f"--task_name {task_name} is no task of labelled tokens: give one of "
            f"{', '.join(TOKEN_TASKS)}"
        )
    return name


def main_metric(task_name: str | None, entity_level: bool = False) -> str:
    """The metric that is a task's score: one of those of :func:`metrics`, :func:`token_metrics`.

    ``None`` is a classification of one's own. With ``entity_level`` (which only ner and chunk heed)
    the overall F1 has another name.
    """
    name = _MAIN.get(task_name, "accuracy")
    return f"overall_{name}" if entity_level and task_name in ("ner", "chunk") else name


def metrics(task_name: str | None, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """What GLUE reports for a task.

    Args:
        task_name: of GLUE; None for a task of one's own: accuracy, or for a regression the mean
            squared error and both correlations.
        logits: ``(examples, labels)``; one column is a regression.
        labels: ``(examples,)``.

    Returns:
        Matthews' correlation (cola), accuracy and F1 of the positive label (mrpc, qqp), Pearson's
        and Spearman's correlation (stsb), else accuracy; where there are two, also their mean as
        ``combined_score``, as in the library's GLUE script. A correlation that is undefined, since
        one side does not vary, is 0.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    logits, labels = np.asarray(logits), np.asarray(labels)
    if logits.shape[1] == 1:
        values = logits[:, 0]
        scores = {"pearson": _correlation("pearsonr", values, labels)}
        scores["spearmanr"] = _correlation("spearmanr", values, labels)
        if task_name is None:
            return {"mse": float(np.mean((values - labels) ** 2)), **scores}
    else:
        predicted = logits.argmax(1)
        if task_name == "cola":
            return {"matthews_correlation": float(matthews_corrcoef(labels, predicted))}
        scores = {"accuracy": float(np.mean(predicted == labels))}
        if task_name in ("mrpc", "qqp"):
            scores["f1"] = float(f1_score(labels, predicted, zero_division=0))
    if len(scores) > 1:
        scores["combined_score"] = float(np.mean(list(scores.values())))
    return scores


def _correlation(name: str, values: np.ndarray, labels: np.ndarray) -> float:
    from scipy import stats

    if np.ptp(values) == 0 or np.ptp(labels) == 0:
        return 0.0
    return float(getattr(stats, name)(values, labels)[0])


def token_metrics(
    task_name: str,
    logits: np.ndarray,
    labels: np.ndarray,
    names: tuple[str, ...],
    entity_level: bool = False,
) -> dict[str, float]:
    """The scores of labelled tokens; positions labelled -100 are left out.

    Args:
        task_name: for ner and chunk entities are counted, by seqeval: precision, recall, f1, and
            the accuracy over tokens. Tags of pos are no entities: accuracy.
        logits: ``(examples, len, labels)``.
        labels: ``(examples, len)``.
        names: of the labels, in the order of their numbers.
        entity_level: also ``{type}_precision``, ``_recall``, ``_f1`` and ``_number`` of each type
            of entity, beside ``overall_precision`` ...; of each tag for pos, beside its accuracy.
    """
    predicted, labels = np.asarray(logits).argmax(2), np.asarray(labels)
    counted = labels != IGNORED
    if task_name == "pos":
        return _tag_metrics(predicted[counted], labels[counted], names, entity_level)
    from seqeval import metrics as seqeval

    true, guessed = (
        [[names[label] for label in row[kept]] for row, kept in zip(table, counted, strict=True)]
        for table in (labels, predicted)
    )
    scores = {
        "precision": float(seqeval.precision_score(true, guessed, zero_division=0)),
        "recall": float(seqeval.recall_score(true, guessed, zero_division=0)),
        "f1": float(seqeval.f1_score(true, guessed, zero_division=0)),
        "accuracy": float(seqeval.accuracy_score(true, guessed)),
    }
    if not entity_level:
        return scores
    scores = {f"overall_{name}": value for name, value in scores.items()}
    report = seqeval.classification_report(true, guessed, output_dict=True, zero_division=0)
    for kind, row in report.items():
        if not kind.endswith(" avg"):
            scores |= _of_one(
                kind, row["precision"], row["recall"], row["f1-score"], row["support"]
            )
    return scores


def _of_one(name: str, precision, recall, f1, number) -> dict[str, float]:
    return {
        f"{name}_precision": float(precision),
        f"{name}_recall": float(recall),
        f"{name}_f1": float(f1),
        f"{name}_number": int(number),
    }


def _tag_metrics(predicted, labels, names, each_tag: bool) -> dict[str, float]:
    from sklearn.metrics import precision_recall_fscore_support

    scores = {"accuracy": float(np.mean(predicted == labels))}
    if each_tag:
        table = precision_recall_fscore_support(
            labels, predicted, labels=range(len(names)), zero_division=0
        )
        for name, *row in zip(names, *table, strict=True):
            scores |= _of_one(name, *row)
    return scores

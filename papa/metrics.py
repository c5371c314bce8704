"""The metrics of every task, from scikit-learn, scipy and seqeval."""

import numpy as np

IGNORED = -100  # the label of a position without one, as torch's cross entropy skips it

_MAIN = {"cola": "matthews_correlation", "stsb": "pearson"}
_MAIN |= dict.fromkeys(("mrpc", "qqp", "ner", "chunk"), "f1")


def main_metric(task_name: str | None, entity_level: bool = False) -> str:
    """The metric that is a task's score: one of those of :func:`metrics`, :func:`token_metrics`.

    ``None`` is your own classification task. ``entity_level`` changes the name for ner and chunk.
    """
    name = _MAIN.get(task_name, "accuracy")
    return f"overall_{name}" if entity_level and task_name in ("ner", "chunk") else name


def metrics(task_name: str | None, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The metrics that GLUE reports for a task.

    Args:
        task_name: of GLUE; None for your own task: accuracy, or for a regression the mean squared
            error and both correlations.
        logits, labels: ``(examples, labels)``, one column is a regression; ``(examples,)``.

    Returns Matthews' correlation (cola), accuracy and F1 of the positive label (mrpc, qqp),
    Pearson's and Spearman's correlation (stsb; 0 if one side does not vary), else accuracy; where
    there are two, also their mean as ``combined_score``, as in the library's GLUE script.
    """
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import f1_score, matthews_corrcoef

    logits, labels = np.asarray(logits), np.asarray(labels)
    if logits.shape[1] == 1:
        values = logits[:, 0]
        varies = np.ptp(values) > 0 and np.ptp(labels) > 0
        functions = {"pearson": pearsonr, "spearmanr": spearmanr}
        scores = {n: float(f(values, labels)[0]) if varies else 0.0 for n, f in functions.items()}
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


def token_metrics(
    task_name: str,
    logits: np.ndarray,
    labels: np.ndarray,
    names: tuple[str, ...],
    entity_level: bool = False,
) -> dict[str, float]:
    """The scores of labeled tokens, without the positions labeled -100.

    Args:
        task_name: pos: accuracy. ner and chunk: precision, recall and F1 of entities by seqeval,
            and the accuracy over tokens.
        logits: ``(examples, len, labels)``.
        labels: ``(examples, len)``.
        names: of the labels, in the order of their numbers; for entities in the BIO scheme.
        entity_level: add ``{type}_precision``, ``_recall``, ``_f1`` and ``_number`` of each type
            of entity (pos: of each tag), and rename the others to ``overall_precision`` ...
    """
    predicted, labels = np.asarray(logits).argmax(2), np.asarray(labels)
    used = labels != IGNORED
    if task_name == "pos":
        from sklearn.metrics import classification_report

        true, guessed, prefix = labels[used], predicted[used], ""
        scores = {"accuracy": float(np.mean(guessed == true))}
        tags = {"labels": range(len(names)), "target_names": names}
    else:
        from seqeval import metrics as seqeval
        from seqeval.metrics import classification_report

        true, guessed = (
            [[names[label] for label in row[of]] for row, of in zip(table, used, strict=True)]
            for table in (labels, predicted)
        )
        scores = {
            "precision": float(seqeval.precision_score(true, guessed, zero_division=0)),
            "recall": float(seqeval.recall_score(true, guessed, zero_division=0)),
            "f1": float(seqeval.f1_score(true, guessed, zero_division=0)),
            "accuracy": float(seqeval.accuracy_score(true, guessed)),
        }
        tags, prefix = {}, "overall_"
    if not entity_level:
        return scores
    scores = {f"{prefix}{name}": value for name, value in scores.items()}
    report = classification_report(true, guessed, output_dict=True, zero_division=0, **tags)
    for name, row in report.items():
        if name != "accuracy" and not name.endswith(" avg"):
            for key, value in zip(("precision", "recall", "f1"), row.values(), strict=False):
                scores[f"{name}_{key}"] = float(value)
            scores[f"{name}_number"] = int(row["support"])
    return scores

"""How well a model's logits match gold labels and its teacher: classes, labels, scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    matthews_corrcoef,
    mean_absolute_error,
    mean_squared_error,
    precision_recall_fscore_support,
)

from distillkit.data.scores import micro_f1, pearson, spearman
from distillkit.recipe import Task


def metrics(
    task: Task,
    logits: np.ndarray,
    gold: np.ndarray,
    labels: Sequence[str],
    teacher_logits: np.ndarray | None = None,
) -> dict[str, Any]:
    """Measure a model with the metrics of its task.

    Args:
        task: The kind of task.
        logits: (N, C) float.
        gold: As `data.gold.gold_of` gives it, nothing missing.
        labels: C names.
        teacher_logits: (N, C) float of the teacher on the same rows.

    Returns:
        The metrics of `classification_metrics`, `multi_label_metrics` or `regression_metrics`. All
        have `rows` and the task's score (`recipe.SCORES`).
    """
    if task == "regression":
        return regression_metrics(logits, gold, teacher_logits)
    measure = classification_metrics if task == "classification" else multi_label_metrics
    return measure(logits, gold, labels, teacher_logits)


def classification_metrics(
    logits: np.ndarray,
    gold: np.ndarray,
    labels: Sequence[str],
    teacher_logits: np.ndarray | None = None,
) -> dict[str, Any]:
    """Measure a classifier.

    Args:
        logits: (N, C) float.
        gold: Class numbers, (N,) int.
        labels: C names.
        teacher_logits: (N, C) float of the teacher on the same rows.

    Returns:
        `rows`; 0 to 1: `accuracy`, `macro_f1` (over the C classes; 0 for one that neither gold nor
        the model has, which scikit-learn leaves out), `f1` (of the second label, for two classes),
        `calibration_error`; -1 to 1: `matthews`, 0 if gold or the answers are constant; `classes`
        (precision, recall, f1, rows of each label); `confusion` (rows gold, columns found, in the
        order of `labels`). With `teacher_logits` also
        `agreement` (share of rows with the teacher's answer) and `logit_correlation`, -1 to 1.
    """
    found, ids = logits.argmax(1), list(range(len(labels)))
    report: dict[str, Any] = {
        "rows": len(gold),
        "accuracy": float(accuracy_score(gold, found)),
        "macro_f1": float(f1_score(gold, found, labels=ids, average="macro", zero_division=0)),
        "matthews": _matthews(gold, found),
    }
    if len(labels) == 2:
        report["f1"] = float(f1_score(gold, found, pos_label=1, zero_division=0))
    report["calibration_error"] = expected_calibration_error(
        softmax(logits.astype(np.float64), axis=1), gold
    )
    if teacher_logits is not None:
        report["agreement"] = agreement("classification", logits, teacher_logits)
        # A number added to all logits of a row changes no probability.
        report["logit_correlation"] = logit_correlation(
            _rows_centred(logits), _rows_centred(teacher_logits)
        )
    report["classes"] = _by_class(gold, found, labels)
    report["confusion"] = confusion_matrix(gold, found, labels=ids).tolist()
    return report


def multi_label_metrics(
    logits: np.ndarray,
    gold: np.ndarray,
    labels: Sequence[str],
    teacher_logits: np.ndarray | None = None,
) -> dict[str, Any]:
    """Measure a model that gives each row the labels with a positive logit.

    Args:
        logits: (N, C) float.
        gold: 0 and 1, (N, C).
        labels: C names.
        teacher_logits: (N, C) float of the teacher on the same rows.

    Returns:
        `rows`; 0 to 1: `micro_f1` (over all answers), `macro_f1` (mean over the C labels),
        `exact_match` (share of rows with exactly the gold labels), `calibration_error` (of every
        label's answer, yes or no); `classes` (precision, recall, f1, rows of each label). With
        `teacher_logits` also `agreement` (share of rows with exactly the teacher's labels) and
        `logit_correlation`, -1 to 1.
    """
    found, gold = logits > 0, gold > 0
    yes = expit(logits.astype(np.float64)).ravel()
    # Column by column: scikit-learn reads a single column as one binary task.
    columns = zip(labels, gold.T, found.T, strict=True)
    classes = {name: _by_class(want, have, ["no", "yes"])["yes"] for name, want, have in columns}
    report: dict[str, Any] = {
        "rows": len(gold),
        "micro_f1": micro_f1(found, gold),
        "macro_f1": float(np.mean([row["f1"] for row in classes.values()])),
        "exact_match": float((found == gold).all(axis=1).mean()),
        "calibration_error": expected_calibration_error(np.stack([1 - yes, yes], 1), gold.ravel()),
    }
    if teacher_logits is not None:
        report["agreement"] = agreement("multi-label", logits, teacher_logits)
        report["logit_correlation"] = logit_correlation(logits, teacher_logits)
    report["classes"] = classes
    return report


def regression_metrics(
    logits: np.ndarray, gold: np.ndarray, teacher_logits: np.ndarray | None = None
) -> dict[str, Any]:
    """Measure a model that gives each row a score.

    Args:
        logits: Scores, (N, 1) float.
        gold: (N,) float.
        teacher_logits: Scores of the teacher on the same rows, (N, 1) float.

    Returns:
        `rows`; `pearson` and `spearman`, correlations with gold, -1 to 1, 0 if either is constant;
        `mse` and `mae`, in the scores' own unit, squared and not. With `teacher_logits` also
        `agreement`, Pearson's correlation with the teacher.
    """
    found = logits[:, 0].astype(np.float64)
    report: dict[str, Any] = {
        "rows": len(gold),
        "pearson": pearson(found, gold),
        "spearman": spearman(found, gold),
        "mse": float(mean_squared_error(gold, found)),
        "mae": float(mean_absolute_error(gold, found)),
    }
    if teacher_logits is not None:
        report["agreement"] = agreement("regression", logits, teacher_logits)
    return report


def agreement(task: Task, logits: np.ndarray, teacher_logits: np.ndarray) -> float:
    """Return the fraction of rows with the teacher's answer; for scores Pearson's correlation."""
    if task == "regression":
        return pearson(logits[:, 0], teacher_logits[:, 0])
    if task == "multi-label":
        return float(((logits > 0) == (teacher_logits > 0)).all(axis=1).mean())
    return float((logits.argmax(1) == teacher_logits.argmax(1)).mean())


def logit_correlation(logits: np.ndarray, teacher_logits: np.ndarray) -> float:
    """Return Pearson's correlation of a model's logits with its teacher's.

    Each column is centred on its own mean; then all columns count together. Finer than accuracy,
    it tells students apart on few rows. A constant factor changes nothing.

    Returns:
        -1 to 1; 0 if either (N, C) has equal rows. For two classes with centred rows it is the
        correlation of the differences of the two logits.

    >>> logit_correlation(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[5.0, 1.0], [1.0, 9.0]]))
    1.0
    """
    if not np.ptp(logits, axis=0).any() or not np.ptp(teacher_logits, axis=0).any():
        return 0.0
    ours, theirs = (
        x.astype(np.float64) - x.mean(axis=0, dtype=np.float64) for x in (logits, teacher_logits)
    )
    return pearson(ours.ravel(), theirs.ravel())


def _matthews(gold: np.ndarray, found: np.ndarray) -> float:
    same = (gold == gold[0]).all() and (found == gold[0]).all()  # of this scikit-learn warns
    return 0.0 if same else float(matthews_corrcoef(gold, found))


def _rows_centred(logits: np.ndarray) -> np.ndarray:
    return logits - logits.mean(axis=1, keepdims=True)


def _by_class(gold: np.ndarray, found: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """Return precision, recall, F1 and gold rows of each class."""
    columns = precision_recall_fscore_support(
        gold, found, labels=list(range(len(labels))), zero_division=0
    )
    return {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "rows": int(n)}
        for name, p, r, f, n in zip(labels, *columns, strict=True)
    }


def expected_calibration_error(
    probabilities: np.ndarray, gold: np.ndarray, bins: int = 15
) -> float:
    """Return the mean distance between a classifier's confidence and its accuracy.

    Ours because scikit-learn's `calibration_curve` returns no number of rows a bin to weight by.

    Args:
        probabilities: (N, C), rows sum to 1.
        gold: Class numbers, (N,) int.
        bins: Equal-width bins of the top probability.

    Returns:
        Mean over bins, weighted by rows, 0 to 1.

    Source: Guo et al. 2017 (arXiv 1706.04599), equation 3.
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == gold
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(place, weights=right, minlength=bins) - np.bincount(
        place, weights=confidence, minlength=bins
    )
    return float(np.abs(gap).sum() / len(gold))

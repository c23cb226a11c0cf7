"""How good a classifier's logits are against gold labels and against the teacher."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support


def classification_metrics(
    logits: np.ndarray, gold: np.ndarray, labels: Sequence[str], teacher_logits: np.ndarray | None = None
) -> dict[str, Any]:
    """Measure a classifier.

    Args:
        logits: (N, C) float.
        gold: Class numbers, (N,) int.
        labels: C names.
        teacher_logits: (N, C) float of the teacher on the same rows.

    Returns:
        `rows`, `accuracy`, `macro_f1` (over the C classes), `f1` (two classes: of the second label), `calibration_error`,
        `agreement` (share of rows with the teacher's answer; with `teacher_logits` only), all 0 to 1;
        `classes` (precision, recall, f1, rows of each label); `confusion` (rows gold, columns found, in the order of `labels`).
    """
    found, ids = logits.argmax(1), list(range(len(labels)))
    report: dict[str, Any] = {
        "rows": len(gold),
        "accuracy": float(accuracy_score(gold, found)),
        "macro_f1": float(f1_score(gold, found, labels=ids, average="macro", zero_division=0)),
    }
    if len(labels) == 2:
        report["f1"] = float(f1_score(gold, found, pos_label=1, zero_division=0))
    report["calibration_error"] = expected_calibration_error(softmax(logits.astype(np.float64), axis=1), gold)
    if teacher_logits is not None:
        report["agreement"] = float((found == teacher_logits.argmax(1)).mean())
    columns = precision_recall_fscore_support(gold, found, labels=ids, zero_division=0)
    report["classes"] = {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "rows": int(n)}
        for name, p, r, f, n in zip(labels, *columns, strict=True)
    }
    report["confusion"] = confusion_matrix(gold, found, labels=ids).tolist()
    return report


def expected_calibration_error(probabilities: np.ndarray, gold: np.ndarray, bins: int = 15) -> float:
    """Mean distance between how sure a classifier is and how often it is right.

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
    gap = np.bincount(place, weights=right, minlength=bins) - np.bincount(place, weights=confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(gold))

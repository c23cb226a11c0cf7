"""The one number by which epochs, and teachers, are compared: a task's dev score."""

import numpy as np
from scipy.stats import rankdata

from distillkit.recipe import Task


def dev_score(task: Task, logits: np.ndarray, gold: np.ndarray, score: str = "") -> float:
    """Score logits by what the task's `recipe.SCORES` names; higher is better.

    Args:
        task: The kind of task.
        logits: (N, C) float.
        gold: As `data.gold.gold_of` gives it, nothing missing.
        score: spearman: that of a regression instead.

    Returns:
        Accuracy, or micro-F1 of the labels whose probability is above 0.5, 0 to 1; of a regression
        Pearson's correlation, -1 to 1, or Spearman's.
    """
    if task == "classification":
        return float((logits.argmax(1) == gold).mean())
    if task == "regression":
        return (spearman if score == "spearman" else pearson)(logits[:, 0], gold)
    return micro_f1(logits > 0, gold > 0)


def micro_f1(found: np.ndarray, gold: np.ndarray) -> float:
    """Return F1 over all labels of all rows, 0 to 1; both bool, (N, C). 1 if there are none."""
    total = int(found.sum()) + int(gold.sum())
    return 2 * int((found & gold).sum()) / total if total else 1.0


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's correlation of two columns, (N,), -1 to 1; 0 if one is constant."""
    if not len(a) or not np.ptp(a) or not np.ptp(b):
        return 0.0
    return float(np.corrcoef(a.astype(np.float64), b.astype(np.float64))[0, 1])


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation of two columns, (N,), -1 to 1; 0 if one is constant."""
    return pearson(rankdata(a), rankdata(b))

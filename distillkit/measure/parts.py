"""A task's score as a function of means over rows, which a bootstrap resamples fast."""

from collections.abc import Callable

import numpy as np

from distillkit.recipe import Task

_NO_VARIANCE = 1e-12  # of values whose variance over all rows is 1; below it is rounding alone


def row_parts(task: Task, logits: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return what each row adds to a model's score.

    Args:
        task: The kind of task.
        logits: (N, C) float.
        gold: As `data.gold.gold_of` gives it, nothing missing.

    Returns:
        Classification: whether the answer is right, (N,) bool; accuracy is its mean. Multi-label:
        the labels found rightly, and the sum of labels found and gold, (N, 2). Regression: x, y,
        x^2, y^2 and x y, (N, 5) float64, for the score found x and gold y. Both are standardised so
        that no digits are lost; a constant is 0.
    """
    if task == "classification":
        return right_rows(task, logits, gold)
    if task == "multi-label":
        found, wanted = logits > 0, gold > 0
        return np.stack([(found & wanted).sum(1), found.sum(1) + wanted.sum(1)], axis=1)
    x, y = _standard(logits[:, 0]), _standard(gold)
    return np.stack([x, y, x * x, y * y, x * y], axis=1)


def right_rows(task: Task, logits: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return which rows have the gold class, or exactly the gold labels, (N,) bool."""
    if task == "classification":
        return logits.argmax(1) == gold
    return ((logits > 0) == (gold > 0)).all(1)


def _standard(values: np.ndarray) -> np.ndarray:
    values = values.astype(np.float64)
    if not np.ptp(values):
        return np.zeros_like(values)
    return (values - values.mean()) / values.std()


def _micro_f1(means: np.ndarray) -> np.ndarray:
    right, total = np.moveaxis(means, -1, 0)
    return np.where(total > 0, 2 * right / np.where(total > 0, total, 1), 1.0)


def _pearson(means: np.ndarray) -> np.ndarray:
    x, y, xx, yy, xy = np.moveaxis(means, -1, 0)
    variance, other = xx - x * x, yy - y * y
    varies = (variance > _NO_VARIANCE) & (other > _NO_VARIANCE)
    return np.where(varies, (xy - x * y) / np.sqrt(np.where(varies, variance * other, 1)), 0.0)


# From the means of K parts, (..., K), to the dev score, (...); None: the mean.
SCORE_OF_PARTS: dict[Task, Callable[[np.ndarray], np.ndarray] | None] = {
    "classification": None,
    "multi-label": _micro_f1,
    "regression": _pearson,
}

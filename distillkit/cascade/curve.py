"""Accuracy and cost of a cascade at every threshold."""

from dataclasses import dataclass

import numpy as np

from distillkit.runtime.answers import confidence


@dataclass(frozen=True)
class Curve:
    """A cascade at every distinct threshold, from the student alone to the teacher alone.

    Attributes:
        thresholds: Rows whose confidence is below go to the teacher, (K,) float, rising from 0.
        shares: Of the rows that go there, (K,) float, 0 to 1.
        accuracies: Of the answers that come out, (K,) float, 0 to 1.
    """

    thresholds: np.ndarray
    shares: np.ndarray
    accuracies: np.ndarray


def cascade_curve(
    student: np.ndarray, teacher: np.ndarray, gold: np.ndarray, temperature: float
) -> Curve:
    """Say what a cascade would have answered at every threshold.

    Args:
        student: Logits, (N, C) float.
        teacher: Its teacher's, (N, C) float, in the same order of classes.
        gold: Class numbers, (N,) int.
        temperature: That the student's logits are divided by.

    Returns:
        The curve. Rows of equal confidence go to the teacher together, so K is at most N + 1.
    """
    sure = confidence(student, temperature)
    order = np.argsort(sure, kind="stable")
    gain = (teacher.argmax(1) == gold)[order].astype(int) - (student.argmax(1) == gold)[order]
    right = int((student.argmax(1) == gold).sum()) + np.concatenate([[0], gain.cumsum()])
    # Between two rows that are equally sure no threshold can come.
    ends = np.flatnonzero(np.concatenate([[True], np.diff(sure[order]) > 0, [True]]))
    # Halfway to the next row, so that rounding on another machine moves none across; above 1 all
    # go.
    above = np.concatenate([[0.0], (sure[order][:-1] + sure[order][1:]) / 2, [2.0]])
    return Curve(above[ends], ends / len(gold), right[ends] / len(gold))


def least_share(curve: Curve, accuracy: float) -> int | None:
    """Return the first point of a curve with so much accuracy; None where there is none."""
    enough = np.flatnonzero(curve.accuracies >= accuracy - 1e-12)
    return int(enough[0]) if len(enough) else None


def best_within(curve: Curve, share: float) -> int:
    """Return the most accurate point within a share of rows; of equals the one with fewest rows."""
    return int(curve.accuracies[curve.shares <= share + 1e-12].argmax())


def asks(student: np.ndarray, temperature: float, threshold: float) -> np.ndarray:
    """Return which rows go to the teacher, (N,) bool: those with confidence below the threshold."""
    return confidence(student, temperature) < threshold

"""Accuracy and cost of a cascade at every threshold."""

from dataclasses import dataclass

import numpy as np

from distillkit.runtime.answers import confidence


@dataclass(frozen=True)
class Curve:
    """A cascade at every distinct threshold, from the student alone to the teacher alone.

    Attributes:
        thresholds: Rows with confidence below it go to the teacher, (K,) float, rising from 0.
        deferral_rates: Fractions of rows that go to the teacher, (K,) float, 0 to 1.
        accuracies: Of the cascade's answers, (K,) float, 0 to 1.
    """

    thresholds: np.ndarray
    deferral_rates: np.ndarray
    accuracies: np.ndarray


def cascade_curve(
    student: np.ndarray, teacher: np.ndarray, gold: np.ndarray, temperature: float
) -> Curve:
    """Compute what a cascade would have answered at every threshold.

    Args:
        student: Logits, (N, C) float.
        teacher: Its teacher's, (N, C) float, in the same order of classes.
        gold: Class numbers, (N,) int.
        temperature: Divides the student's logits.

    Returns:
        The curve. Rows of equal confidence go to the teacher together, so K is at most N + 1.
    """
    confident = confidence(student, temperature)
    order = np.argsort(confident, kind="stable")
    gain = (teacher.argmax(1) == gold)[order].astype(int) - (student.argmax(1) == gold)[order]
    right = int((student.argmax(1) == gold).sum()) + np.concatenate([[0], gain.cumsum()])
    # No threshold can separate two rows of equal confidence.
    ends = np.flatnonzero(np.concatenate([[True], np.diff(confident[order]) > 0, [True]]))
    # Halfway to the next row, so that rounding on another machine moves no row. Above 1 all go.
    above = np.concatenate([[0.0], (confident[order][:-1] + confident[order][1:]) / 2, [2.0]])
    return Curve(above[ends], ends / len(gold), right[ends] / len(gold))


def first_reaching(curve: Curve, accuracy: float) -> int | None:
    """Return the point of least deferral with this accuracy; None where there is none."""
    enough = np.flatnonzero(curve.accuracies >= accuracy - 1e-12)
    return int(enough[0]) if len(enough) else None


def best_within(curve: Curve, deferral_rate: float) -> int:
    """Return the most accurate point up to a deferral rate; of equals the one that defers least."""
    return int(curve.accuracies[curve.deferral_rates <= deferral_rate + 1e-12].argmax())


def teachers_accuracy(
    student: np.ndarray, teacher: np.ndarray, gold: np.ndarray, temperature: float
) -> dict[str, float]:
    """Choose the threshold of least deferral that has the teacher's own accuracy.

    Args:
        student: As in `cascade_curve`.
        teacher: As there.
        gold: As there.
        temperature: As there.

    Returns:
        What a bundle's manifest keeps: `temperature`, `threshold`, and on these rows `accuracy` and
            `deferral_rate`.
    """
    curve = cascade_curve(student, teacher, gold, temperature)
    point = first_reaching(curve, float((teacher.argmax(1) == gold).mean())) or 0
    return {
        "temperature": temperature,
        "threshold": float(curve.thresholds[point]),
        "accuracy": float(curve.accuracies[point]),
        "deferral_rate": float(curve.deferral_rates[point]),
    }


def asks(student: np.ndarray, temperature: float, threshold: float) -> np.ndarray:
    """Return which rows go to the teacher, (N,) bool: those with confidence below the threshold."""
    return confidence(student, temperature) < threshold

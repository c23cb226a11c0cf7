"""Labels that look wrong: what models that never saw a row say of its label."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from distillkit.processes import progress_bar

FOLDS = 5
# Rows to learn from and rows to answer, as numbers; the answers are log probabilities, (M, C).
Fit = Callable[[np.ndarray, np.ndarray], np.ndarray]
_LEAST = -14.0  # of a log probability, about 1e-6: one model alone rules nothing out


def cross_fitted(
    fits: Sequence[Fit], gold: np.ndarray, classes: int, groups: np.ndarray, seed: int
) -> np.ndarray:
    """Return the probabilities of rows by models that have not learnt from them.

    The log probabilities of several models are added, with the weights, 0 or more, under which the
    labels are likeliest.

    Args:
        fits: The models.
        gold: Class numbers, (N,) int.
        classes: C.
        groups: Rows of one number stay in one fold: a copy does not vouch for a label. (N,) int.
        seed: Of the folds.

    Returns:
        (N, C) float; NaN for a row whose class no other fold has.
    """
    fold = _folds(gold, groups, seed)
    logs = np.full((len(fits), len(gold), classes), np.nan)
    for k in progress_bar(range(FOLDS), desc="labels: folds", unit="fold", leave=False):
        learn, answer = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        if len(np.unique(gold[learn])) < 2 or not len(answer):
            continue
        answer = answer[np.isin(gold[answer], gold[learn])]
        for i, fit in enumerate(fits):
            logs[i, answer] = np.maximum(fit(learn, answer), _LEAST)
    there = ~np.isnan(logs[0, :, 0])
    if not there.any():
        return logs[0]
    rows, own = logs[:, there], gold[there]

    def loss(weights: np.ndarray) -> float:
        mixed = log_softmax(np.tensordot(weights, rows, 1), axis=1)
        return -float(mixed[np.arange(len(own)), own].mean())

    even = np.full(len(fits), 1 / len(fits))
    weights = minimize(loss, even, method="L-BFGS-B", bounds=[(0, None)] * len(fits)).x
    return np.exp(log_softmax(np.tensordot(weights, logs, 1), axis=1))


def _folds(gold: np.ndarray, groups: np.ndarray, seed: int) -> np.ndarray:
    """Return each row's fold, (N,) int; those of a class are spread over all."""
    first, group = np.unique(groups, return_index=True, return_inverse=True)[1:]
    order = np.random.default_rng(seed).permutation(len(first))
    order = order[np.argsort(gold[first[order]], kind="stable")]
    fold = np.empty(len(first), int)
    fold[order] = np.arange(len(first)) % FOLDS
    return fold[group]


def unlikely(probabilities: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Say which labels another label contradicts with confidence.

    A label is contradicted if another one is more probable than it is on average on the rows that
    have it, and is the likeliest such label.

    Args:
        probabilities: From `cross_fitted`, (N, C).
        gold: Class numbers, (N,) int.

    Returns:
        (N,) bool; false where nothing is known.

    Source: Northcutt et al. 2021 (arXiv 1911.00068), section 3.1, the confident joint.
    """
    known = ~np.isnan(probabilities[:, 0])
    usual = np.full(probabilities.shape[1], np.inf)
    for label in np.unique(gold[known]):
        usual[label] = probabilities[known & (gold == label), label].mean()
    sure = np.where(probabilities >= usual, probabilities, -1.0)  # NaN is not
    return (sure.max(axis=1) >= 0) & (sure.argmax(axis=1) != gold)

"""Significance of a difference between two models, temperature scaling, label sets."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from scipy.stats import binomtest

# Bounds of a fitted temperature, which would go to infinity for a classifier that is always wrong.
TEMPERATURES = (0.01, 100.0)
# For which a bundle keeps what label sets need.
COVERAGES = tuple(percent / 100 for percent in range(50, 100))
_COUNTS_AT_ONCE = 2**22  # numbers that a part of the resamples holds


@dataclass(frozen=True)
class Interval:
    """A mean difference, and the percentile interval of its bootstrap."""

    mean: float
    low: float
    high: float


def paired_bootstrap(
    first: np.ndarray,
    second: np.ndarray,
    score: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return the difference of two models' scores with its interval, over rows and seeds.

    Each resample draws N rows and S seeds, both with replacement, scores both models on the rows
    with each seed, and takes the mean of first - second over the seeds. Both models share the drawn
    rows and seeds. Ours because `scipy.stats.bootstrap` resamples one axis only.

    Args:
        first: Score of each row with each seed, (S, N); 1 for right and 0 for wrong gives accuracy.
            With `score` its K parts, (S, N, K).
        second: The other model's, of the same shape.
        score: Turns the means of the K parts over rows, (..., K), into the score, (...), such as F1
            or Pearson's correlation; None: the score is the mean.
        resamples: How many.
        level: Share of the resamples between the bounds, 0 to 1.
        seed: Draws the resamples.

    Raises:
        ValueError: The shapes differ or are empty.

    Source: Efron & Tibshirani 1993, chapter 13 (percentiles); Koehn 2004 (paired, of a score that
    is no mean).
    """
    expected = "(S, N)" if score is None else "(S, N, K)"
    if first.shape != second.shape or first.ndim != expected.count(",") + 1 or not first.size:
        raise ValueError(
            f"scores are {first.shape} and {second.shape}: expected the same {expected}, not empty"
        )
    parts = np.stack([first, second]).astype(np.float64)  # (2, S, N, K)
    if score is None:
        # For a mean only the difference matters, and it has fewer distinct rows than both models.
        parts = (parts[:1] - parts[1:])[..., None]  # (1, S, N, 1)
    _, seeds, rows, _ = parts.shape

    def differences(means: np.ndarray) -> np.ndarray:
        """From the means of the parts, (R, 2, S, K), the difference of each seed, (R, S)."""
        return means[:, 0, :, 0] if score is None else score(means[:, 0]) - score(means[:, 1])

    # Rows with the same parts in both models and all seeds are interchangeable, so drawing how many
    # of each sort there are is drawing rows. (G, 2SK), (G,)
    by_row = np.moveaxis(parts, 2, 0).reshape(rows, -1)
    sorts, counts = np.unique(by_row, axis=0, return_counts=True)
    rng = np.random.default_rng(seed)
    drawn = np.empty(resamples)
    part = max(1, _COUNTS_AT_ONCE // len(counts))
    for start in range(0, resamples, part):
        size = min(part, resamples - start)
        means = rng.multinomial(rows, counts / rows, size=size) @ sorts / rows  # (R, 2SK)
        weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=size) / seeds  # (R, S)
        found = differences(means.reshape(size, len(parts), seeds, -1))
        drawn[start : start + size] = (found * weights).sum(1)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(differences(parts.mean(2)[None]).mean()), float(low), float(high))


def mcnemar(first: np.ndarray, second: np.ndarray) -> float:
    """Return the exact two-sided p value of two classifiers being right equally often.

    Args:
        first: Whether it is right on each row, (N,) bool.
        second: The other one, (N,) bool.

    Source: McNemar 1947; Dietterich 1998, section 3.1; the exact binomial form.

    >>> mcnemar(np.array([True, True, True, False]), np.array([False, False, True, False]))
    0.5
    """
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    if not only_first + only_second:
        return 1.0
    return float(binomtest(only_first, only_first + only_second, 0.5).pvalue)


def negative_log_likelihood(
    logits: np.ndarray, gold: np.ndarray, temperature: float = 1.0
) -> float:
    """Return the mean of -log p(gold), in nats; logits (N, C), gold (N,) int."""
    scaled = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-scaled[np.arange(len(gold)), gold].mean())


def fit_temperature(logits: np.ndarray, gold: np.ndarray) -> float:
    """Find the temperature, within `TEMPERATURES`, with the least negative log likelihood.

    It is above 1 if the classifier, logits (N, C) and gold (N,) int, is overconfident, and 1 where
    every row is right: such rows do not say how often it will be wrong.

    Source: Guo et al. 2017 (arXiv 1706.04599), section 4.2.
    """
    if (logits.argmax(1) == gold).all():
        return 1.0
    # The likelihood is concave in 1 / T, so it has one top over log T as well.
    found = minimize_scalar(
        lambda log_t: negative_log_likelihood(logits, gold, float(np.exp(log_t))),
        bounds=tuple(np.log(TEMPERATURES)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return float(np.exp(found.x))


def cross_scaled(logits: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Divide each row's logits by the temperature of the other half of the rows.

    Args:
        logits: (N, C) float; a single row stays as it is.
        gold: Class numbers, (N,) int.
    """
    scaled = logits.astype(np.float64)
    if len(gold) < 2:
        return scaled
    half = np.random.default_rng(0).permutation(len(gold)) % 2
    for mine in (half == 0, half == 1):
        scaled[mine] = logits[mine] / fit_temperature(logits[~mine], gold[~mine])
    return scaled


def coverage_floors(logits: np.ndarray, gold: np.ndarray) -> dict[str, float]:
    """Return, by coverage, the probability from which a label belongs to the set.

    The sets hold the right label of at least that share of new rows, if those are drawn as these
    were, and if these rows had no part in choosing the model.

    Args:
        logits: Divided by the temperature, (N, C) float.
        gold: Class numbers, (N,) int.

    Returns:
        Of each of `COVERAGES`, as in "0.95", as far as N allows: 99 rows for the last.

    Source: Angelopoulos & Bates 2021 (arXiv 2107.07511), section 1, with 1 - p(gold) as the score
    (LAC, Sadinle et al. 2019).
    """
    falling = np.sort(softmax(logits.astype(np.float64), axis=1)[np.arange(len(gold)), gold])[::-1]
    # Rounded down, and so to wider sets: other machines compute other last digits.
    ranks = {f"{c:.2f}": int(np.ceil((len(gold) + 1) * c - 1e-9)) for c in COVERAGES}
    return {
        name: float(np.floor(falling[k - 1] * 1e6) / 1e6)
        for name, k in ranks.items()
        if k <= len(gold)
    }

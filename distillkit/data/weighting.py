"""Several teachers of a store become one: by given weights, dev scores, or confidence."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.special import expit, softmax, xlog1py, xlogy

from distillkit.data.gold import gold_of
from distillkit.data.logits import (
    chosen_teachers,
    each_teacher,
    join_logits,
    joined_labels,
    store_task,
)
from distillkit.data.scores import chance, dev_score
from distillkit.data.scratch import TEMPORARY, Scratch
from distillkit.errors import InputError
from distillkit.recipe import LossConfig

# Keeps the mean where no teacher knows anything of a row, and is lost beside any certainty worth
# the name.
_LEAST = 1e-6
_BLOCK = 65_536  # rows computed together


def teacher_targets(
    table: pa.Table,
    store: Path,
    loss: LossConfig,
    dev: pa.Table,
    scratch: Scratch = TEMPORARY,
) -> tuple[np.ndarray, dict[str, float]]:
    """Look up each row's logits and combine the teachers as `loss.teacher_weighting` says.

    Args:
        table: Canonical table of N rows, in any order.
        store: A logit store.
        loss: `teachers` and `teacher_weighting`.
        dev: Labelled; with weighting `dev` its rows must be in the store as well.
        scratch: Where the logits are kept.

    Returns:
        Logits, (N, C) float32, and the weight of each teacher that `given` or `dev` came to, by
        name; none with `confidence`.

    Raises:
        InputError: As for `join_logits`; or with `dev` a dev row has no logits, or no teacher is
            above chance.
    """
    loss.check_task(store_task(store, loss.teacher_weights()))
    weights = chosen_teachers(store, loss.teacher_weights())
    if loss.teacher_weighting == "confidence" and len(weights) > 1:
        return join_by_confidence(table, store, weights, scratch), {}
    if loss.teacher_weighting == "dev" and len(weights) > 1:
        weights = dev_weights(dev, store, weights)
    total = sum(weights.values())
    return join_logits(table, store, weights, scratch), {
        name: weight / total for name, weight in weights.items()
    }


def dev_weights(dev: pa.Table, store: Path, teachers: dict[str, float]) -> dict[str, float]:
    """Weigh teachers by how far their dev score is above chance; at chance the weight is 0.

    The score is measured on the student's own dev set, which the teachers' best epochs were perhaps
    chosen on as well: it flatters each of them, and what is compared are the flattered scores.

    Args:
        dev: Labelled table whose rows are in the store.
        store: A logit store.
        teachers: Which, by name.

    Returns:
        Accuracy above the share of the commonest class, micro-F1, or Pearson's correlation, by
        name; above 0.

    Raises:
        InputError: A dev row has no logits, or no teacher is above chance.
    """
    task = store_task(store, teachers)
    gold = gold_of(dev, joined_labels(store, teachers), task)
    try:
        scores = {
            name: dev_score(task, logits, gold)
            for name, _, logits in each_teacher(dev, store, teachers)
        }
    except InputError as error:
        raise InputError(
            f"loss.teacher_weighting is dev, which compares the teachers on the dev set: {error}"
        ) from None
    guess = chance(task, gold)
    weights = {name: score - guess for name, score in scores.items() if score > guess}
    if not weights:
        said = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
        raise InputError(
            f"{store}: loss.teacher_weighting is dev, but no teacher is above {guess:.3f}, which is chance, on dev: {said}; choose given, or other teachers"
        )
    return weights


def join_by_confidence(
    table: pa.Table, store: Path, teachers: dict[str, float], scratch: Scratch = TEMPORARY
) -> np.ndarray:
    """Average the teachers' logits, each row weighted by how sure each teacher is of it.

    Args:
        table: Canonical table of N rows.
        store: A logit store.
        teachers: Which, by name.
        scratch: Where the logits are kept.

    Returns:
        Logits, (N, C) float32. A teacher's weight is `certainty` of its row, scaled to sum to 1.
    """
    task = store_task(store, teachers)
    total = scratch.array((len(table), len(joined_labels(store, teachers))), np.float32)
    weight = scratch.array((len(table), 1), np.float32)
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(table), _BLOCK)]
    for _, _, logits in each_teacher(table, store, teachers, scratch):
        for part in blocks:
            sure = certainty(logits[part], sigmoid=task == "multi-label") + _LEAST
            total[part] += sure.astype(np.float32)[:, None] * logits[part]
            weight[part] += sure.astype(np.float32)[:, None]
    for part in blocks:
        total[part] /= weight[part]
    return total


def certainty(logits: np.ndarray, *, sigmoid: bool = False) -> np.ndarray:
    """Say how sure each row's answer is: 1 minus the entropy, as a share of the largest there is.

    Args:
        logits: (N, C) float.
        sigmoid: Each logit is an answer of its own; their entropies are averaged.

    Returns:
        (N,) float64, 0 (all answers are as likely) to 1 (no doubt).

    >>> certainty(np.array([[0.0, 0.0], [50.0, 0.0]])).round(3).tolist()
    [0.0, 1.0]
    """
    if sigmoid:
        p = expit(logits.astype(np.float64))
        return 1 + ((xlogy(p, p) + xlog1py(1 - p, -p)) / np.log(2)).mean(axis=1)
    p = softmax(logits.astype(np.float64), axis=1)
    return 1 + xlogy(p, p).sum(axis=1) / np.log(max(logits.shape[1], 2))

"""Whether a teacher knows the task: its logits on labelled rows against guessing."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from distillkit.data.gold import check_labels_known, gold_of
from distillkit.data.scores import dev_score, pearson
from distillkit.data.tables import take_rows
from distillkit.errors import InputError
from distillkit.recipe import Task
from distillkit.runtime.answers import check_finite

CHECKED_ROWS = 2000


def has_labels(table: pa.Table) -> bool:
    """Say whether any row of a canonical table has a label."""
    return "label" in table.column_names and table["label"].null_count < len(table)


def refuse_chance(
    table: pa.Table,
    logits_of: Callable[[pa.Table], np.ndarray],
    labels: Sequence[str],
    task: Task,
    source: str,
    mend: str = "fine-tune it on this task, longer or with more rows (distillkit train-teacher; in a recipe teacher.training)",
    order: str = "",
) -> float | None:
    """Return the dev score of the logits on the labelled rows, or None without any.

    Args:
        table: Canonical table.
        logits_of: Returns the logits of rows, (N, C) float32.
        labels: C labels in the order of the logits.
        task: What the labels are.
        source: Whose logits they are, for the error.
        mend: What to do about a teacher at chance, for the error.
        order: Where somebody has said the order of the labels, for the error; empty: nobody has.

    Raises:
        InputError: They tell the labels apart no better than guessing, within two standard errors; or
            better with the labels in another order.
    """
    if not has_labels(table):
        return None
    check_labels_known(table, labels, "the table")
    labelled = _some_labelled(table)
    gold, logits = gold_of(labelled, labels, task), logits_of(labelled)
    check_finite(source, logits, labelled["text"].to_pylist())
    if order:
        refuse_wrong_order(gold, logits, labels, task, source, order)
    what, score, chance, bound = _CHECKS[task](logits, gold)
    if score < bound:
        raise InputError(
            f"{source}: the teacher is at chance on the labelled rows: {what} {score:.3f} over {len(gold)} rows, "
            f"{chance:.3f} is guessing and {bound:.3f} the least accepted; {mend}"
        )
    return dev_score(task, logits, gold)


def refuse_wrong_order(
    gold: np.ndarray,
    logits: np.ndarray,
    names: Sequence[str],
    task: Task,
    source: str,
    order: str,
) -> None:
    """Refuse logits that answer more rows aright with their labels in another order.

    Few rows, or a weak model, say little: three standard deviations more.

    Args:
        gold: As `gold_of` returns it.
        logits: (N, C).
        names: C labels as they are ordered now.
        task: What they are.
        source: Whose logits they are, for the error.
        order: Where their order is said, for the error.

    Raises:
        InputError: They do, and in that order they are not at chance.
    """
    if task == "regression" or not len(gold):
        return
    answers = gold
    said = logits > 0
    if task == "classification":
        answers, said = (np.eye(len(names))[rows] for rows in (gold, logits.argmax(1)))
    right = answers.T @ said  # (C, C): rows with one label that are answered by another's logit
    label, logit = linear_sum_assignment(-right)  # labels as they are ordered now
    if right[label, logit].sum() <= right.trace() + 3 * math.sqrt(answers.sum()):
        return
    # A model that says the same of every row is no better in any order.
    _, score, _, bound = _CHECKS[task](logits[:, logit], gold)
    if score >= bound:
        better = ", ".join(names[i] for i in np.argsort(logit))
        raise InputError(
            f"{source}: its logits are not of {', '.join(names)}, but on {len(gold):,} labelled rows rather of {better}; "
            f"name their labels in the order of the logits with {order}"
        )


def _some_labelled(table: pa.Table) -> pa.Table:
    """Return the labelled rows, or `CHECKED_ROWS` of them, evenly spaced."""
    count = len(table) - table["label"].null_count
    places = np.arange(min(count, CHECKED_ROWS))
    if count > CHECKED_ROWS:
        places = np.linspace(0, count - 1, CHECKED_ROWS).astype(int)
    rows, start, before = [places[:0]], 0, 0
    for chunk in table["label"].chunks:
        found = np.flatnonzero(chunk.is_valid())
        mine = places[slice(*np.searchsorted(places, (before, before + len(found))))] - before
        rows.append(start + found[mine])
        start, before = start + len(chunk), before + len(found)
    return take_rows(table, np.concatenate(rows))


# What a check measures, how much that is, how much is guessing, and the least that is accepted.
_Check = tuple[str, float, float, float]


def _check_classes(logits: np.ndarray, gold: np.ndarray) -> _Check:
    # Balanced: a teacher that always says the commonest label is at chance whatever its share.
    rows = np.unique(gold, return_counts=True)[1]
    chance = 1 / max(len(rows), 2)
    # The score is a mean of recalls, and a rare class has few rows: its recall is the least sure.
    error = math.sqrt(chance * (1 - chance) * float((1 / rows).mean()) / len(rows))
    bound = min(chance + 2 * error, 0.95)
    score = float(balanced_accuracy_score(gold, logits.argmax(1)))
    return "balanced accuracy", score, chance, bound


def _check_labels(logits: np.ndarray, gold: np.ndarray) -> _Check:
    # By rank, because a teacher that never says a rare label may know well which rows are likelier
    # to have it.
    some = gold.sum(0)
    split = (some > 0) & (some < len(gold))
    if not split.any():  # no label tells two rows apart: there is nothing to check
        return "ROC-AUC", 0.5, 0.5, 0.5
    score = float(roc_auc_score(gold[:, split], logits[:, split], average="macro"))
    # Of guessing, by Mann and Whitney; labels may go together, so that many do not make the mean
    # surer.
    errors = np.sqrt((len(gold) + 1) / (12 * some[split] * (len(gold) - some[split])))
    return "mean ROC-AUC", score, 0.5, min(0.5 + 2 * float(errors.mean()), 0.95)


def _check_scores(logits: np.ndarray, gold: np.ndarray) -> _Check:
    if not np.ptp(gold):  # equal scores tell no rows apart
        return "Pearson correlation", 0.0, 0.0, 0.0
    bound = min(2 / math.sqrt(len(gold)), 0.95)
    return "Pearson correlation", pearson(logits[:, 0], gold), 0.0, bound


_CHECKS: dict[Task, Callable[[np.ndarray, np.ndarray], _Check]] = {
    "classification": _check_classes,
    "multi-label": _check_labels,
    "regression": _check_scores,
}

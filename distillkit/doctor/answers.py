"""Checks of a teacher's answers on labelled rows: constant, permuted, at chance, no better than TF-IDF; and of a logit store."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln
from scipy.stats import binom
from sklearn.metrics import confusion_matrix

from distillkit.data.logits import join_logits, joined_labels, keys_of, read_store, stored_keys
from distillkit.data.tables import label_ids
from distillkit.doctor.findings import Finding, graded, percent
from distillkit.errors import InputError
from distillkit.measure.statistics import mcnemar
from distillkit.recipe import Task
from distillkit.teacher.checkpoint import match_labels

# Chance of a false alarm that an error may have; a teacher that is merely not proven better is
# warned of at the usual level.
ERROR_LEVEL, WARNING_LEVEL = 0.001, 0.05
CONSTANT = 1e-3
UNCOVERED, MANY_UNCOVERED = 0.0005, 0.05
SAME_TEACHER = 0.95


def check_answers(
    logits: np.ndarray, gold: np.ndarray, labels: Sequence[str], who: str, group: str = "teacher"
) -> list[Finding]:
    """Check that logits are finite, depend on the text, mean what they are called, and are better than guessing.

    Args:
        logits: (N, C) float.
        gold: Class numbers, (N,) int.
        labels: C names.
        who: Whose they are; named in the findings.
        group: First word of the checks' names.

    Returns:
        The first thing that is wrong, for it explains what follows from it; or that all is fine.
    """
    finite = np.isfinite(logits).all(axis=1)
    if not finite.all():
        return [
            Finding(
                f"{group}-finite",
                "error",
                f"{who}: {int((~finite).sum())} of {len(logits)} rows have a logit that is no number",
                "fine-tune again with a lower --teacher.training.learning-rate, or label with --label.precision fp32",
                {"rows": int((~finite).sum())},
            )
        ]
    spread = _constant(logits, labels, who, group)
    if spread.severity == "error":
        return [spread]
    permuted = _permuted(logits, gold, labels, who, group)
    if permuted.severity == "error":
        return [spread, permuted]
    return [spread, permuted, _chance(logits, gold, labels, who, group)]


def _constant(logits: np.ndarray, labels: Sequence[str], who: str, group: str) -> Finding:
    # A number added to a whole row changes no probability.
    spread = float((logits - logits.mean(axis=1, keepdims=True)).std(axis=0).max())
    share = np.bincount(logits.argmax(1), minlength=len(labels)) / len(logits)
    bad = spread < CONSTANT
    return Finding(
        f"{group}-constant",
        "error" if bad else "fine",
        f"{who}: its logits differ from row to row by {spread:.2g} (standard deviation); "
        f"it says {labels[int(share.argmax())]!r} on {percent(share.max())} of the rows",
        "fine-tune it (distillkit train-teacher): its head knows nothing of the text; is the checkpoint whole?"
        if bad
        else "",
        {"standard_deviation": spread, "commonest_answer_share": float(share.max())},
    )


def _permuted(
    logits: np.ndarray, gold: np.ndarray, labels: Sequence[str], who: str, group: str
) -> Finding:
    """Look for another meaning of the logits under which far more rows are right."""
    # rows gold, columns found
    counts = confusion_matrix(gold, logits.argmax(1), labels=range(len(labels)))
    there = counts.sum(axis=1) > 0
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # By shares of each class: by rows, a teacher that says one class always would seem to be called
    # by the wrong name.
    means, found = linear_sum_assignment(-shares)
    # what the teacher calls `found` is `meaning[found]` in the data
    meaning = np.empty(len(labels), int)
    meaning[found] = means
    moved = [i for i in range(len(labels)) if meaning[i] != i]
    as_named, best = (
        float(shares.diagonal()[there].mean()),
        float(shares[means, found][there].mean()),
    )
    right, otherwise = int(counts.diagonal().sum()), int(counts[means, found].sum())
    # A row right in both readings says nothing; of the others, were the names right, at most half
    # would be right in the other reading.
    both = int(sum(counts[i, i] for i in range(len(labels)) if meaning[i] == i))
    wins, losses = otherwise - both, right - both
    # The reading was chosen from all C! (Bonferroni).
    certain = binom.logsf(wins - 1, wins + losses, 0.5) + gammaln(len(labels) + 1) < math.log(
        ERROR_LEVEL
    )
    above_chance = best > _bound(gold)
    bad = bool(moved) and certain and above_chance
    names = ", ".join(f"{labels[i]!r} is the data's {labels[meaning[i]]!r}" for i in moved[:6])
    return Finding(
        f"{group}-meaning",
        "error" if bad else "fine",
        f"{who}: {percent(as_named)} of each class are right as the labels are named"
        + (
            f", {percent(best)} if its {names}: labels are permuted between teacher and data"
            if bad
            else ""
        ),
        "correct id2label in the teacher's config.json (or the labels of the data), then label again"
        if bad
        else "",
        {"balanced_accuracy": as_named, "best_assignment": best}
        | ({"permutation": {labels[i]: labels[meaning[i]] for i in moved}} if bad else {}),
    )


def _bound(gold: np.ndarray) -> float:
    """Return the least balanced accuracy that guessing does not reach: three standard errors above its mean."""
    rows = np.unique(gold, return_counts=True)[1]
    chance = 1 / max(len(rows), 2)
    return chance + 3 * math.sqrt(chance * (1 - chance) * float((1 / rows).mean()) / len(rows))


def _chance(
    logits: np.ndarray, gold: np.ndarray, labels: Sequence[str], who: str, group: str
) -> Finding:
    right = logits.argmax(1) == gold
    score = float(np.mean([right[gold == i].mean() for i in np.unique(gold)]))
    bound = _bound(gold)
    bad = score < bound
    return Finding(
        f"{group}-chance",
        "error" if bad else "fine",
        f"{who}: {percent(float(right.mean()))} of {len(gold):,} rows are right, {percent(score)} averaged over classes; guessing gives up to {percent(bound)}",
        "fine-tune it on this data (distillkit train-teacher): a student of it learns noise"
        if bad
        else "",
        {
            "accuracy": float(right.mean()),
            "balanced_accuracy": score,
            "least_above_chance": bound,
            "rows": len(gold),
        },
    )


def check_against_baseline(
    teacher: np.ndarray, baseline: np.ndarray, gold: np.ndarray, trained_on: int
) -> Finding:
    """Compare a teacher with TF-IDF and logistic regression, row by row.

    Args:
        teacher: Logits, (N, C).
        baseline: Log probabilities on the same rows, (N, C).
        gold: Class numbers, (N,).
        trained_on: Rows the baseline learnt from.
    """
    teacher_right, baseline_right = teacher.argmax(1) == gold, baseline.argmax(1) == gold
    wins, losses = (
        int((teacher_right & ~baseline_right).sum()),
        int((~teacher_right & baseline_right).sum()),
    )
    gap = (wins - losses) / len(gold)
    p = mcnemar(teacher_right, baseline_right)
    worse, better = losses > wins and p < ERROR_LEVEL, wins > losses and p < WARNING_LEVEL
    do = ""
    if worse:
        do = "fine-tune longer, at another learning rate, or choose another teacher: whoever can train TF-IDF needs no student of this one"
    elif not better:
        do = "a student can hardly be better than its teacher: choose a stronger teacher, label more dev rows to see the difference, or ship TF-IDF"
    return Finding(
        "teacher-baseline",
        "error" if worse else "fine" if better else "warning",
        f"the teacher is right on {percent(float(teacher_right.mean()))}, "
        f"TF-IDF + logistic regression (of {trained_on:,} rows) on {percent(float(baseline_right.mean()))}: "
        f"{100 * gap:+.1f} points, {wins} rows against {losses}"
        + ("" if worse or better else ", which may be chance"),
        do,
        {
            "teacher": float(teacher_right.mean()),
            "baseline": float(baseline_right.mean()),
            "gap": gap,
            "mcnemar_p": p,
        },
    )


def check_store(
    store: Path, tables: Mapping[str, pa.Table], labels: Sequence[str], task: Task, max_tokens: int
) -> list[Finding]:
    """Check the logits that are there already: their labels, which rows they cover, what they say on labelled rows.

    Args:
        store: A logit store.
        tables: What a student will learn from, by name: the transfer set, or else `train` and
            `unlabelled`; `train` is labelled.
        labels: C names, the data's.
        task: What a label is; of a classification what the logits say is checked too.
        max_tokens: Where the recipe truncates the teacher's input; 0: not known.

    Raises:
        InputError: It is no logit store.
    """
    findings = []
    for name, manifest in read_store(store).items():
        own = joined_labels(store, {name: 1.0})
        who = f"logits {name!r}"
        try:
            names = match_labels(own, labels, who)
        except InputError as error:
            findings.append(
                Finding(
                    "logits-labels", "error", str(error), "label again with a teacher of this task"
                )
            )
            continue
        keys = stored_keys(store / name)
        there = {split: pc.is_in(keys_of(table), value_set=keys) for split, table in tables.items()}
        findings += [_coverage(who, split, mask) for split, mask in there.items()]
        cut = manifest["max_tokens"]
        if cut and max_tokens and cut != max_tokens:
            findings.append(
                Finding(
                    "logits-truncation",
                    "warning",
                    f"{who}: made with max_tokens {cut}, the recipe says {max_tokens}",
                    "label again, or set teacher.max_tokens to what they were made with",
                    {"store": cut, "recipe": max_tokens},
                )
            )
        train = tables["train"].filter(there["train"])
        if len(train) and task == "classification":
            logits = join_logits(train, store, {name: 1.0})
            findings += check_answers(
                logits,
                np.array(label_ids(train, names)),
                names,
                f"{who} on training rows",
                "logits",
            )
    return findings


def _coverage(who: str, split: str, there: pa.ChunkedArray | pa.Array) -> Finding:
    missing = 1 - (pc.sum(there).as_py() or 0) / len(there)
    severity = graded(missing, UNCOVERED, MANY_UNCOVERED)
    return Finding(
        f"logits-coverage-{split}",
        severity,
        f"{who}: {percent(missing)} of the {len(there):,} rows of {split} have no logits",
        ""
        if severity == "fine"
        else "run distillkit label on this text: the store grows by what is missing",
        {"missing_share": missing, "rows": len(there)},
    )


def check_same_teacher(stored: np.ndarray, asked: np.ndarray, name: str) -> Finding:
    """Compare stored logits with what the teacher says now to the same rows.

    Args:
        stored: (N, C).
        asked: (N, C), labels in the same order.
        name: The stored teacher's.
    """
    same = float((stored.argmax(1) == asked.argmax(1)).mean())
    apart = float(np.abs(stored - asked).mean())
    bad = same < SAME_TEACHER
    return Finding(
        "logits-teacher",
        "error" if bad else "fine",
        f"logits {name!r} and the teacher give {percent(same)} of {len(stored)} training rows the same label; their logits are {apart:.2g} apart on average",
        "these logits are of another teacher: give that one, or label again" if bad else "",
        {"agreement": same, "mean_difference": apart, "rows": len(stored)},
    )

"""Checks of a teacher's answers on labelled rows, and of a logit store."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln
from scipy.stats import binom
from sklearn.metrics import confusion_matrix

from distillkit.data.gold import label_ids
from distillkit.data.logits import join_logits, joined_labels, read_store, stored_rows
from distillkit.doctor.findings import Finding, Severity, finding, graded, percent
from distillkit.errors import InputError
from distillkit.measure.statistics import mcnemar
from distillkit.recipe import Task
from distillkit.teacher.checkpoint import match_labels

# Probability of a false alarm: of an error, and of "not better than TF-IDF", a warning.
ERROR_LEVEL, WARNING_LEVEL = 0.001, 0.05
CONSTANT = 1e-3
UNCOVERED, MANY_UNCOVERED = 0.0005, 0.05
SAME_TEACHER = 0.95


def check_answers(
    logits: np.ndarray, gold: np.ndarray, labels: Sequence[str], who: str, group: str = "teacher"
) -> list[Finding]:
    """Check that logits are finite, depend on the text, fit their labels and beat guessing.

    Args:
        logits: (N, C) float.
        gold: Class numbers, (N,) int.
        labels: C names.
        who: Whose logits they are; the findings name it.
        group: First word of the checks' names.

    Returns:
        All findings up to the first error, which explains the errors that would follow.
    """
    found = logits.argmax(1)
    checks = (
        lambda: _finite(logits),
        lambda: _constant(logits, labels),
        lambda: _meaning(found, gold, labels),
        lambda: _chance(found == gold, gold),
    )
    findings: list[Finding] = []
    for check in checks:
        one = check()
        if one is not None:
            findings.append(replace(one, check=f"{group}-{one.check}", seen=f"{who}: {one.seen}"))
            if one.severity == "error":
                break
    return findings


def _finite(logits: np.ndarray) -> Finding | None:
    rows = int((~np.isfinite(logits).all(axis=1)).sum())
    if not rows:
        return None
    return finding(
        "finite",
        "error",
        f"{rows} of {len(logits)} rows have a logit that is NaN or infinite",
        "fine-tune again with a lower --teacher.training.learning-rate, or label with --label.precision fp32",
        {"rows": rows},
    )


def _constant(logits: np.ndarray, labels: Sequence[str]) -> Finding:
    # A number added to a whole row changes no probability.
    spread = float((logits - logits.mean(axis=1, keepdims=True)).std(axis=0).max())
    share = np.bincount(logits.argmax(1), minlength=len(labels)) / len(logits)
    return finding(
        "constant",
        "error" if spread < CONSTANT else "fine",
        f"its logits have a standard deviation of {spread:.2g} over the rows; "
        f"it answers {labels[int(share.argmax())]!r} on {percent(share.max())} of them",
        "fine-tune it (distillkit train-teacher): its head knows nothing of the text; is the checkpoint whole?",
        {"standard_deviation": spread, "commonest_answer_share": float(share.max())},
    )


def _meaning(found: np.ndarray, gold: np.ndarray, labels: Sequence[str]) -> Finding:
    """Look for another assignment of the answers to the labels that is right on far more rows."""
    counts = confusion_matrix(gold, found, labels=range(len(labels)))  # rows gold, columns found
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # By shares of each class. By rows, a teacher that always gives one class would look renamed.
    means, called = linear_sum_assignment(-shares)
    meaning = means[np.argsort(called)]  # what the teacher calls i is meaning[i] in the data
    there = counts.sum(axis=1) > 0
    as_named, best = (float(x[there].mean()) for x in (shares.diagonal(), shares[means, called]))
    moved = [i for i in range(len(labels)) if meaning[i] != i]
    metrics: dict[str, Any] = {"balanced_accuracy": as_named, "best_assignment": best}
    seen = f"{percent(as_named)} of each class are right as the labels are named"
    if not moved or best <= _bound(gold) or not _is_certain(counts, meaning):
        return finding("meaning", "fine", seen, "", metrics)
    names = ", ".join(f"{labels[i]!r} is the data's {labels[meaning[i]]!r}" for i in moved[:6])
    return finding(
        "meaning",
        "error",
        f"{seen}, {percent(best)} if its {names}: labels are permuted between teacher and data",
        "correct id2label in the teacher's config.json (or the labels of the data), then label again",
        metrics | {"permutation": {labels[i]: labels[meaning[i]] for i in moved}},
    )


def _is_certain(counts: np.ndarray, meaning: np.ndarray) -> bool:
    """Say whether the other order wins a sign test, corrected for all C! orders."""
    classes = np.arange(len(counts))
    # A row that is right in both readings says nothing. Of the others, if the names were right, at
    # most half would be right in the other reading.
    both = counts.diagonal()[meaning == classes].sum()
    wins = counts[meaning, classes].sum() - both
    losses = counts.diagonal().sum() - both
    chance = binom.logsf(wins - 1, wins + losses, 0.5) + gammaln(len(counts) + 1)  # Bonferroni
    return bool(chance < math.log(ERROR_LEVEL))


def _bound(gold: np.ndarray) -> float:
    """Return the balanced accuracy that guessing misses: its mean plus three standard errors."""
    rows = np.unique(gold, return_counts=True)[1]
    chance = 1 / max(len(rows), 2)
    return chance + 3 * math.sqrt(chance * (1 - chance) * float((1 / rows).mean()) / len(rows))


def _chance(right: np.ndarray, gold: np.ndarray) -> Finding:
    accuracy, bound = float(right.mean()), _bound(gold)
    score = float(np.mean([right[gold == i].mean() for i in np.unique(gold)]))
    return finding(
        "chance",
        "error" if score < bound else "fine",
        f"{percent(accuracy)} of {len(gold):,} rows are right, {percent(score)} averaged over classes; guessing gives up to {percent(bound)}",
        "fine-tune it on this data (distillkit train-teacher): a student of it learns noise",
        {
            "accuracy": accuracy,
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
        trained_on: Rows that the baseline learnt from.
    """
    ours, theirs = teacher.argmax(1) == gold, baseline.argmax(1) == gold
    wins, losses = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    gap, p = (wins - losses) / len(gold), mcnemar(ours, theirs)
    severity: Severity = "warning"
    chance = ", which may be chance"
    do = "a student can hardly be better than its teacher: choose a stronger teacher, label more dev rows to see the difference, or ship TF-IDF"
    if wins > losses and p < WARNING_LEVEL:
        severity, chance = "fine", ""
    elif losses > wins and p < ERROR_LEVEL:
        severity, chance = "error", ""
        do = "fine-tune longer, at another learning rate, or choose another teacher: whoever can train TF-IDF needs no student of this one"
    return finding(
        "teacher-baseline",
        severity,
        f"the teacher is right on {percent(float(ours.mean()))}, "
        f"TF-IDF + logistic regression (of {trained_on:,} rows) on {percent(float(theirs.mean()))}: "
        f"{100 * gap:+.1f} points, {wins} rows against {losses}{chance}",
        do,
        {"teacher": float(ours.mean()), "baseline": float(theirs.mean()), "gap": gap}
        | {"mcnemar_p": p},
    )


def check_store(
    store: Path, tables: Mapping[str, pa.Table], labels: Sequence[str], task: Task, max_tokens: int
) -> list[Finding]:
    """Check a logit store: its labels, which rows it covers, and its answers on labelled rows.

    Args:
        store: A logit store.
        tables: What a student will learn from, by name: the transfer set, or else `train` and
            `unlabelled`; `train` is labelled.
        labels: C names, the data's.
        task: What a label is; a classification's answers are checked too.
        max_tokens: Where the recipe truncates the teacher's input; 0: not known.

    Raises:
        InputError: It is no logit store.
    """
    findings = []
    for name, manifest in read_store(store).items():
        who = f"logits {name!r}"
        try:
            names = match_labels(joined_labels(store, {name: 1.0}), labels, who)
        except InputError as error:
            do = "label again with a teacher of this task"
            findings.append(finding("logits-labels", "error", str(error), do))
            continue
        there = _there(store / name, tables)
        findings += [
            _coverage(who, split, mask)
            for split, mask in there.items()
            if split == "transfer" or "transfer" not in there
        ]
        findings += _same_cut(who, manifest["max_tokens"], max_tokens)
        train = tables["train"].filter(there["train"])
        if len(train) and task == "classification":
            logits, gold = join_logits(train, store, {name: 1.0}), label_ids(train, names)
            who = f"{who} on training rows"
            findings += check_answers(logits, np.array(gold), names, who, "logits")
    return findings


def _there(teacher: Path, tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Return a mask for each table: the rows whose logits a teacher of the store has."""
    return {split: pa.array(stored_rows(table, teacher)) for split, table in tables.items()}


def _same_cut(who: str, stored: int, asked: int) -> list[Finding]:
    if not stored or not asked or stored == asked:
        return []
    return [
        finding(
            "logits-truncation",
            "warning",
            f"{who}: made with max_tokens {stored}, the recipe says {asked}",
            "label again, or set teacher.max_tokens to what they were made with",
            {"store": stored, "recipe": asked},
        )
    ]


def _coverage(who: str, split: str, there: pa.ChunkedArray | pa.Array) -> Finding:
    missing = 1 - (pc.sum(there).as_py() or 0) / len(there)
    return finding(
        f"logits-coverage-{split}",
        graded(missing, UNCOVERED, MANY_UNCOVERED),
        f"{who}: {percent(missing)} of the {len(there):,} rows of {split} have no logits",
        "run distillkit label on this text: the store grows by what is missing",
        {"missing_share": missing, "rows": len(there)},
    )


def check_same_teacher(stored: np.ndarray, asked: np.ndarray, name: str) -> Finding:
    """Compare stored logits with what the teacher says now about the same rows.

    Args:
        stored: (N, C).
        asked: (N, C), labels in the same order.
        name: The stored teacher's.
    """
    same = float((stored.argmax(1) == asked.argmax(1)).mean())
    apart = float(np.abs(stored - asked).mean())
    return finding(
        "logits-teacher",
        "error" if same < SAME_TEACHER else "fine",
        f"logits {name!r} and the teacher give {percent(same)} of {len(stored)} training rows the same label; their logits are {apart:.2g} apart on average",
        "these logits are of another teacher: give that one, or label again",
        {"agreement": same, "mean_difference": apart, "rows": len(stored)},
    )

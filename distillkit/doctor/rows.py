"""Checks of the rows themselves: how many, how they are labelled, which are there twice, which leak."""

import math
from collections import Counter, defaultdict
from collections.abc import Container, Mapping

import pyarrow as pa

from distillkit.data.normal import normal_row
from distillkit.data.tables import class_counts, paired, texts_of
from distillkit.data.words import is_unsegmented, split_characters, split_words
from distillkit.doctor.findings import Finding, graded, percent
from distillkit.recipe import Task

# Below the first nothing is learnt; below the second the figures are rough.
FEW_ROWS, ROUGH_ROWS = 20, 200
FEW_A_CLASS = 10
DUPLICATES, CONTRADICTIONS, MANY_CONTRADICTIONS = 0.05, 0.005, 0.1
MANY_LEAKS = 0.05
IMBALANCE = 20.0
ONE_WORD = 0.2


def check_rows(tables: dict[str, pa.Table], task: Task) -> list[Finding]:
    """Check the rows of a task.

    Args:
        tables: `train`, `dev` and, where there is one, `test`: canonical, labelled.
        task: What a label is; classes are those of a classification alone, and scores never
            contradict each other.
    """
    train = tables["train"]
    keys, labels = _normal_rows(train), train["label"].to_pylist()
    found = [_size(tables)]
    if task == "classification":
        found += _classes(tables)
    by_text: dict[str, Counter[str]] = defaultdict(Counter)
    for key, label in zip(keys, labels, strict=True):
        by_text[key][", ".join(sorted(label)) if isinstance(label, list) else str(label)] += 1
    found.append(_duplicates(by_text, len(train)))
    if task != "regression":
        found.append(_contradictions(by_text, len(train)))
    found += [_leaks(split, tables[split], by_text) for split in ("dev", "test") if split in tables]
    return [*found, _one_word(train)]


def _normal_rows(table: pa.Table) -> list[str]:
    return [normal_row(*row) for row in paired(*texts_of(table))]


def _size(tables: dict[str, pa.Table]) -> Finding:
    rows = {split: len(tables[split]) for split in ("train", "dev")}
    # Half the width of the 95 % interval of an accuracy of 0.5, normal approximation.
    margin = 1.96 * math.sqrt(0.25 / rows["dev"])
    fewest = min(rows.values())
    return Finding(
        "rows",
        "error" if fewest < FEW_ROWS else "warning" if fewest < ROUGH_ROWS else "fine",
        f"{rows['train']:,} training and {rows['dev']:,} dev rows; two dev scores closer than about {100 * margin:.1f} points may be equal",
        ""
        if fewest >= ROUGH_ROWS
        else f"label more: at least {ROUGH_ROWS} rows each for train and dev",
        {**rows, "dev_margin": margin},
    )


def _classes(tables: dict[str, pa.Table]) -> list[Finding]:
    counts = class_counts(tables["train"])
    (most, top), (least, bottom) = (list(counts.items())[i] for i in (0, -1))
    share = top / sum(counts.values())
    rare = [name for name, rows in counts.items() if rows < FEW_A_CLASS]
    bad = top >= IMBALANCE * bottom or rare
    do = f"judge by macro-F1, not by accuracy ({percent(share)} is had by always saying {most!r}), and label more rows of the rare classes"
    found = [
        Finding(
            "classes",
            "warning" if bad else "fine",
            f"{len(counts)} classes; {most!r} has {top:,} training rows ({percent(share)}), {least!r} {bottom:,}"
            + (f"; fewer than {FEW_A_CLASS} have {_few(rare)}" if rare else ""),
            do if bad else "",
            {"classes": len(counts), "commonest_share": share, "ratio": top / bottom},
        )
    ]
    for split in ("dev", "test"):
        missing = [
            name for name in counts if split in tables and name not in class_counts(tables[split])
        ]
        if missing:
            found.append(
                Finding(
                    f"classes-{split}",
                    "warning",
                    f"{split} has no row of {_few(missing)}: nothing is said of how well it is learnt",
                    f"add such rows to {split}, or leave data.{split} empty in the recipe: dev is then cut from train label by label"
                    if split == "dev"
                    else f"add such rows to {split}",
                    {"missing": missing},
                )
            )
    return found


def _duplicates(by_text: Mapping[str, Counter[str]], rows: int) -> Finding:
    again = sum(count - 1 for labels in by_text.values() for count in labels.values())
    share = again / rows
    return Finding(
        "duplicates",
        graded(share, DUPLICATES),
        f"{again:,} training rows ({percent(share)}) repeat another, text and label",
        ""
        if share < DUPLICATES
        else "keep each once: a text that stands there often is learnt at the expense of others",
        {"rows": again, "share": share},
    )


def _contradictions(by_text: Mapping[str, Counter[str]], rows: int) -> Finding:
    conflicting = {key: labels for key, labels in by_text.items() if len(labels) > 1}
    count = sum(labels.total() for labels in conflicting.values())
    share, example = count / rows, ""
    if conflicting:
        key, labels = next(iter(conflicting.items()))
        example = f", for example {key[:60]!r} as {_few(list(labels))}"
    severity = graded(share, CONTRADICTIONS, MANY_CONTRADICTIONS)
    return Finding(
        "contradictions",
        severity,
        f"{count:,} training rows ({percent(share)}) have a text that has another label elsewhere{example}",
        ""
        if severity == "fine"
        else "decide which label is right, or drop these rows; is a column missing that tells them apart?",
        {"rows": count, "share": share},
    )


def _leaks(split: str, table: pa.Table, seen: Container[str]) -> Finding:
    rows = [i for i, key in enumerate(_normal_rows(table), start=1) if key in seen]
    share = len(rows) / len(table)
    example = (
        f", the first is row {rows[0]}: {table['text'][rows[0] - 1].as_py()[:60]!r}" if rows else ""
    )
    return Finding(
        f"leaks-{split}",
        "fine" if not rows else graded(share, 0, MANY_LEAKS),
        f"{len(rows)} of {len(table):,} {split} rows ({percent(share)}) stand in train, case and white space aside{example}",
        f"take them out of train (or of {split}): the {split} score counts them as understood where they are only remembered"
        if rows
        else "",
        {"rows": len(rows), "share": share},
    )


def _one_word(train: pa.Table) -> Finding:
    texts, pairs = texts_of(train)
    split = split_characters if is_unsegmented(texts) else split_words
    all_texts = [*texts, *(pairs or [])]
    count = sum(len(split(text)) < 2 for text in all_texts)
    share = count / len(all_texts)
    return Finding(
        "one-word-texts",
        graded(share, ONE_WORD),
        f"{count:,} training texts ({percent(share)}) are one word or sign",
        ""
        if share < ONE_WORD
        else "give --data.unlabelled: masking and n-grams make nothing new of one word",
        {"rows": count, "share": share},
    )


def _few(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (
        f" and {len(names) - 5} more" if len(names) > 5 else ""
    )

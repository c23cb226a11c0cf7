"""Checks of the rows themselves: count, labels, duplicates, leaks."""

import math
from collections import Counter, defaultdict
from collections.abc import Container, Mapping

import pyarrow as pa

from distillkit.data.content import texts_of
from distillkit.data.gold import class_counts
from distillkit.data.normal import normal_rows
from distillkit.data.words import splitter
from distillkit.doctor.findings import Finding, finding, graded, percent
from distillkit.recipe import Task

# Below the first a student learns nothing; below the second scores are rough.
FEW_ROWS, ROUGH_ROWS = 20, 200
FEW_A_CLASS = 10
DUPLICATES, CONFLICTING, MANY_CONFLICTING = 0.05, 0.005, 0.1
MANY_LEAKS = 0.05
IMBALANCE = 20.0
ONE_WORD = 0.2
# Of 200 to 1,000 English training texts, the commonest words are 33 to 74 % of English raw text of
# other domains, 6 to 14 % of German, French or Spanish.
COMMON_WORDS, KNOWN_WORDS = 1000, 0.2
FEW_WORDS = 100  # say nothing about a language
REPEATED = 0.2


def check_rows(tables: dict[str, pa.Table], task: Task) -> list[Finding]:
    """Check the rows of a task.

    Args:
        tables: `train`, `dev` and, where there is one, `test`: canonical, labelled.
        task: What a label is; classes are those of a classification alone, and scores never
            contradict each other.
    """
    train = tables["train"]
    keys, labels = normal_rows(train), train["label"].to_pylist()
    held_out = [split for split in ("dev", "test") if split in tables]
    found = [_size(tables)]
    if task == "classification":
        counts = class_counts(train)
        found += [_classes(counts), *check_spelling(counts)]
        for split in held_out:
            found += _missing_classes(split, tables[split], counts)
    by_text: dict[str, Counter[str]] = defaultdict(Counter)
    for key, label in zip(keys, labels, strict=True):
        by_text[key][", ".join(sorted(label)) if isinstance(label, list) else str(label)] += 1
    found.append(_duplicates(by_text, len(train)))
    if task != "regression":
        found.append(_conflicting_labels(by_text, len(train)))
    found += [_leaks(split, tables[split], by_text) for split in held_out]
    return [*found, _one_word(train)]


def _size(tables: dict[str, pa.Table]) -> Finding:
    rows = {split: len(tables[split]) for split in ("train", "dev")}
    # Half the width of the 95 % interval of an accuracy of 0.5, normal approximation.
    margin = 1.96 * math.sqrt(0.25 / rows["dev"])
    fewest = min(rows.values())
    return finding(
        "rows",
        "error" if fewest < FEW_ROWS else "warning" if fewest < ROUGH_ROWS else "fine",
        f"{rows['train']:,} training and {rows['dev']:,} dev rows; two dev scores closer than about {100 * margin:.1f} points may be equal",
        f"label more: at least {ROUGH_ROWS} rows each for train and dev",
        {**rows, "dev_margin": margin},
    )


def _classes(counts: dict[str, int]) -> Finding:
    (most, top), (least, bottom) = (list(counts.items())[i] for i in (0, -1))
    share = top / sum(counts.values())
    rare = [name for name, rows in counts.items() if rows < FEW_A_CLASS]
    return finding(
        "classes",
        "warning" if top >= IMBALANCE * bottom or rare else "fine",
        f"{len(counts)} classes; {most!r} has {top:,} training rows ({percent(share)}), {least!r} {bottom:,}"
        + (f"; fewer than {FEW_A_CLASS} have {_few(rare)}" if rare else ""),
        f"judge by macro-F1, not by accuracy (always answering {most!r} gives {percent(share)}), and label more rows of the rare classes",
        {"classes": len(counts), "commonest_share": share, "ratio": top / bottom},
    )


def check_spelling(counts: Mapping[str, int]) -> list[Finding]:
    """Check for labels that differ in case or white space alone.

    Args:
        counts: How many rows have each label.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for name in counts:
        alike[" ".join(name.split()).casefold()].append(name)
    twins = [name for names in alike.values() if len(names) > 1 for name in names]
    if not twins:
        return []
    shown = ", ".join(f"{name!r} ({counts[name]:,} rows)" for name in twins)
    return [
        finding(
            "label-spelling",
            "warning",
            f"labels differ in case or white space alone, and each is a class of its own: {shown}",
            "write each label one way in the file, unless they are different things",
            {"labels": twins},
        )
    ]


def _missing_classes(split: str, table: pa.Table, counts: dict[str, int]) -> list[Finding]:
    there = class_counts(table)
    missing = [name for name in counts if name not in there]
    if not missing:
        return []
    cut = " (a dev that is cut from train has a row of each label with two texts or more)"
    return [
        finding(
            f"classes-{split}",
            "warning",
            f"{split} has no row of {_few(missing)}: how well it is learnt stays unknown",
            f"label more such rows for {split}" + (cut if split == "dev" else ""),
            {"missing": missing},
        )
    ]


def _duplicates(by_text: Mapping[str, Counter[str]], rows: int) -> Finding:
    again = sum(count - 1 for labels in by_text.values() for count in labels.values())
    return finding(
        "duplicates",
        graded(again / rows, DUPLICATES),
        f"{again:,} training rows ({percent(again / rows)}) repeat another, text and label",
        "keep one of each: a student learns a repeated text at the expense of others",
        {"rows": again, "share": again / rows},
    )


def _conflicting_labels(by_text: Mapping[str, Counter[str]], rows: int) -> Finding:
    conflicting = {key: labels for key, labels in by_text.items() if len(labels) > 1}
    count = sum(labels.total() for labels in conflicting.values())
    example = ""
    if conflicting:
        key, labels = next(iter(conflicting.items()))
        example = f", for example {key[:60]!r} as {_few(list(labels))}"
    return finding(
        "conflicting-labels",
        graded(count / rows, CONFLICTING, MANY_CONFLICTING),
        f"{count:,} training rows ({percent(count / rows)}) have a text that has another label elsewhere{example}",
        "decide which label is right, or drop these rows; is a column missing that tells them apart?",
        {"rows": count, "share": count / rows},
    )


def _leaks(split: str, table: pa.Table, seen: Container[str]) -> Finding:
    rows = [i for i, key in enumerate(normal_rows(table), start=1) if key in seen]
    share = len(rows) / len(table)
    example = (
        f", the first is row {rows[0]}: {table['text'][rows[0] - 1].as_py()[:60]!r}" if rows else ""
    )
    return finding(
        f"leaks-{split}",
        graded(share, 0, MANY_LEAKS) if rows else "fine",
        f"{len(rows)} of {len(table):,} {split} rows ({percent(share)}) are also in train, case and white space aside{example}",
        f"take them out of train (or of {split}): the {split} score counts them as understood though they are only remembered",
        {"rows": len(rows), "share": share},
    )


def _one_word(train: pa.Table) -> Finding:
    texts, pairs = texts_of(train)
    split = splitter(texts)
    all_texts = [*texts, *(pairs or [])]
    count = sum(len(split(text)) < 2 for text in all_texts)
    share = count / len(all_texts)
    return finding(
        "one-word-texts",
        graded(share, ONE_WORD),
        f"{count:,} training texts ({percent(share)}) are one word or sign",
        "give --data.unlabelled: masking and n-grams make nothing new of one word",
        {"rows": count, "share": share},
    )


def check_raw_text(train: pa.Table, raw: pa.Table) -> Finding:
    """Check that raw text is of the training texts' language, and says new things.

    Args:
        train: Canonical table of the task.
        raw: Canonical table of the raw text, or a sample.
    """
    texts = texts_of(train)[0]
    split = splitter(texts)
    words = Counter(word for text in texts for word in _words(split(text)))
    common = {word for word, _ in words.most_common(COMMON_WORDS)}
    found = [word for text in raw["text"].to_pylist() for word in _words(split(text))]
    known = sum(word in common for word in found) / max(len(found), 1)
    repeated = 1 - len(set(normal_rows(raw))) / len(raw)
    unlike = known < KNOWN_WORDS and len(common) >= FEW_WORDS
    return finding(
        "raw-text",
        "warning" if unlike else graded(repeated, REPEATED),
        f"{percent(known)} of the raw text's words are among the {len(common):,} commonest of train, "
        f"{percent(repeated)} of its {len(raw):,} rows repeat another",
        "give data.unlabelled text of the training texts' language"
        if unlike
        else "a repeated row is learnt once: give data.unlabelled more distinct text",
        {"known_share": known, "repeated_share": repeated, "rows": len(raw)},
    )


def _words(units: list[str]) -> list[str]:
    return [unit.lower() for unit in units if unit.isalpha()]


def _few(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (
        f" and {len(names) - 5} more" if len(names) > 5 else ""
    )

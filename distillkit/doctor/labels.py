"""`distillkit doctor --labels`: the labels that look wrong, in a file for a person to correct."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit.data.content import paired, texts_of
from distillkit.data.corrections import (
    REMOVE,
    check_corrections,
    corrected,
    read_corrections,
    row_of,
)
from distillkit.data.files import whole_file
from distillkit.data.gold import label_ids, label_names
from distillkit.data.normal import normal_row
from distillkit.data.words import splitter
from distillkit.doctor.findings import Finding, percent
from distillkit.errors import InputError
from distillkit.measure.baselines import FrozenBaseline, TfidfBaseline
from distillkit.measure.suspects import Fit, cross_fitted, unlikely
from distillkit.pipeline.task import read_labelled
from distillkit.recipe import Recipe
from distillkit.teacher.text_vectors import TextVectors

_MOST = 1000  # rows of the file: more are not read by a person
# Of the TF-IDF baseline, which finds more wrong labels so than with 1 (benchmarks/labels.md).
_INVERSE_PENALTY = 4.0


def check_target(recipe: Recipe, target: Path) -> None:
    """Refuse at once what `suspect_labels` cannot do.

    Raises:
        InputError: The task is no classification, or the file is no .csv, or is there already.
    """
    if recipe.data.task != "classification":
        raise InputError(
            f"--labels ranks the labels of a classification, but data.task is {recipe.data.task}; leave it out"
        )
    if not recipe.data.train:
        raise InputError("--labels ranks labels, and nothing is labelled yet; leave it out")
    if target.suffix != ".csv":
        raise InputError(f"--labels {target}: expected a file to write whose name ends in .csv")
    if target.exists():
        raise InputError(
            f"--labels {target}: is there already, and may hold your corrections; give another name"
        )


def suspect_labels(recipe: Recipe, target: Path, encoder: str) -> Finding:
    """Write the rows of train and dev whose labels look wrong, the likeliest errors first.

    A label looks wrong if models of the other rows contradict it, or if a row with the same words
    has another label. Such rows stand one below the other. Rows that `data.corrections` has decided
    come first, as they were decided. Test is not read.

    Args:
        recipe: Its data, columns settled, and its seed.
        target: The .csv file to write.
        encoder: A pretrained encoder, whose vectors a linear model reads; empty: TF-IDF alone.

    Returns:
        How many rows the file has, and why.

    Raises:
        InputError: As `check_target`, or the data are wrong.

    Source: Northcutt et al. 2021 (arXiv 1911.00068).
    """
    check_target(recipe, target)
    data = recipe.data
    tables = read_labelled(data, ("train", "dev"))
    names = label_names(tables["train"], data.train)
    decided = read_corrections(data.corrections) if data.corrections else []
    decided = check_corrections(decided, tables, names)
    done = {(one.split, one.row): one.label for one in decided if one.label}
    places = [(split, i) for split, table in tables.items() for i in range(1, len(table) + 1)]
    kept = [(place, done.get(place) != REMOVE) for place in places]
    places = [place for place, keep in kept if keep]
    rows = pa.concat_tables(corrected(table, split, decided) for split, table in tables.items())
    gold = np.array(label_ids(rows, names))
    groups = _same_words(*texts_of(rows))
    fits = _fits(rows, gold, len(names), encoder, recipe.teacher.max_tokens)
    found = cross_fitted(fits, gold, len(names), groups, recipe.seed)
    wrong = unlikely(found, gold)
    twins = _twins(gold, groups)
    own = np.nan_to_num(found[np.arange(len(gold)), gold], nan=1.0)
    first = np.ones(groups.max() + 1)
    np.minimum.at(first, groups, own)
    # Rows of the same words stand together, where the most suspect of them would.
    rank = np.lexsort((own, groups, np.where(list(map(bool, twins)), first[groups], own)))
    chosen = [i for i in rank if (wrong[i] or twins[i]) and places[i] not in done]

    known = ~np.isnan(found[:, 0])

    def line(place: tuple[str, int], **own: str) -> dict[str, Any]:
        split, row = place
        return {"split": split, "row": row, **row_of(tables[split], row - 1), **own}

    def suspect(i: int) -> dict[str, Any]:
        others = [f"{places[j][0]} {places[j][1]} as {names[gold[j]]!r}" for j in twins[i][:3]]
        same = [f"same words: {', '.join(others)}"] if others else []
        return line(
            places[i],
            suggested=names[int(found[i].argmax())] if known[i] else "",
            probability=f"{own[i]:.4f}" if known[i] else "",
            reason="; ".join(["unlikely"] * bool(wrong[i]) + same),
        )

    lines = [line(at, reason="decided before", correction=label) for at, label in done.items()]
    lines += [suspect(int(i)) for i in chosen[:_MOST]]
    _write(target, lines, pairs="text_pair" in rows.column_names)
    conflicts = sum(map(bool, twins))
    right = float((found[known].argmax(axis=1) == gold[known]).mean()) if known.any() else 0.0
    more = f"; the file has the first {_MOST:,}" if len(chosen) > _MOST else ""
    return Finding(
        "labels",
        "fine",
        f"models of the other rows agree with {percent(right)} of the {len(gold):,} labels of train and dev and contradict {int(wrong.sum()):,}; "
        f"{conflicts:,} rows have the words of another and not its label{more}",
        f"open {target}, write the right label or {REMOVE} into the column correction, and give the recipe data.corrections: {target}",
        {"agreement": right, "unlikely": int(wrong.sum()), "same_words": conflicts}
        | {"rows": len(gold)}
        | {"file": str(target), "decided": len(done)},
    )


def _fits(
    rows: pa.Table, gold: np.ndarray, classes: int, encoder: str, max_tokens: int
) -> list[Fit]:
    """Return the models that are asked: TF-IDF, and the encoder's vectors where there is one."""
    texts, pairs = texts_of(rows)

    def part(numbers: np.ndarray) -> tuple[list[str], list[str] | None]:
        return [texts[i] for i in numbers], None if pairs is None else [pairs[i] for i in numbers]

    def tfidf(learn: np.ndarray, answer: np.ndarray) -> np.ndarray:
        model = TfidfBaseline(*part(learn), gold[learn], classes, inverse_penalty=_INVERSE_PENALTY)
        return model.logits(*part(answer))

    if not encoder:
        return [tfidf]
    distinct = {text: i for i, text in enumerate(dict.fromkeys([*texts, *(pairs or [])]))}
    table = TextVectors(encoder, max_tokens)(list(distinct))

    def vectors(texts: Sequence[str]) -> np.ndarray:
        return table[[distinct[text] for text in texts]]

    def frozen(learn: np.ndarray, answer: np.ndarray) -> np.ndarray:
        model = FrozenBaseline(vectors, *part(learn), gold[learn], classes)
        return model.logits(*part(answer))

    return [tfidf, frozen]


def _same_words(texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
    """Number N rows, (N,) int: equal ones differ in case, signs and white space alone."""
    split = splitter(texts)

    def words(text: str) -> str:
        # A text of signs alone is its signs.
        return " ".join(word for word in split(text) if word[0].isalnum()) or text

    numbers: dict[str, int] = {}
    keys = (
        normal_row(words(text), None if pair is None else words(pair))
        for text, pair in paired(texts, pairs)
    )
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def _twins(gold: np.ndarray, groups: np.ndarray) -> list[list[int]]:
    """Return for each row the first one of its group with each other label."""
    first: dict[int, dict[int, int]] = defaultdict(dict)
    rows = list(zip(groups.tolist(), gold.tolist(), strict=True))
    for row, (group, label) in enumerate(rows):
        first[group].setdefault(label, row)
    return [
        [other for name, other in first[group].items() if name != label] for group, label in rows
    ]


def _write(target: Path, lines: list[dict[str, Any]], *, pairs: bool) -> None:
    texts = ("text", "text_pair") if pairs else ("text",)
    columns = ("split", "row", *texts, "label", "suggested", "probability", "reason", "correction")
    # Excel takes a file for UTF-8 by its mark.
    with whole_file(target) as partial, partial.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(lines)

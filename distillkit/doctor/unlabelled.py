"""Checks of a recipe that knows the names of the classes alone, before anything is labelled."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from distillkit import pipeline
from distillkit.data.gold import gold_of
from distillkit.data.tables import read_table
from distillkit.doctor.findings import Finding, finding
from distillkit.recipe import Recipe
from distillkit.runs.first_labels import check_first_labels, chosen_texts
from distillkit.teacher.zero_shot import zero_shot

# Half the width of the 95 % interval of an accuracy is 10 points with so many rows.
FEW_HELD_OUT = 100


def check_unlabelled(recipe: Recipe) -> list[Finding]:
    """Say how many texts there are and would be labelled, for what price, and what is held out.

    Args:
        recipe: One with `data.labels`.

    Raises:
        InputError: The texts or dev cannot be read, or the recipe does not say who labels.
    """
    check_first_labels(recipe)
    data, label = recipe.data, recipe.label
    texts, chosen = chosen_texts(recipe)
    dev = None
    if data.dev:
        dev = read_table(data.dev, data.columns, known=list(data.labels), missing=data.missing)
    found = [_held_out(dev), _texts(len(texts), len(chosen))]
    if label.endpoint.url:
        found.append(_price(recipe, chosen))
    elif dev is not None:
        found.append(_zero_shot(recipe, dev))
    return found


def _held_out(dev: pa.Table | None) -> Finding:
    rows = 0 if dev is None else len(dev)
    margin = 1.96 * math.sqrt(0.25 / rows) if rows else 1.0
    said = f"an accuracy is known to {100 * margin:.0f} points" if rows else "no accuracy is known"
    return finding(
        "held-out-labels",
        "fine" if rows >= FEW_HELD_OUT else "warning",
        f"{rows:,} labelled dev rows: {said}",
        f"label {FEW_HELD_OUT} texts or more by hand, in a file with their labels, and name it as data.dev",
        {"dev": rows, "dev_margin": margin},
    )


def _texts(texts: int, chosen: int) -> Finding:
    return finding(
        "first-labels",
        "fine" if chosen >= 200 else "warning",
        f"{texts:,} unlabelled texts, of which {chosen:,} are labelled first",
        f"{'raise label.budget' if chosen < texts else 'name more texts'}: a teacher wants 200 or more",
        {"texts": texts, "first": chosen},
    )


def _price(recipe: Recipe, chosen: pa.Table) -> Finding:
    with tempfile.TemporaryDirectory() as work:
        planned = pipeline.label(
            chosen, Path(work), "", recipe.label, labels=recipe.data.labels, dry_run=True
        )["planned"]
    cost = f", {planned['cost']:.4g} at the recipe's prices" if "cost" in planned else ""
    seen = f"{recipe.label.endpoint.url}: {planned['calls']:,} calls, about {planned['tokens']:,} tokens{cost}"
    return finding("service", "fine", seen, "", planned)


def _zero_shot(recipe: Recipe, dev: pa.Table) -> Finding:
    label, labels = recipe.label, recipe.data.labels
    logits = zero_shot(label.zero_shot, labels, label.meanings(labels))(dev["text"].to_pylist())
    gold = gold_of(dev, labels, "classification")
    right = float(np.mean(logits.argmax(1) == gold))
    majority = float(np.bincount(gold).max() / len(gold))
    return finding(
        "zero-shot",
        "fine" if right > majority + 1.96 * math.sqrt(0.25 / len(gold)) else "error",
        f"{label.zero_shot} labels {100 * right:.1f} % of {len(gold):,} dev rows rightly; the commonest label has {100 * majority:.1f} %",
        "say what each label means with label.descriptions, in the words of the texts, or ask a service",
        {"accuracy": right, "majority": majority},
    )

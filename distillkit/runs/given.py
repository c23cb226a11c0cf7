"""Logits that are given in place of a teacher's: what they are of, and that it is so."""

from pathlib import Path

import pyarrow as pa

from distillkit.data.gold import gold_of, label_names
from distillkit.data.logits import join_logits, joined_labels, stored_rows
from distillkit.errors import InputError
from distillkit.recipe import Recipe
from distillkit.runs.folder import Summary
from distillkit.teacher import chance
from distillkit.teacher.logits_file import file_labels


def check_given_labels(recipe: Recipe, data: Summary) -> None:
    """Refuse labels of given logits that are not those of the data.

    Raises:
        InputError: They are not; a stage after the teacher would find it.
    """
    own, given = list(data["labels"]["train"]), _given_labels(recipe)
    if given and recipe.data.task != "regression" and set(given) != set(own):
        raise InputError(
            f"{recipe.data.logits}: its logits are of {', '.join(given)}, but train has the labels {', '.join(own)}; name them as data.logit_labels"
        )


def logit_labels(recipe: Recipe, train: pa.Table) -> tuple[str, ...]:
    """Return what the logits of `data.logits` mean: as given, as the file says, or train's, sorted."""
    return tuple(_given_labels(recipe) or label_names(train))


def refuse_wrong_order(recipe: Recipe, train: pa.Table, store: Path) -> None:
    """Refuse given logits that answer more training rows aright with their labels in another order.

    Args:
        recipe: Whose `data.logits` they are.
        train: Labelled table.
        store: Where they are stored, of the transfer set's texts.

    Raises:
        InputError: They do.
    """
    kind = recipe.data.task
    if kind == "regression":
        return
    there = stored_rows(train, store / "teacher") & train["label"].is_valid().to_numpy()
    train = train.filter(pa.array(there))
    names = joined_labels(store)
    gold, logits = gold_of(train, names, kind), join_logits(train, store)
    chance.refuse_wrong_order(gold, logits, names, kind, recipe.data.logits, "data.logit_labels")


def _given_labels(recipe: Recipe) -> list[str]:
    data = recipe.data
    return list(data.logit_labels or (file_labels(data.logits) if data.logits else ()))

"""The logits of a run that a model service gives in place of its teacher."""

import json
import shutil
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distillkit import pipeline
from distillkit.errors import InputError
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, Recipe
from distillkit.recipe.endpoint import check_sides
from distillkit.runs.folder import Summary


def check_service(recipe: Recipe) -> None:
    """Refuse a service that could not be asked once the teacher is trained.

    Raises:
        InputError: It has no model, what asks it is not installed, the logits are given, or the task is not classification.
    """
    endpoint = recipe.label.endpoint
    if not endpoint.url:
        return
    endpoint.check_complete()
    if find_spec("httpx") is None:
        raise InputError("label.endpoint.url needs httpx: pip install 'distillkit[endpoint]'")
    if recipe.data.logits:
        raise InputError("data.logits are given, and label.endpoint.url too; drop one of the two")
    check_sides(endpoint.prompt, pairs=bool(recipe.data.columns.text_pair))
    if recipe.data.task != "classification":
        raise InputError(
            f"label.endpoint.url: a service gives one class a text, but data.task is {recipe.data.task}; leave it out"
        )


def ask_service(
    recipe: Recipe,
    run: Path,
    transfer_set: str,
    columns: ColumnsConfig,
    labels: Sequence[str],
    train: str,
    target: Path,
) -> Summary:
    """Label a run's transfer set, or its first texts, by its service.

    The answers are kept in `asked/` of the run's folder, apart from the stage: a stage that fails or
    is done again is removed, and what was paid is not.

    Args:
        recipe: Of the run.
        run: Its folder.
        transfer_set: What is labelled.
        columns: Of the transfer set.
        labels: The labels to choose from.
        train: Fingerprint of the training table, whose rows may be examples.
        target: Folder of the stage's store.

    Returns:
        The summary of `pipeline.label`.
    """
    endpoint = recipe.label.endpoint
    descriptions = recipe.label.descriptions
    asked_as: list[Any] = [endpoint.settings(), descriptions, recipe.label.storage, list(labels)]
    if endpoint.examples:
        asked_as.append(train)
    name = sha256(json.dumps(asked_as, sort_keys=True).encode()).hexdigest()[:16]
    log(f"{endpoint.url} ({endpoint.model}) is asked about {Path(transfer_set).name}")
    store = run / "asked" / name
    summary = pipeline.label(transfer_set, store, "", recipe.label, columns, labels=labels)
    hidden = shutil.ignore_patterns(".*", "answers.jsonl")
    shutil.copytree(store, target, ignore=hidden, dirs_exist_ok=True)
    return {**summary, "output": str(target)}

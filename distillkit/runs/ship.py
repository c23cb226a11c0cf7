"""The stage `ship`: the distilled student, compressed, in one file that answers without torch."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from distillkit import pipeline
from distillkit.compress.run import compress
from distillkit.compress.target import NotMetError
from distillkit.data.content import texts_of
from distillkit.data.foreign import foreign_texts
from distillkit.data.gold import gold_of
from distillkit.data.tables import read_table, take_rows
from distillkit.measure.deferral import teachers_accuracy
from distillkit.measure.rejection import fit_rejection
from distillkit.pipeline.export import change_manifest
from distillkit.processes import log
from distillkit.recipe import SCORES, CompressConfig, CompressJob, Recipe
from distillkit.runs.folder import BUNDLE, RunFolder, Summary
from distillkit.runs.stages import Taught, far_scores
from distillkit.runtime import Predictor
from distillkit.runtime.bundle import read_bundle

# Raise it when the same student and settings give another bundle.
SHIP_VERSION = 8
# Training rows that a rejection rule is fitted on, at most.
_OWN_ROWS = 20_000
_RULE_MB = 0.01  # of the bundle
# Dev rows that may be lost whatever ship.max_drop is: so few tell no bundle from another.
_NOISE_ROWS = 2


def shipped_student(recipe: Recipe, home: RunFolder, task: Taught, transfer_set: str) -> Summary:
    """Bring the stage `ship` up to date.

    Returns:
        `steps` of the compression, without times, and of what the manifest was given:
            `temperature`, with `ship.cascade` also `cascade`, and what `rejection` refuses.
    """

    def build(out: Path) -> Summary:
        place = out / "compressed"
        steps = _compressed(recipe, home, task, transfer_set, place)
        for step in steps:
            del step["milliseconds"]
        bundle = place / BUNDLE
        small = _megabytes(bundle) <= recipe.ship.max_mb
        if not small:
            log(f"ship: the bundle has {_megabytes(bundle):.3f} MB, above ship.max_mb")
        found = manifest_fields(recipe, task, bundle)
        change_manifest(bundle, **found)
        if small and "rejection" in found and _megabytes(bundle) > recipe.ship.max_mb:
            log(f"ship: no rejection rule: the bundle would grow to {_megabytes(bundle):.3f} MB")
            del found["rejection"]
            change_manifest(bundle, rejection=None)
        bundle.rename(out / BUNDLE)
        if "rejection" in found:
            rule = found["rejection"]
            found["rejection"] = {key: rule[key] for key in ("own_refused", "foreign_refused")}
        if recipe.data.task == "classification":
            found["temperature"] = read_bundle(out / BUNDLE)[0].temperature
        return {"steps": steps, **found}

    settings = [asdict(recipe.ship), recipe.training.settings(), asdict(recipe.loss), recipe.seed]
    settings += far_scores(recipe, task.data)
    inputs = {"dev": task.tables["dev"], **home.keys("teacher", "logits", "student")}
    return home.stage("ship", settings, inputs, build, version=SHIP_VERSION)


def _compressed(
    recipe: Recipe, home: RunFolder, task: Taught, transfer_set: str, place: Path
) -> list[dict[str, Any]]:
    """Compress the student as `ship` says, or else as little as it takes; return the steps.

    What keeps to the drop in int8, or else fp16, is not trained again: it is the student, rounded.
    """
    ship = recipe.ship
    max_drop = max(ship.max_drop, 100 * _NOISE_ROWS / task.data["rows"]["dev"])
    job = CompressJob(
        str(home.folder / "student" / "model"),
        place,
        task.path["dev"],
        transfer_set=transfer_set,
        logits=home.folder / "logits" / "store",
        loss=recipe.loss,
        training=replace(
            recipe.training.by_epochs(1), learning_rate=recipe.training.learning_rate / 10
        ),
        columns=task.columns,
        max_mb=ship.max_mb - min(_RULE_MB, ship.max_mb / 10),
        max_drop=max_drop,
        seed=recipe.seed,
        overwrite=True,  # by the next try, or after a kill
    )
    if ship.compress.changes_tensors or ship.compress.changes_storage:
        job = replace(job, settings=ship.compress, max_mb=0.0, max_drop=0.0)
    try:
        return compress(job)["steps"]
    except NotMetError as why:
        log(f"ship: {why}; trying a larger bundle")
    for stored in ("int8", "fp16"):
        settings = CompressConfig(embeddings=stored, weights=stored)
        larger = replace(job, settings=settings, logits=None, max_mb=0.0, max_drop=0.0)
        steps = compress(larger)["steps"]
        first, last = (step[SCORES[recipe.data.task]] for step in (steps[0], steps[-1]))
        if 100 * (first - last) <= max_drop + 1e-9:
            break
    return steps


def _megabytes(file: Path) -> float:
    return file.stat().st_size / 1e6


def manifest_fields(recipe: Recipe, task: Taught, bundle: Path) -> Summary:
    """Return what else the manifest of a compressed bundle is given: `cascade`, `rejection`."""
    kind, found = recipe.data.task, Summary()
    predictor = Predictor(bundle, threads=0)
    train, dev = (read_table(task.path[name], task.columns, task=kind) for name in ("train", "dev"))
    if recipe.ship.cascade and kind == "classification":
        logits, gold = predictor.logits(*texts_of(dev)), gold_of(dev, predictor.labels, kind)
        theirs, _ = pipeline.classify(task.model, dev, task.path["dev"], predictor.labels)
        temperature = predictor.manifest.temperature
        found["cascade"] = teachers_accuracy(logits, theirs, gold, temperature)
    own = take_rows(train, np.arange(0, len(train), -(-len(train) // _OWN_ROWS)))
    foreign = {
        # Of pairs a text and the next one of its kind.
        name: predictor.words(texts, [*texts[1:], texts[0]] if task.columns.text_pair else None)
        for name, texts in foreign_texts(recipe.data.train, *recipe.data.unlabelled).items()
    }
    words = predictor.words
    rule = fit_rejection(words(*texts_of(own)), foreign, words(*texts_of(dev)))
    if rule is None:
        log("ship: no rejection rule: it needs 99 dev rows and words that repeat in train")
        return found
    return found | {"rejection": rule}

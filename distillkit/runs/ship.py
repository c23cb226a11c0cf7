"""The stage `ship`: the distilled student, compressed, in one file that answers without torch."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from distillkit import pipeline
from distillkit.compress.run import compress
from distillkit.compress.target import NotMetError
from distillkit.data.gold import gold_of
from distillkit.data.tables import read_table, texts_of
from distillkit.measure.deferral import teachers_accuracy
from distillkit.measure.statistics import fit_temperature
from distillkit.pipeline.export import change_manifest
from distillkit.processes import log
from distillkit.recipe import SCORES, CompressConfig, CompressJob, Recipe
from distillkit.runs.folder import BUNDLE, RunFolder, Summary
from distillkit.runs.stages import Taught
from distillkit.runtime import Predictor

# Raise it when the same student and settings give another bundle.
SHIP_VERSION = 2


def shipped_student(recipe: Recipe, home: RunFolder, task: Taught, transfer_set: str) -> Summary:
    """Bring the stage `ship` up to date.

    Returns:
        `steps` of the compression, without times, and what the manifest was given: `temperature`,
            and with `ship.cascade` also `cascade`.
    """

    def build(out: Path) -> Summary:
        place = out / "compressed"
        steps = _compressed(recipe, home, task, transfer_set, place)
        for step in steps:
            del step["milliseconds"]
        found = _calibrated(recipe, task, place / BUNDLE)
        change_manifest(place / BUNDLE, **found)
        (place / BUNDLE).rename(out / BUNDLE)
        return {"steps": steps, **found}

    settings = [asdict(recipe.ship), asdict(recipe.training), asdict(recipe.loss), recipe.seed]
    inputs = {"dev": task.tables["dev"], **home.keys("teacher", "logits", "student")}
    return home.stage("ship", settings, inputs, build, version=SHIP_VERSION)


def _compressed(
    recipe: Recipe, home: RunFolder, task: Taught, transfer_set: str, place: Path
) -> list[dict[str, Any]]:
    """Compress the student to the size asked for, or else as little as it takes; return the steps.

    What keeps to the drop in int8, or else fp16, is not trained again: it is the student, rounded.
    """
    ship = recipe.ship
    job = CompressJob(
        str(home.folder / "student" / "model"),
        place,
        task.path["dev"],
        transfer_set=transfer_set,
        logits=home.folder / "logits" / "store",
        loss=recipe.loss,
        training=recipe.training.by_epochs(1),
        columns=task.columns,
        max_mb=ship.max_mb,
        max_drop=ship.max_drop,
        seed=recipe.seed,
    )
    try:
        return compress(job)["steps"]
    except NotMetError as why:
        log(f"ship: {why}; a larger bundle then")
    for stored in ("int8", "fp16"):
        settings = CompressConfig(embeddings=stored, weights=stored)
        larger = replace(job, settings=settings, logits=None, max_mb=0.0, max_drop=0.0)
        steps = compress(larger)["steps"]
        first, last = (step[SCORES[recipe.data.task]] for step in (steps[0], steps[-1]))
        if 100 * (first - last) <= ship.max_drop:
            break
    return steps


def _calibrated(recipe: Recipe, task: Taught, bundle: Path) -> Summary:
    """Fit on dev what the bundle's manifest says of confidence."""
    if recipe.data.task != "classification":
        return {}
    predictor = Predictor(bundle, threads=0)
    dev = read_table(task.path["dev"], task.columns)
    logits, gold = (
        predictor.logits(*texts_of(dev)),
        gold_of(dev, predictor.labels, "classification"),
    )
    found: Summary = {"temperature": fit_temperature(logits, gold)}
    if recipe.ship.cascade:
        theirs, _ = pipeline.classify(task.model, dev, task.path["dev"], predictor.labels)
        found["cascade"] = teachers_accuracy(logits, theirs, gold, found["temperature"])
    return found

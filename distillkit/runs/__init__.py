"""`distillkit run`: all stages in order, each done once, whole or not at all."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from distillkit import __version__
from distillkit.data.files import whole_file
from distillkit.errors import InputError
from distillkit.measure.closing import collapsed
from distillkit.pipeline.export import check_installed
from distillkit.processes import log
from distillkit.recipe import SCORES, Recipe, dump
from distillkit.recipe.augment import LEAST_VARIANTS, MOST_VARIANTS, VARIANTS
from distillkit.recipe.training import (
    STUDENT_EPOCHS,
    STUDENT_STEPS,
    TEACHER_EPOCHS,
    TEACHER_STEPS,
)
from distillkit.runs.evaluation import evaluate_models
from distillkit.runs.folder import (
    BUNDLE,
    RunFolder,
    Summary,
    at_work,
    stages_of,
)
from distillkit.runs.stages import (
    Taught,
    label_transfer_set,
    look_ahead,
    teach,
    with_data,
    with_variants,
)
from distillkit.runs.students import distilled_student, gold_student, student_job, vectors_of
from distillkit.runtime.bundle import read_bundle

__all__ = [
    "RunFolder",
    "Summary",
    "Taught",
    "at_work",
    "label_transfer_set",
    "look_ahead",
    "run",
    "student_job",
    "teach",
    "vectors_of",
    "with_data",
    "with_variants",
]


def run(recipe: Recipe, folder: Path) -> Summary:
    """Run a recipe from labelled text to the evaluation of every model.

    Args:
        recipe: What to run.
        folder: Where every stage keeps its result; finished stages are kept when it is run again.

    Returns:
        What is written to `result.json`: the data, the transfer set, and each model's scores and
        size. It holds no times, so the same run gives the same bytes; those are in `latency.json`.

    Raises:
        InputError: Something given is wrong, or another run is at work in the folder.
    """
    with at_work(folder, stages_of(recipe)) as home:
        if recipe.ship.form == "bundle":
            check_installed("run", ", or leave the bundle out with --ship.form none")
        recipe = with_data(recipe)
        models = look_ahead(recipe)
        task = teach(recipe, home, folder / "recipe.yaml")
        counts, transfer_set = label_transfer_set(recipe, home, task, models)
        recipe = _settled(recipe, task, counts["rows"], folder / "recipe.yaml")
        trained = {"teacher": task.teacher}
        if recipe.evaluation.gold_epochs:
            trained["student_gold"] = gold_student(recipe, home, task, transfer_set)
        trained["student"] = distilled_student(recipe, home, task, transfer_set)
        if recipe.ship.form == "bundle":
            # It imports packages that students are made without.
            from distillkit.runs.ship import shipped_student

            shipped = shipped_student(recipe, home, task, transfer_set)
        evaluated = evaluate_models(recipe, home, task)
        result = _result(recipe, task, counts, trained, evaluated)
        if recipe.ship.form == "bundle":
            result["shipped"] = shipped
            if not _is_shipped(folder):
                with whole_file(folder / BUNDLE) as partial:
                    shutil.copyfile(folder / "ship" / BUNDLE, partial)
        result["collapsed"] = collapsed(result["models"], SCORES[recipe.data.task])
    with whole_file(folder / "result.json") as partial:
        partial.write_text(dumped(result), encoding="utf-8")
    return result


def _is_shipped(folder: Path) -> bool:
    """Say whether the run's bundle is the shipped one, perhaps with what `cascade` has added."""
    try:
        own, _ = read_bundle(folder / BUNDLE)
        shipped, _ = read_bundle(folder / "ship" / BUNDLE)
    except InputError:  # absent, or damaged
        return False
    if own.cascade:  # which has fitted a temperature of its own
        own = replace(own, cascade=None, temperature=shipped.temperature)
    return own == shipped


def dumped(result: Summary) -> str:
    """Return a result as `result.json` has it."""
    return json.dumps(result, ensure_ascii=False, indent=1) + "\n"


def settled(recipe: Recipe, texts: int, rows: int) -> Recipe:
    """Return a recipe in which what follows from the rows is settled.

    Args:
        recipe: May leave the teacher's epochs, the variants and the student's steps to the rows.
        texts: Rows of the training table.
        rows: Rows of the transfer set.
    """
    return replace(
        recipe,
        teacher=recipe.teacher.for_rows(texts),
        augment=recipe.augment.for_rows(texts),
        training=recipe.training.for_rows(rows),
    )


def _settled(recipe: Recipe, task: Taught, rows: int, saved: Path) -> Recipe:
    """Settle what follows from the rows, and save it in the run's recipe with the reasons."""
    texts = task.data["rows"]["train"]
    now = settled(recipe, texts, rows)
    reasons = []
    if now.teacher != recipe.teacher:
        reasons.append(
            f"teacher.training.epochs: {now.teacher.training.epochs}, from {texts:,} training rows: {TEACHER_EPOCHS}, but at least {TEACHER_STEPS} steps"
        )
    if now.augment != recipe.augment:
        reasons.append(
            f"augment.n_iter: {now.augment.n_iter}, from {texts:,} training texts: about {VARIANTS:,} variants, {LEAST_VARIANTS} to {MOST_VARIANTS} of each"
        )
    if now.training != recipe.training:
        reasons.append(
            f"training.steps: {now.training.steps:,}, from {rows:,} rows of the transfer set: {STUDENT_EPOCHS} passes, but at least {STUDENT_STEPS:,} steps"
        )
    if reasons:
        with whole_file(saved) as partial:
            lines = "".join(f"# {why}\n" for why in reasons)
            partial.write_text(lines + dump(now), encoding="utf-8")
        log("\n".join(reasons))
    return now


def _result(
    recipe: Recipe, task: Taught, counts: Summary, trained: dict[str, Summary], evaluated: Summary
) -> Summary:
    def kept(name: str) -> tuple[str, ...]:
        training = recipe.teacher.training if name == "teacher" else recipe.training
        return f"dev_{training.score_of(recipe.data.task)}", "best_epoch", "history"

    return {
        "distillkit": __version__,
        "seed": recipe.seed,
        "data": task.data,
        **({"adapted": task.adapted} if task.adapted else {}),
        "transfer_set": counts,
        "training": {
            name: {key: stage[key] for key in kept(name)} for name, stage in trained.items()
        },
        "models": evaluated["models"],
    }

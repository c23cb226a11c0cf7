"""The stages `student-gold` and `student`: the same student, taught by labels and by logits."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from distillkit import pipeline
from distillkit.data.checked import fingerprint, fingerprint_or_name
from distillkit.pipeline.student import STUDENT_VERSION
from distillkit.recipe import LossConfig, Recipe
from distillkit.runs.folder import RunFolder, Summary, relative
from distillkit.runs.stages import Taught
from distillkit.teacher.checkpoint import resolve

# Few rows want small batches: at the transfer set's batch size the gold student would take too few
# steps to be a fair rival.
GOLD_BATCH = 64


def gold_student(recipe: Recipe, home: RunFolder, task: Taught, transfer_set: str) -> Summary:
    """Bring the stage `student-gold` up to date."""
    batch_size = min(recipe.training.batch_size, GOLD_BATCH)
    epochs = recipe.evaluation.gold_epochs

    def build(out: Path) -> Mapping[str, Any]:
        job = pipeline.StudentJob(
            task.path["train"],
            task.path["dev"],
            out / "model",
            recipe.student,
            teacher=task.model,
            loss=LossConfig(alpha=1),
            training=replace(recipe.training.by_epochs(epochs), batch_size=batch_size),
            columns=task.columns,
            task=recipe.data.task,
            vocabulary_from=transfer_set,
            seed=recipe.seed,
            progress="student on gold labels",
        )
        return pipeline.train_student(job)

    settings = [_settings(recipe), epochs, batch_size]
    inputs = _inputs(recipe, home, task, "teacher", "transfer") | {"train": task.tables["train"]}
    return relative(home.stage("student-gold", settings, inputs, build, version=STUDENT_VERSION))


def distilled_student(recipe: Recipe, home: RunFolder, task: Taught, transfer_set: str) -> Summary:
    """Bring the stage `student` up to date."""

    def build(out: Path) -> Mapping[str, Any]:
        job = pipeline.StudentJob(
            transfer_set,
            task.path["dev"],
            out / "model",
            recipe.student,
            logits=home.folder / "logits" / "store",
            teacher=task.model,
            loss=recipe.loss,
            training=recipe.training,
            columns=task.columns,
            seed=recipe.seed,
        )
        return pipeline.train_student(job)

    settings = [_settings(recipe), asdict(recipe.loss)]
    inputs = _inputs(recipe, home, task, "teacher", "logits")
    return relative(home.stage("student", settings, inputs, build, version=STUDENT_VERSION))


def vectors_of(recipe: Recipe) -> dict[str, str]:
    """Return the fingerprint of the file or encoder that the student's word vectors are from."""
    vectors = recipe.student.embeddings
    if vectors.encoder:
        return {"word vectors": fingerprint_or_name(resolve(vectors.encoder))}
    return {"word vectors": fingerprint(vectors.file)} if vectors.file else {}


def _settings(recipe: Recipe) -> list[object]:
    return [asdict(recipe.student), recipe.training.settings(), recipe.seed]


def _inputs(recipe: Recipe, home: RunFolder, task: Taught, *stages: str) -> dict[str, str]:
    return {"dev": task.tables["dev"], **home.keys(*stages), **vectors_of(recipe)}

"""The stages `student-gold` and `student`: the same student, taught by labels and by logits."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from distillkit import pipeline
from distillkit.data.checked import fingerprint, fingerprint_or_name
from distillkit.pipeline.student import STUDENT_VERSION
from distillkit.recipe import LossConfig, Recipe, StudentJob
from distillkit.runs.folder import RunFolder, Summary, relative
from distillkit.runs.stages import Taught, far_scores
from distillkit.teacher.checkpoint import resolve

# Few rows want small batches: at the transfer set's batch size the gold student would take too few
# steps to be a fair rival.
GOLD_BATCH = 64


def student_job(
    recipe: Recipe, task: Taught, transfer_set: str, output: Path, logits: Path | None
) -> StudentJob:
    """Return how a recipe's student learns a transfer set; without logits, from its labels."""
    return StudentJob(
        transfer_set,
        task.path["dev"],
        output,
        recipe.student,
        logits=logits,
        teacher=task.model,
        loss=recipe.loss if logits else LossConfig(alpha=1),
        training=recipe.training,
        columns=task.columns,
        task=recipe.data.task,
        seed=recipe.seed,
    )


def gold_student(recipe: Recipe, home: RunFolder, task: Taught, transfer_set: str) -> Summary:
    """Bring the stage `student-gold` up to date."""
    batch_size = min(recipe.training.batch_size, GOLD_BATCH)
    epochs = recipe.evaluation.gold_epochs

    def build(out: Path) -> Mapping[str, Any]:
        job = replace(
            student_job(recipe, task, task.path["train"], out / "model", None),
            training=replace(recipe.training.by_epochs(epochs), batch_size=batch_size),
            vocabulary_from=transfer_set,
            progress="student on gold labels",
        )
        return pipeline.train_student(job)

    settings = [_settings(recipe, task), epochs, batch_size]
    inputs = _inputs(recipe, home, task, "teacher", "transfer") | {"train": task.tables["train"]}
    return relative(home.stage("student-gold", settings, inputs, build, version=STUDENT_VERSION))


def distilled_student(recipe: Recipe, home: RunFolder, task: Taught, transfer_set: str) -> Summary:
    """Bring the stage `student` up to date."""

    def build(out: Path) -> Mapping[str, Any]:
        logits = home.folder / "logits" / "store"
        return pipeline.train_student(
            student_job(recipe, task, transfer_set, out / "model", logits)
        )

    settings = [_settings(recipe, task), asdict(recipe.loss)]
    if recipe.labelled_elsewhere:  # at first log-probabilities were learnt as they are
        settings.append("log-probabilities are centred")
    inputs = _inputs(recipe, home, task, "teacher", "logits")
    return relative(home.stage("student", settings, inputs, build, version=STUDENT_VERSION))


def vectors_of(recipe: Recipe) -> dict[str, str]:
    """Return the fingerprint of the file or encoder that the student's word vectors are from."""
    vectors = recipe.student.embeddings
    if vectors.encoder:
        return {"word vectors": fingerprint_or_name(resolve(vectors.encoder))}
    return {"word vectors": fingerprint(vectors.file)} if vectors.file else {}


def _settings(recipe: Recipe, task: Taught) -> list[object]:
    how = [asdict(recipe.student), recipe.training.settings(), recipe.seed]
    if recipe.student.kind == "siamese-transformer":  # at first the second began without [CLS]
        how.append("both texts begin alike")
    far = far_scores(recipe, task.data)
    if far and recipe.student.kind == "transformer" and not recipe.student.hidden_size:
        far.append("by the teacher's head, too")
    return [*how, *far]


def _inputs(recipe: Recipe, home: RunFolder, task: Taught, *stages: str) -> dict[str, str]:
    return {"dev": task.tables["dev"], **home.keys(*stages), **vectors_of(recipe)}

"""`train_student`: transfer set and logits -> student."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from distillkit.data.files import check_replaceable, whole_folder
from distillkit.data.labels import PROBLEM_TYPES
from distillkit.data.logits import joined_labels, store_task
from distillkit.data.tables import label_names, mask_of, read_table, texts_of
from distillkit.data.weighting import teacher_targets
from distillkit.errors import InputError
from distillkit.pipeline.task import COLUMNS
from distillkit.processes import rank
from distillkit.recipe import (
    ColumnsConfig,
    LossConfig,
    Recipe,
    StudentConfig,
    Task,
    TrainingConfig,
    dump,
)
from distillkit.student.build import build_student
from distillkit.student.train import train_student_model
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_vectors import word_vectors
from distillkit.training.checkpoints import Checkpoints, checkpoint_folder, digest


def train_student(
    transfer_set: str,
    dev: str,
    output: Path,
    student: StudentConfig | None = None,
    *,
    logits: Path | None = None,
    teacher: str = "",
    loss: LossConfig | None = None,
    training: TrainingConfig | None = None,
    columns: ColumnsConfig = COLUMNS,
    task: Task = "classification",
    vocabulary_from: str = "",
    seed: int = 1,
    progress: str = "student",
    resume: bool = True,
) -> dict[str, Any]:
    """Distil: train a student on a transfer set and its logits, keep what is best on dev.

    Args:
        transfer_set: What `augment` wrote, or any table of texts.
        dev: Labelled source.
        output: Folder for the student: what `from_pretrained` takes.
        student: Kind, sizes, vocabulary, embeddings.
        logits: The store that `label` wrote; None: learn from the gold labels of `transfer_set`
            alone.
        teacher: Its checkpoint, where `student.embeddings.source` is teacher or teacher-context.
        loss: What to match.
        training: How.
        columns: Names of the sources' columns.
        task: What the labels are, where there are no logits; a store says it itself.
        vocabulary_from: Another source for the vocabulary; empty: `transfer_set`.
        seed: Draws weights, order, dropout.
        progress: Name of the progress bar.
        resume: Go on from the checkpoints that a killed training of the same settings left; False:
            start over.

    Returns:
        `output`, `labels`, `dev_accuracy` (`dev_micro_f1`, `dev_pearson`), `best_epoch`, `history`,
        `vocabulary`; of several teachers `teacher_weights`, unless they differ from row to row.
    """
    student, loss = student or StudentConfig(), loss or LossConfig()
    training = training or Recipe().training
    check_replaceable(output, "student.yaml")
    gold_only = logits is None
    if gold_only and loss.asks_teacher:
        which = "alpha" if loss.alpha < 1 else "alpha_end"
        raise InputError(
            f"loss.{which} is {getattr(loss, which)}, which needs the teacher's logits: give --logits, or --loss.alpha 1 to learn from gold labels alone"
        )
    weights = loss.teacher_weights()
    task = task if logits is None else store_task(logits, weights)
    loss.check_task(task)
    table = read_table(
        transfer_set, columns, task=task, labels="required" if gold_only else "optional"
    )
    dev_table = read_table(dev, columns, task=task)
    student.check_fits(pairs="text_pair" in table.column_names, source=transfer_set)
    words = read_table(vocabulary_from, columns, labels="ignored") if vocabulary_from else table
    mask = mask_of(words)
    texts, pairs = texts_of(words)
    names = label_names(table) if logits is None else joined_labels(logits, weights)
    targets, weights = (
        (None, {}) if logits is None else teacher_targets(table, logits, loss, dev_table)
    )
    asked = student.asks_teacher or loss.hidden or loss.attention
    taught = load_classifier(teacher) if teacher and asked else None
    ask = partial(word_vectors, *taught, progress="word vectors") if taught else None
    model, tokenizer = build_student(
        [*texts, *(pairs or [])], names, student, seed, ask, mask, taught
    )
    model.config.problem_type = PROBLEM_TYPES[task]
    gold = table["label"].to_pylist() if "label" in table.column_names else []
    made_from = {
        "student": asdict(student),
        "loss": asdict(loss),
        "targets (SHA-256)": digest(targets, gold, names),
    }
    checkpoints = Checkpoints(checkpoint_folder(output), made_from, resume=resume)
    result = train_student_model(
        model,
        tokenizer,
        table,
        targets,
        dev_table,
        loss,
        training,
        seed,
        mask=mask_of(table),
        progress=progress,
        checkpoints=checkpoints,
        teacher_model=taught[0] if taught else None,
    )
    if rank() == 0:
        with whole_folder(output) as folder:
            model.cpu().save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            (folder / "student.yaml").write_text(dump(student), encoding="utf-8")
            checkpoints.hand_over(folder)
        checkpoints.discard()
    summary = {
        "output": str(output),
        "labels": names,
        "vocabulary": len(tokenizer),
        **result.summary(task),
    }
    return summary | ({"teacher_weights": weights} if len(weights) > 1 else {})

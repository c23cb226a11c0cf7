"""`train_student`: transfer set and logits -> student."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from distillkit.data.checked import save_pretrained
from distillkit.data.content import Texts, texts_alone
from distillkit.data.files import replaceable, whole_folder
from distillkit.data.gold import check_labels_known, label_names
from distillkit.data.labels import PROBLEM_TYPES
from distillkit.data.logits import join_logits, joined_labels, store_task, teacher_shares
from distillkit.data.memory import source_of
from distillkit.data.scratch import Scratch
from distillkit.data.tables import mask_of, read_table
from distillkit.errors import InputError, say_renamed
from distillkit.pipeline.prepared import Prepared, shared
from distillkit.pipeline.results import Trained
from distillkit.processes import rank
from distillkit.recipe import EvaluationConfig, StudentJob, Task, TrainingConfig, dump
from distillkit.student.build import build_student
from distillkit.student.train import TrainingRows, fit_plan, training_rows
from distillkit.teacher.checkpoint import load_base_model, load_classifier
from distillkit.teacher.word_states import word_states
from distillkit.training.checkpoints import Checkpoints, checkpoint_folder, digest
from distillkit.training.loop import fit
from distillkit.training.plan import FitPlan
from distillkit.training.scores import rescale, scale_of, standardise
from distillkit.training.strategies import start

# Raise it when the same settings and inputs give another result: runs then do the stage again.
STUDENT_VERSION = 2


def train_student(job: StudentJob | str, *old: Any, **named: Any) -> Trained:
    """Distil: train a student on a transfer set and its logits, keep what is best on dev.

    Args:
        job: What to train, on what, and how; `transfer_set` and `dev` may be rows in memory, as
            `data.memory.source_of` takes them.
        *old: The fields of a `StudentJob` one by one, as before; for one release.
        **named: The same.

    Raises:
        InputError: A source, the store or a setting is wrong, or does not fit the others.
    """
    if not isinstance(job, StudentJob):
        say_renamed("", "train_student(SET, ...)", "train_student(StudentJob(SET, ...))")
        named |= zip(("dev", "output", "student"), old, strict=False)
        job = StudentJob(job, **{name: given for name, given in named.items() if given is not None})
    job = replace(
        job,
        transfer_set=source_of(job.transfer_set, "transfer_set"),
        dev=source_of(job.dev, "dev"),
        output=Path(job.output),
    )
    with replaceable(job.output, "student.yaml"):
        kind = _kind_of_task(job)
        dev = read_table(job.dev, job.columns, task=kind)
        strategy = start(_length(job))
        with shared(strategy, job.output, lambda: _prepared(job, kind, dev)) as prepared:
            scale = _scale(job, kind, prepared.rows)
            teachers_head = job.student.kind == "transformer" and not job.student.hidden_size
            if scale != (0.0, 1.0) and teachers_head:
                standardise(prepared.model, prepared.rows.tokens, *scale)
            plan = _plan(job, prepared, dev, scale)
            result = fit(prepared.model, plan, strategy)
            if rank() == 0:
                if scale != (0.0, 1.0):
                    rescale(prepared.model, *scale)
                _save(job, prepared, plan)
    shares = prepared.teacher_shares
    return Trained(
        output=str(job.output),
        labels=list(prepared.model.config.id2label.values()),
        vocabulary=len(prepared.tokenizer),
        teacher_weights=shares if len(shares) > 1 else None,
        **result.summary(plan.config.score_of(kind)),
    )


def _prepared(job: StudentJob, kind: Task, dev: pa.Table) -> Prepared:
    """Read the transfer set, join the logits, build the student, tokenise."""
    labels = "required" if job.logits is None else "optional"
    scratch = Scratch(job.output.parent)
    table = read_table(job.transfer_set, job.columns, task=kind, labels=labels, scratch=scratch)
    job.student.check_fits(pairs="text_pair" in table.column_names, source=job.transfer_set)
    if job.logits and job.training.sampling_weights and "origin" not in table.column_names:
        raise InputError(
            f"{job.transfer_set}: no column 'origin', by which training.sampling_weights counts; leave them out, or give what distillkit augment wrote"
        )
    targets = None
    shares: dict[str, float] = {}
    if job.logits is None:
        names = label_names(table)
    else:
        weights = job.loss.teacher_weights()
        names, shares = joined_labels(job.logits, weights), teacher_shares(job.logits, weights)
        targets = join_logits(table, job.logits, weights, scratch, as_targets=True)
    check_labels_known(dev, names, "dev")  # tokenising takes longer
    teacher = load_classifier(job.teacher) if job.teacher and job.student.asks_teacher else None
    model, tokenizer = _build(job, table, names, teacher)
    model.config.problem_type = PROBLEM_TYPES[kind]
    gold = table["label"] if "label" in table.column_names else []
    rows = training_rows(
        model,
        tokenizer,
        table,
        targets,
        job.loss,
        job.training,
        mask=mask_of(table),
        progress=job.progress,
        scratch=scratch,
    )
    return Prepared(model, tokenizer, rows, shares, digest(targets, gold, names))


def _scale(job: StudentJob, kind: Task, rows: TrainingRows) -> tuple[float, float]:
    """Return mean and standard deviation by which the student's scores are standardised."""
    scores = rows.gold if rows.targets is None else rows.targets
    return scale_of(scores) if kind == "regression" and scores is not None else (0.0, 1.0)


def _plan(
    job: StudentJob, prepared: Prepared, dev: pa.Table, scale: tuple[float, float]
) -> FitPlan:
    """Put together what the student is to learn."""
    made_from = {
        "student": asdict(job.student),
        "loss": asdict(job.loss),
        "targets (SHA-256)": prepared.digest,
    }
    if scale != (0.0, 1.0):
        made_from["scores"] = "standardised"
    return fit_plan(
        prepared.model,
        prepared.tokenizer,
        prepared.rows,
        dev,
        job.loss,
        _length(job),
        job.seed,
        job.progress,
        Checkpoints(checkpoint_folder(job.output), made_from, resume=job.resume),
        scale,
    )


def _length(job: StudentJob) -> TrainingConfig:
    """Return how to train: gold labels, of which there are few, are soon known by heart."""
    gold = job.logits is None and job.training.by_rows
    return job.training.by_epochs(EvaluationConfig().gold_epochs) if gold else job.training


def _kind_of_task(job: StudentJob) -> Task:
    """Return what the labels are, and check that the loss fits them.

    Raises:
        InputError: The loss needs logits that are not there, or has no meaning for the task.
    """
    if job.logits is None and job.loss.asks_teacher:
        raise InputError(
            f"loss.alpha is {job.loss.alpha}, which needs the teacher's logits: give --logits, or --loss.alpha 1 to learn from gold labels alone"
        )
    weights = job.loss.teacher_weights()
    task = job.task if job.logits is None else store_task(job.logits, weights)
    job.loss.check_task(task)
    job.training.score_of(task)
    return task


def _build(
    job: StudentJob, table: pa.Table, names: Sequence[str], teacher: tuple[Any, Any] | None
) -> tuple[Any, Any]:
    """Build the student and its tokenizer."""
    source = job.vocabulary_from
    scratch = Scratch(job.output.parent)
    words = read_table(source, job.columns, labels="ignored", scratch=scratch) if source else table
    texts = Texts(*texts_alone(words).columns)
    other = job.student.reads_words and job.student.embeddings.encoder
    encoder = load_base_model(other) if other else teacher
    ask = partial(word_states, *encoder, progress="word vectors") if encoder else None
    return build_student(texts, names, job.student, job.seed, ask, mask_of(words), teacher)


def _save(job: StudentJob, prepared: Prepared, plan: FitPlan) -> None:
    assert plan.checkpoints is not None
    with whole_folder(job.output) as folder:
        save_pretrained(folder, prepared.model.cpu(), prepared.tokenizer)
        (folder / "student.yaml").write_text(dump(job.student), encoding="utf-8")
        plan.checkpoints.hand_over(folder)
    plan.checkpoints.discard()

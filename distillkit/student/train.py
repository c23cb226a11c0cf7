"""Train a student on a table whose teacher's logits are a column."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from distillkit.data.batches import encode
from distillkit.data.labels import task_of_model
from distillkit.data.scores import dev_score
from distillkit.data.tables import check_labels_known, gold_of, texts_of
from distillkit.errors import InputError
from distillkit.loss import DistillationLoss
from distillkit.recipe import LossConfig, TrainingConfig
from distillkit.student.states import with_states
from distillkit.training.checkpoints import Checkpoints
from distillkit.training.loop import FitResult, fit


def train_student_model(
    model: Any,
    tokenizer: Any,
    table: pa.Table,
    logits: np.ndarray | None,
    dev: pa.Table,
    loss: LossConfig,
    training: TrainingConfig,
    seed: int,
    *,
    mask: str = "",
    progress: str = "student",
    checkpoints: Checkpoints | None = None,
    teacher_model: Any = None,
) -> FitResult:
    """Train a student in place and keep the epoch that is best on dev.

    Args:
        model: From `build_student`; its configuration says what kind of task it is for.
        tokenizer: From `build_student`.
        table: N rows to learn from; a `label` column is used where the hard term has a weight, of
            rows whose `origin`, if there is such a column, is original: no other has a label that
            somebody gave it.
        logits: The teacher's, (N, C) float32, row by row; None learns from labels alone and needs
            `loss.alpha` 1.
        dev: Labelled table.
        loss: What to match.
        training: How.
        seed: Order of the rows, dropout.
        mask: The transfer set's mask word.
        progress: Name of the progress bar.
        checkpoints: Where training keeps what it needs to go on after a kill.
        teacher_model: The teacher, for `loss.hidden` and `loss.attention`.

    Returns:
        How training went; the score is `data.scores.dev_score`.

    Raises:
        InputError: A label is unknown to the model or of another task, or the loss asks what the
            task has no meaning for.
    """
    labels = [model.config.id2label[i] for i in range(model.config.num_labels)]
    check_labels_known(dev, labels, "dev")
    rows = encode(
        tokenizer,
        *texts_of(table),
        tokenizer.model_max_length,
        mask=mask,
        progress=f"{progress}: tokenise",
    )
    dev_rows = encode(tokenizer, *texts_of(dev), tokenizer.model_max_length)
    task = task_of_model(model.config)
    dev_gold = gold_of(dev, labels, task)
    teacher = None if logits is None else torch.from_numpy(logits)
    gold = None
    if loss.asks_labels and "label" in table.column_names:
        gold = torch.from_numpy(gold_of(_without_made_labels(table), labels, task))
    criterion = DistillationLoss(loss, task)
    learner = with_states(model, teacher_model, loss) if loss.hidden or loss.attention else model

    def loss_of_rows(batch: Tensor, found: Tensor, done: float) -> Tensor:
        nonlocal teacher, gold
        # Beside the model from the first batch on: a copy a batch would wait for the device each
        # time.
        teacher, gold = (
            None if target is None else target.to(found.device) for target in (teacher, gold)
        )
        targets = (None if target is None else target[batch] for target in (teacher, gold))
        if learner is model:
            return criterion(found, *targets, done)
        return criterion(found[:, :-1], *targets, done) + found[:, -1].mean()

    def score(found: Tensor) -> float:
        return dev_score(task, found.numpy(), dev_gold)

    times = row_times(table, training.times_of())
    return fit(
        learner,
        rows,
        loss_of_rows,
        training,
        seed,
        progress,
        dev=dev_rows,
        score=score,
        checkpoints=checkpoints,
        times=times,
    )


def row_times(table: pa.Table, wanted: Mapping[str, float]) -> Tensor | None:
    """Say how often an epoch has each row.

    Args:
        table: N rows; a transfer set has `origin`, and `rules` joined by `+`.
        wanted: Times by origin or rule; a row with several of the names has the product.

    Returns:
        (N,) float, 1 for rows with none of the names; None where nothing is wanted, or the table is
        no transfer set.

    Raises:
        InputError: No row is left.
    """
    names = [name for name in ("origin", "rules") if name in table.column_names]
    if not wanted or not names:
        return None
    marks = pc.binary_join_element_wise(
        "", *(pc.fill_null(table[name], "") for name in names), "", "+"
    )
    times = torch.ones(len(table))
    for name, factor in wanted.items():
        has = torch.from_numpy(pc.match_substring(marks, f"+{name}+").to_numpy())
        times[has] *= factor
    if not times.any():
        raise InputError("training.origins leaves no row to learn from")
    return times


def _without_made_labels(table: pa.Table) -> pa.Table:
    """Take the labels of rows that are no originals: an augmented text may not mean any longer what its source did."""
    if "origin" not in table.column_names:
        return table
    labels = table["label"]
    own = pc.if_else(pc.equal(table["origin"], "original"), labels, pa.scalar(None, labels.type))
    return table.set_column(table.column_names.index("label"), "label", own)

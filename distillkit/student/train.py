"""Train a student on a table whose teacher's logits are a column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from distillkit.data.batches import encode
from distillkit.data.content import Texts, texts_of
from distillkit.data.gold import check_labels_known, gold_of
from distillkit.data.labels import task_of_model
from distillkit.data.scores import dev_score
from distillkit.data.scratch import TEMPORARY, Scratch
from distillkit.data.tables import blocks_of
from distillkit.errors import InputError
from distillkit.loss import DistillationLoss
from distillkit.recipe import LossConfig, TrainingConfig
from distillkit.student.states import with_states
from distillkit.training.checkpoints import Checkpoints
from distillkit.training.feed import fits_beside
from distillkit.training.plan import FitPlan, LossOfRows


@dataclass(frozen=True)
class DistillationTask:
    """What a student is to learn.

    Attributes:
        model: From `build_student`; its configuration says what kind of task it is for.
        tokenizer: From `build_student`.
        table: N rows to learn from. Where the hard term has a weight, a `label` column is used; of
            a table with `origin` only those of original rows, as nobody labelled the others.
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
        scratch: Where what grows with the rows is kept.
    """

    model: Any
    tokenizer: Any
    table: pa.Table
    logits: np.ndarray | None
    dev: pa.Table
    loss: LossConfig
    training: TrainingConfig
    seed: int
    mask: str = ""
    progress: str = "student"
    checkpoints: Checkpoints | None = None
    teacher_model: Any = None
    scratch: Scratch = TEMPORARY


def prepare(task: DistillationTask) -> tuple[nn.Module, FitPlan]:
    """Tokenise, and say what `fit` is to do: `fit(*prepare(task))` trains the student in place.

    Returns:
        What learns: the student, or what runs it beside its teacher; and the plan, whose score is
        `data.scores.dev_score`.

    Raises:
        InputError: A label is unknown to the model or of another task, or the loss asks what the
            task has no meaning for.
    """
    model, tokenizer, table, dev = task.model, task.tokenizer, task.table, task.dev
    labels = [model.config.id2label[i] for i in range(model.config.num_labels)]
    check_labels_known(dev, labels, "dev")
    limit, kind = tokenizer.model_max_length, task_of_model(model.config)
    pairs = Texts(table["text_pair"]) if "text_pair" in table.column_names else None
    rows = encode(
        tokenizer,
        Texts(table["text"]),
        pairs,
        limit,
        mask=task.mask,
        progress=f"{task.progress}: tokenise",
        scratch=task.scratch,
    )
    dev_gold, by = gold_of(dev, labels, kind), task.training.score_of(kind)

    def score(found: Tensor) -> float:
        return dev_score(kind, found.numpy(), dev_gold, by)

    by_states = bool(task.loss.hidden or task.loss.attention)
    plan = FitPlan(
        rows,
        _loss_of_rows(task, labels, by_states=by_states),
        task.training,
        task.seed,
        task.progress,
        dev=encode(tokenizer, *texts_of(dev), limit),
        score=score,
        checkpoints=task.checkpoints,
        sampling_weights=sampling_weights(table, task.training.weight_of(), task.scratch),
    )
    return with_states(model, task.teacher_model, task.loss) if by_states else model, plan


def _loss_of_rows(task: DistillationTask, labels: Sequence[str], *, by_states: bool) -> LossOfRows:
    kind, table = task_of_model(task.model.config), task.table
    criterion = DistillationLoss(task.loss, kind)
    teacher = None if task.logits is None else torch.from_numpy(task.logits)
    gold = None
    if task.loss.asks_labels and "label" in table.column_names:
        parts = (gold_of(_without_made_labels(block), labels, kind) for block in blocks_of(table))
        gold = torch.from_numpy(task.scratch.stacked(parts))

    held: list[Tensor | None] = []

    def loss(numbers: Tensor, found: Tensor) -> Tensor:
        # Beside the model from the first batch on, if they fit: a copy a batch waits for the device.
        for target in () if held else (teacher, gold):
            if target is not None and fits_beside(target.nbytes, found.device):
                target = target.to(found.device)
            held.append(target)
        targets = (None if target is None else _rows_of(target, numbers) for target in held)
        if by_states:
            return criterion(found[:, :-1], *targets) + found[:, -1].mean()
        return criterion(found, *targets)

    return loss


def _rows_of(target: Tensor, numbers: Tensor) -> Tensor:
    """Return a target's rows on the device of their numbers, wherever it is."""
    return target[numbers.to(target.device)].to(numbers.device)


def sampling_weights(
    table: pa.Table, wanted: Mapping[str, float], scratch: Scratch = TEMPORARY
) -> Tensor | None:
    """Return how often an epoch has each row.

    Args:
        table: N rows; a transfer set has `origin`, and `rules` joined by `+`.
        wanted: Weights by origin or rule; they multiply where a row has several of the names.
        scratch: Where they are kept.

    Returns:
        (N,) float, 1 for rows with none of the names; None where nothing is wanted, or the table is
        no transfer set.

    Raises:
        InputError: No row is left.
    """
    names = [name for name in ("origin", "rules") if name in table.column_names]
    if not wanted or not names:
        return None
    found = scratch.stacked(_weights(block.select(names), wanted) for block in blocks_of(table))
    weights = torch.from_numpy(found)
    if not weights.any():
        raise InputError(
            "training.sampling_weights leaves no row to learn from; give some rows a weight above 0"
        )
    return weights


def _weights(block: pa.Table, wanted: Mapping[str, float]) -> np.ndarray:
    columns = (pc.fill_null(column, "") for column in block.columns)
    marks = pc.binary_join_element_wise("", *columns, "", "+")
    weights = np.ones(len(block), np.float32)
    for name, factor in wanted.items():
        weights[pc.match_substring(marks, f"+{name}+").to_numpy()] *= factor
    return weights


def _without_made_labels(table: pa.Table) -> pa.Table:
    """Remove the labels of rows that are not original: a new text may mean something else."""
    if "origin" not in table.column_names:
        return table
    labels = table["label"]
    own = pc.if_else(pc.equal(table["origin"], "original"), labels, pa.scalar(None, labels.type))
    return table.set_column(table.column_names.index("label"), "label", own)

"""What a student learns from, row by row, and how it is trained on that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from distillkit.data.batches import Encoded, encode
from distillkit.data.content import Texts, texts_of
from distillkit.data.gold import check_labels_known, gold_of
from distillkit.data.labels import labels_of, task_of_model
from distillkit.data.scores import dev_score
from distillkit.data.scratch import TEMPORARY, Scratch
from distillkit.data.tables import blocks_of
from distillkit.loss import DistillationLoss
from distillkit.recipe import LossConfig, TrainingConfig
from distillkit.training.checkpoints import Checkpoints
from distillkit.training.feed import fits_beside
from distillkit.training.plan import FitPlan, LossOfRows


@dataclass(frozen=True)
class TrainingRows:
    """N rows to learn from, as training reads them.

    Attributes:
        tokens: The student's tokens.
        targets: The teacher's logits, (N, C) float32, or None.
        gold: What the labels ask of each row's logits, as `data.gold.gold_of` has it, or None.
        sampling_weights: How often an epoch has each row, (N,) float, or None: once.
    """

    tokens: Encoded
    targets: Tensor | None
    gold: Tensor | None
    sampling_weights: Tensor | None


def training_rows(
    model: Any,
    tokenizer: Any,
    table: pa.Table,
    logits: np.ndarray | None,
    loss: LossConfig,
    training: TrainingConfig,
    *,
    mask: str = "",
    progress: str = "student",
    scratch: Scratch = TEMPORARY,
) -> TrainingRows:
    """Tokenise a table, and put beside each row what is asked of it.

    Args:
        model: From `build_student`; its configuration says what kind of task it is for.
        tokenizer: From `build_student`.
        table: N rows to learn from. Where the hard term has a weight, a `label` column is used; of
            a table with `origin` only those of original rows, as nobody labelled the others.
        logits: The teacher's, (N, C) float32, row by row; None learns from labels alone and needs
            `loss.alpha` 1.
        loss: What to match.
        training: How.
        mask: The transfer set's mask word.
        progress: Name of the progress bar.
        scratch: Where what grows with the rows is kept.

    Raises:
        InputError: A label is unknown to the model or of another task, or no row has a sampling
            weight.
    """
    pairs = Texts(table["text_pair"]) if "text_pair" in table.column_names else None
    tokens = encode(
        tokenizer,
        Texts(table["text"]),
        pairs,
        tokenizer.model_max_length,
        mask=mask,
        progress=f"{progress}: tokenise",
        scratch=scratch,
    )
    gold = None
    if loss.asks_labels and "label" in table.column_names:
        labels, kind = labels_of(model), task_of_model(model.config)
        check_labels_known(table, labels, "the transfer set")
        parts = (gold_of(_without_made_labels(block), labels, kind) for block in blocks_of(table))
        gold = torch.from_numpy(scratch.stacked(parts))
    return TrainingRows(
        tokens,
        None if logits is None else torch.from_numpy(logits),
        gold,
        sampling_weights(table, training.weight_of(), scratch),
    )


def fit_plan(
    model: Any,
    tokenizer: Any,
    rows: TrainingRows,
    dev: pa.Table,
    loss: LossConfig,
    training: TrainingConfig,
    seed: int,
    progress: str = "student",
    checkpoints: Checkpoints | None = None,
    scale: tuple[float, float] = (0.0, 1.0),
) -> FitPlan:
    """Return how `fit` is to train a student; the score is `data.scores.dev_score`.

    Args:
        model: From `build_student`; its configuration says what kind of task it is for.
        tokenizer: From `build_student`.
        rows: What it learns from.
        dev: Labelled table.
        loss: What to match.
        training: How.
        seed: Order of the rows, dropout.
        progress: Name of the progress bar.
        checkpoints: Where training keeps what it needs to go on after a kill.
        scale: Mean and standard deviation by which scores are standardised.

    Raises:
        InputError: A label of dev is unknown to the model or of another task, or the loss asks what
            the task has no meaning for.
    """
    labels, kind = labels_of(model), task_of_model(model.config)
    check_labels_known(dev, labels, "dev")
    dev_gold, by = gold_of(dev, labels, kind), training.score_of(kind)

    def score(found: Tensor) -> float:
        return dev_score(kind, found.numpy(), dev_gold, by)

    return FitPlan(
        rows.tokens,
        _loss_of_rows(DistillationLoss(loss, kind), rows, scale),
        training,
        seed,
        progress,
        dev=encode(tokenizer, *texts_of(dev), tokenizer.model_max_length),
        score=score,
        checkpoints=checkpoints,
        sampling_weights=rows.sampling_weights,
    )


def _loss_of_rows(
    criterion: DistillationLoss, rows: TrainingRows, scale: tuple[float, float]
) -> LossOfRows:
    centre, spread = scale
    held: list[Tensor | None] = []

    def loss(numbers: Tensor, found: Tensor) -> Tensor:
        # Beside the model from the first batch on, if they fit: a copy a batch waits for the device.
        for target in () if held else (rows.targets, rows.gold):
            if target is not None and fits_beside(target.nbytes, found.device):
                target = target.to(found.device)
            held.append(target)
        targets = [None if target is None else _rows_of(target, numbers) for target in held]
        if scale != (0.0, 1.0):  # class numbers stay integers
            targets = [None if target is None else (target - centre) / spread for target in targets]
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
    return torch.from_numpy(found)


def _weights(block: pa.Table, wanted: Mapping[str, float]) -> np.ndarray:
    columns = (pc.fill_null(column, "") for column in block.columns)
    marks = pc.binary_join_element_wise("", *columns, "", "+")
    weights = np.ones(len(block), np.float32)
    for name, factor in wanted.items():
        weights[pc.match_substring(marks, f"+{name}+").to_numpy()] *= factor
    return weights


def rows_an_epoch(table: pa.Table, weights: Mapping[str, float]) -> float:
    """Return how many rows an epoch has by the weights of `sampling_weights`."""
    found = sampling_weights(table, weights)
    return len(table) if found is None else float(found.sum())


def _without_made_labels(table: pa.Table) -> pa.Table:
    """Remove the labels of rows that are not original: a new text may mean something else."""
    if "origin" not in table.column_names:
        return table
    labels = table["label"]
    own = pc.if_else(pc.equal(table["origin"], "original"), labels, pa.scalar(None, labels.type))
    return table.set_column(table.column_names.index("label"), "label", own)

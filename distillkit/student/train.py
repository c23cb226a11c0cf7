"""Train a student on a table whose teacher's logits are a column."""

from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from distillkit.data.batches import encode
from distillkit.data.tables import check_labels_known, label_ids, texts_of
from distillkit.loss import DistillationLoss
from distillkit.recipe import LossConfig, TrainingConfig
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
) -> FitResult:
    """Train a student in place and keep the epoch that is best on dev.

    Args:
        model: From `build_student`.
        tokenizer: From `build_student`.
        table: N rows to learn from; a `label` column is used where `loss.alpha` > 0.
        logits: The teacher's, (N, C) float32, row by row; None learns from labels alone and needs `loss.alpha` 1.
        dev: Labelled table.
        loss: What to match.
        training: How.
        seed: Order of the rows, dropout.
        mask: The transfer set's mask word.
        progress: Name of the progress bar.
        checkpoints: Where training keeps what it needs to go on after a kill.

    Returns:
        How training went; the score is dev accuracy, 0 to 1.
    """
    labels = [model.config.id2label[i] for i in range(model.config.num_labels)]
    check_labels_known(dev, labels, "dev")
    rows = encode(tokenizer, *texts_of(table), tokenizer.model_max_length, mask=mask, progress=f"{progress}: tokenise")
    dev_rows = encode(tokenizer, *texts_of(dev), tokenizer.model_max_length)
    dev_gold = torch.tensor(label_ids(dev, labels))
    teacher = None if logits is None else torch.from_numpy(logits)
    gold = torch.tensor(label_ids(table, labels)) if loss.alpha > 0 and "label" in table.column_names else None
    criterion = DistillationLoss(loss)

    def loss_of_rows(batch: Tensor, found: Tensor, _: float) -> Tensor:
        nonlocal teacher, gold
        # Beside the model from the first batch on: a copy a batch would wait for the device each time.
        teacher, gold = (None if target is None else target.to(found.device) for target in (teacher, gold))
        return criterion(found, *(None if target is None else target[batch] for target in (teacher, gold)))

    def accuracy(found: Tensor) -> float:
        return float((found.argmax(1) == dev_gold).double().mean())

    return fit(
        model, rows, loss_of_rows, training, seed, progress, dev=dev_rows, score=accuracy, checkpoints=checkpoints
    )

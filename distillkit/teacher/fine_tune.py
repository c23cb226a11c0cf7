"""Fine-tune an encoder on labelled text: cross-entropy or, for scores, squared distance."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from distillkit.data.batches import Encoded, encode
from distillkit.data.checked import save_pretrained
from distillkit.data.content import texts_of
from distillkit.data.gold import check_labels_known, gold_of, label_names
from distillkit.data.labels import task_of_labels
from distillkit.data.scores import dev_score
from distillkit.loss import gold_loss, soft_target_loss
from distillkit.processes import log
from distillkit.recipe import TeacherConfig
from distillkit.teacher.checkpoint import check_own_labels, load_classifier, own_labels
from distillkit.training.checkpoints import Checkpoints
from distillkit.training.inference import predict_logits
from distillkit.training.layers import positions_of
from distillkit.training.loop import fit
from distillkit.training.plan import FitPlan, FitResult
from distillkit.training.scores import head_of, line_to, rescale, scale_of, standardise


def fine_tune(
    train: pa.Table,
    dev: pa.Table,
    config: TeacherConfig,
    seed: int,
    checkpoints: Checkpoints | None = None,
    answers: tuple[np.ndarray, Sequence[str]] | None = None,
) -> tuple[Any, Any, FitResult]:
    """Fine-tune a checkpoint and keep the epoch that is best on dev.

    Scores beyond `training.scores.REACH` are learnt standardised by their mean and standard
    deviation; at the end a line, folded into the head, brings the answers nearest to dev's scores.
    A head without bias, as a decoder's, learns and answers scores as they are.

    Args:
        train: Canonical table, labelled; the type of its labels says what kind of task it is.
        dev: Canonical table, labelled with labels of `train`.
        config: Which checkpoint, and how.
        seed: Draws the new head, the order of rows, dropout.
        checkpoints: Where training keeps what it needs to go on after a kill.
        answers: Of a classification, log-probabilities for the rows of `train`, (N, C), and the C
            labels in their order: what to learn in place of the labels. Of a row whose label is
            not the most probable one, as it was corrected, the label counts.

    Returns:
        The model (eval mode), its tokenizer, and how training went; the score is
        `data.scores.dev_score`.

    Raises:
        InputError: The checkpoint cannot be loaded, or a dev label is unknown.
    """
    task, labels = task_of_labels(train["label"].type), label_names(train)
    check_labels_known(dev, labels, "dev")
    # A checkpoint that knows these very labels keeps the order that its head was trained in.
    own = own_labels(config.model)
    if own and task != "regression" and not (config.training.epochs or config.training.steps):
        check_own_labels(own, labels, config.model)
    labels = own if set(own) == set(labels) else labels
    torch.manual_seed(seed)  # the head is drawn on loading
    model, tokenizer = load_classifier(config.model, labels, task)
    longest = _longest(model, config.max_tokens)
    if longest < config.max_tokens:
        log(f"teacher: {config.model} reads {longest} tokens, fewer than teacher.max_tokens")
    rows = encode(tokenizer, *texts_of(train), longest)
    dev_rows = encode(tokenizer, *texts_of(dev), longest)
    gold, dev_gold = torch.from_numpy(gold_of(train, labels, task)), gold_of(dev, labels, task)
    if task == "regression":
        centre, spread = scale_of(gold) if head_of(model).bias is not None else (0.0, 1.0)
        gold = (gold - centre) / spread
        if len(own) == 1:
            standardise(model, rows, centre, spread)
    if answers is not None:
        found, names = answers
        soft = torch.from_numpy(found[:, [names.index(label) for label in labels]])
        # Finite, so that 0 times it is 0.
        hard = torch.nn.functional.one_hot(gold, len(labels)).clamp(min=1e-12).log().to(soft.dtype)
        gold = torch.where((soft.argmax(1) == gold)[:, None], soft, hard)

    def loss(numbers: Tensor, logits: Tensor) -> Tensor:
        nonlocal gold
        gold = gold.to(logits.device)
        if answers is not None:
            return soft_target_loss(logits, gold[numbers])
        return gold_loss(task, logits, gold[numbers])

    how = config.for_rows(len(train)).training
    by = how.score_of(task)

    def score(logits: Tensor) -> float:
        return dev_score(task, logits.numpy(), dev_gold, by)

    plan = FitPlan(rows, loss, how, seed, "teacher", dev_rows, score, checkpoints=checkpoints)
    result = fit(model, plan)
    if task == "regression":
        # A checkpoint that no epoch has changed stays as it is.
        line = _line(model, dev_rows, dev_gold) if result.best_epoch else None
        rescale(model, *(line or (centre, spread)))
    return model, tokenizer, result


def _line(model: Any, rows: Encoded, gold: np.ndarray) -> tuple[float, float] | None:
    if head_of(model).bias is None:
        return None
    return line_to(gold, predict_logits(model, rows)[:, 0].numpy())


def _longest(model: Any, max_tokens: int) -> int:
    return min(max_tokens, positions_of(model) or max_tokens)


def save(model: Any, tokenizer: Any, folder: Path, max_tokens: int) -> None:
    """Save a checkpoint whose tokenizer truncates where training did."""
    tokenizer.model_max_length = _longest(model, max_tokens)
    save_pretrained(folder, model, tokenizer)

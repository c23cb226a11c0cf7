"""What a student is asked to match: logits, soft targets, hard labels, or a mix.

Every loss is a sum over the classes of a row, and a mean over the rows: the terms of a mix keep
their proportion whatever C is.

Axes, here and everywhere: N examples, B batch, T tokens, C classes, H hidden, V vocabulary, L
layers.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from distillkit.recipe import LossConfig, Task
from distillkit.recipe.kinds import LOSSES, resolve

NO_LABEL = -100


def logits_mse_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared Euclidean distance between the logits.

    Args:
        student: Logits, (B, C) float.
        teacher: Logits, (B, C) float; receives no gradient.

    Returns:
        Sum over the classes, mean over the batch, () float32; 0 only where both agree.

    Raises:
        ValueError: The shapes differ, or the batch is empty.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.1.

    >>> float(logits_mse_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])))
    5.0
    """
    _check_shapes(student, teacher)
    return (student.float() - teacher.detach().float()).square().sum(1).mean()


def soft_target_loss(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """KL divergence from the teacher's softened distribution, times temperature squared.

    Args:
        student: Logits, (B, C) float.
        teacher: Logits, (B, C) float; receives no gradient.
        temperature: Softens both; > 0, no unit. Its square keeps the gradient's size when it
            changes.

    Returns:
        Mean over the batch in nats, () float32; 0 only where both distributions agree.

    Raises:
        ValueError: The shapes differ, the batch is empty, or temperature is not finite and > 0.

    Source: Hinton et al. 2015 (arXiv 1503.02531), section 2.
    """
    _check_shapes(student, teacher)
    _check_temperature(temperature)
    target = functional.log_softmax(teacher.detach().float() / temperature, dim=1)
    found = functional.log_softmax(student.float() / temperature, dim=1)
    return functional.kl_div(found, target, reduction="batchmean", log_target=True) * temperature**2


def soft_multi_label_loss(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """KL divergence of each label's softened probability, times temperature squared.

    It is the binary cross-entropy less the teacher's own entropy, which has no gradient.

    Args:
        student: Logits, (B, C) float; each label's probability is their sigmoid.
        teacher: Logits, (B, C) float; receives no gradient.
        temperature: Softens both; > 0, no unit.

    Returns:
        Sum over the labels, mean over the batch in nats, () float32; 0 only where both agree.

    Raises:
        ValueError: The shapes differ, the batch is empty, or temperature is not finite and > 0.

    Source: Hinton et al. 2015 (arXiv 1503.02531), section 2, for each label as a distribution of
    two.
    """
    _check_shapes(student, teacher)
    _check_temperature(temperature)
    softened = teacher.detach().float() / temperature
    target = softened.sigmoid()
    found = functional.binary_cross_entropy_with_logits(
        student.float() / temperature, target, reduction="none"
    )
    entropy = functional.binary_cross_entropy_with_logits(softened, target, reduction="none")
    return (found - entropy).sum(1).mean() * temperature**2


def gold_loss(task: Task, student: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy with the gold label or labels, or squared distance to the gold score.

    Args:
        task: What a label is.
        student: Logits, (B, C) float; any model's.
        labels: Class numbers, (B,) int64; 0 and 1, (B, C) float; or scores, (B,) float. None is
            missing.

    Returns:
        Sum over the labels, mean over the batch, () float32; in nats but for scores.

    Raises:
        ValueError: The batch is empty, or the labels have another shape.
    """
    _check_rows(student)
    _check_labels(task, student, labels)
    if task == "classification":
        return functional.cross_entropy(student.float(), labels)
    if task == "regression":
        return (student.float().squeeze(1) - labels).square().mean()
    return (
        functional.binary_cross_entropy_with_logits(
            student.float(), labels.float(), reduction="none"
        )
        .sum(1)
        .mean()
    )


def hard_label_loss(
    student: Tensor,
    teacher: Tensor | None,
    labels: Tensor | None,
    task: Task = "classification",
) -> Tensor:
    """`gold_loss`, with the teacher's own answer where there is no gold label.

    Args:
        student: Logits, (B, C) float.
        teacher: Logits, (B, C) float; needed where a label is missing.
        labels: As for `gold_loss`; where missing `NO_LABEL`, of labels and scores NaN; None: all
            are missing.
        task: What a label is.

    Raises:
        ValueError: A label is missing and there is no teacher.
    """
    if teacher is None:
        if labels is None or _missing(labels).any():
            raise ValueError("a row has neither a gold label nor a teacher's logits")
        return gold_loss(task, student, labels)
    if labels is not None:
        _check_labels(task, student, labels)  # `where` would stretch them to the answers' shape
    answer = _ANSWERS[task](teacher.detach())
    known = answer if labels is None else torch.where(_missing(labels), answer, labels)
    return gold_loss(task, student, known)


def _missing(labels: Tensor) -> Tensor:
    return labels.isnan() if labels.is_floating_point() else labels == NO_LABEL


_ANSWERS: dict[Task, Callable[[Tensor], Tensor]] = {
    "classification": lambda logits: logits.argmax(1),
    "multi-label": lambda logits: (logits > 0).float(),  # where a label is likelier than not
    "regression": lambda logits: logits.float().squeeze(1),
}


class DistillationLoss(nn.Module):
    """alpha * hard labels + (1 - alpha) * what `config.kind` makes of the logits.

    Args:
        config: `kind`, `alpha`, `temperature`; the default is the paper's best: MSE on logits
            alone.
        task: What labels and logits mean.

    Raises:
        InputError: The task is unknown, or has no meaning for what `config` asks for.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.1.
    """

    def __init__(self, config: LossConfig | None = None, task: Task = "classification") -> None:
        super().__init__()
        self.config, self.task = config or LossConfig(), task
        self.config.check_task(task)
        self.kind = LOSSES[self.config.kind]
        self.match = resolve(self.kind.functions[task])

    def forward(
        self,
        student: Tensor,
        teacher: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            student: Logits, (B, C) float.
            teacher: Logits, (B, C) float; receives no gradient. May be None only where alpha is 1.
            labels: Class numbers, (B,) int64, -100 where missing; labels, (B, C), or scores, (B,),
                float, NaN where missing. None: all are. What is missing, the teacher's own answer
                stands in for.

        Raises:
            ValueError: The shapes differ, or what alpha asks for is missing.
        """
        alpha = self.config.alpha
        if teacher is None and alpha < 1:
            raise ValueError(
                f"alpha is {alpha}, so the teacher's logits are needed; alpha = 1 learns from labels alone"
            )
        loss = student.new_zeros((), dtype=torch.float32)
        if alpha > 0:
            loss = loss + alpha * hard_label_loss(student, teacher, labels, self.task)
        if alpha < 1 and teacher is not None:
            loss = loss + (1 - alpha) * self._match(student, teacher)
        return loss

    def _match(self, student: Tensor, teacher: Tensor) -> Tensor:
        if not self.kind.softens:
            return self.match(student, teacher)
        return self.match(student, teacher, self.config.temperature)


def _check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature is {temperature}: expected a finite number above 0")


def _check_shapes(student: Tensor, teacher: Tensor) -> None:
    _check_rows(student)
    if student.shape != teacher.shape or student.ndim != 2:
        raise ValueError(
            f"student logits are {tuple(student.shape)}, teacher logits {tuple(teacher.shape)}: expected the same (B, C)"
        )


def _check_labels(task: Task, student: Tensor, labels: Tensor) -> None:
    wanted = student.shape if task == "multi-label" else student.shape[:1]
    if labels.shape != wanted:
        raise ValueError(f"labels are {tuple(labels.shape)}: expected {tuple(wanted)}")


def _check_rows(logits: Tensor) -> None:
    if not len(logits):
        raise ValueError("the batch is empty: expected at least 1 row")

"""What a student is asked to match: logits, soft targets, hard labels, or a mix.

Axes, here and everywhere: N examples, B batch, T tokens, C classes, H hidden, V vocabulary, L layers.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from distillkit.recipe import LossConfig

NO_LABEL = -100


def logits_mse_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared Euclidean distance between the logits.

    Args:
        student: Logits, (B, C) float.
        teacher: Logits, (B, C) float; receives no gradient.

    Returns:
        Sum over the classes, mean over the batch, () float32; 0 only where both agree.

    Raises:
        ValueError: The shapes differ.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.1.

    >>> float(logits_mse_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])))
    5.0
    """
    _check_shapes(student, teacher)
    return (student.float() - teacher.detach().float()).square().sum(1).mean()


def soft_target_loss(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """KL divergence from the teacher's softened distribution to the student's, times temperature squared.

    Args:
        student: Logits, (B, C) float.
        teacher: Logits, (B, C) float; receives no gradient.
        temperature: Softens both; > 0, no unit. Its square keeps the gradient's size when it changes.

    Returns:
        Mean over the batch in nats, () float32; 0 only where both distributions agree.

    Raises:
        ValueError: The shapes differ, or temperature <= 0.

    Source: Hinton et al. 2015 (arXiv 1503.02531), section 2.
    """
    _check_shapes(student, teacher)
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}: expected more than 0")
    target = functional.log_softmax(teacher.detach().float() / temperature, dim=1)
    found = functional.log_softmax(student.float() / temperature, dim=1)
    return functional.kl_div(found, target, reduction="batchmean", log_target=True) * temperature**2


def hard_label_loss(student: Tensor, teacher: Tensor | None, labels: Tensor | None) -> Tensor:
    """Cross-entropy with the gold label, or with the teacher's argmax where there is none.

    Args:
        student: Logits, (B, C) float.
        teacher: Logits, (B, C) float; needed where a label is missing.
        labels: Class numbers, (B,) int64, `NO_LABEL` where missing; None: all are missing.

    Returns:
        Mean over the batch in nats, () float32.

    Raises:
        ValueError: A label is missing and there is no teacher.
    """
    if labels is None:
        labels = torch.full((len(student),), NO_LABEL, device=student.device)
    if teacher is not None:
        labels = torch.where(labels == NO_LABEL, teacher.detach().argmax(1), labels)
    elif (labels == NO_LABEL).any():
        raise ValueError("a row has neither a gold label nor a teacher's logits")
    return functional.cross_entropy(student.float(), labels)


class DistillationLoss(nn.Module):
    """alpha * hard labels + (1 - alpha) * (logits MSE or soft targets).

    Args:
        config: `kind`, `alpha`, `temperature`; the default is the paper's best: MSE on logits alone.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.1.
    """

    def __init__(self, config: LossConfig | None = None) -> None:
        super().__init__()
        self.config = config or LossConfig()

    def forward(self, student: Tensor, teacher: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            student: Logits, (B, C) float.
            teacher: Logits, (B, C) float; receives no gradient. May be None only where alpha is 1.
            labels: Class numbers, (B,) int64; -100 (or None for all): take the teacher's argmax.

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
            loss = loss + alpha * hard_label_loss(student, teacher, labels)
        if alpha < 1 and teacher is not None:
            mse = self.config.kind == "mse"
            loss = loss + (1 - alpha) * (
                logits_mse_loss(student, teacher)
                if mse
                else soft_target_loss(student, teacher, self.config.temperature)
            )
        return loss


def _check_shapes(student: Tensor, teacher: Tensor) -> None:
    if student.shape != teacher.shape or student.ndim != 2:
        raise ValueError(
            f"student logits are {tuple(student.shape)}, teacher logits {tuple(teacher.shape)}: expected the same (B, C)"
        )

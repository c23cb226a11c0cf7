"""Section `loss`: what the student is asked to match."""

import re
from dataclasses import dataclass
from typing import Annotated, get_args

from typing_extensions import Doc

from distillkit.errors import InputError
from distillkit.recipe.bounds import Fraction, Positive, check, number_in
from distillkit.recipe.data import Task
from distillkit.recipe.kinds import LOSSES, LossKind, choose
from distillkit.recipe.teacher import TEACHER_NAME

LOSSES |= {
    "mse": LossKind(
        "mse",
        "squared distance of the logits (Tang et al. 2019), in regression of the scores",
        dict.fromkeys(get_args(Task), "distillkit.loss:logits_mse_loss"),
        "the squared distance of the logits",
    ),
    "soft": LossKind(
        "soft",
        "KL divergence of softened distributions (Hinton et al. 2015), in multi-label tasks label by label",
        {
            "classification": "distillkit.loss:soft_target_loss",
            "multi-label": "distillkit.loss:soft_multi_label_loss",
        },
        "soft targets at temperature {temperature:g}",
        "a score is no distribution that could be softened",
        softens=True,
    ),
}


@dataclass(frozen=True)
class LossConfig:
    """What the student is asked to match."""

    kind: Annotated[str, Doc("; ".join(f"{k.name}: {k.summary}" for k in LOSSES.values()))] = "mse"
    alpha: Fraction = 0.0
    """Weight of the hard term, 0 to 1: cross-entropy with the labels, in regression squared
    distance to the gold score; 1 ignores the teacher's logits."""
    temperature: Positive = 1.0
    """Softens both distributions of soft targets, > 0; the loss is multiplied by its square."""
    teachers: tuple[str, ...] = ()
    """Teachers of the logit store whose logits are averaged: NAME, or NAME=WEIGHT (1 where none is
    given); empty: all, alike."""

    def __post_init__(self) -> None:
        if self.kind not in LOSSES:
            raise InputError(f"loss.kind is {self.kind!r}: {choose(self.kind, LOSSES)}")
        check(self, "loss")
        if self.temperature != 1 and not LOSSES[self.kind].softens:
            fitting = ", ".join(name for name, kind in LOSSES.items() if kind.softens)
            raise InputError(
                f"loss.temperature is {self.temperature:g}, but loss.kind {self.kind} softens nothing: expected {fitting}, or leave the temperature out"
            )
        for item in self.teachers:
            weight = number_in(item.partition("=")[2] or "1")
            if not re.fullmatch(rf"{TEACHER_NAME}(=.+)?", item) or not weight or weight < 0:
                raise InputError(
                    f"loss.teachers has {item!r}: expected NAME or NAME=WEIGHT, the weight a number above 0"
                )
        if len(self.teacher_weights()) < len(self.teachers):
            raise InputError(
                f"loss.teachers is {', '.join(self.teachers)}: expected each teacher once"
            )

    def teacher_weights(self) -> dict[str, float]:
        """Return the weight of each teacher that is named."""
        pairs = (item.partition("=") for item in self.teachers)
        return {name: float(weight or 1) for name, _, weight in pairs}

    @property
    def asks_teacher(self) -> bool:
        """Whether the teacher's logits count."""
        return self.alpha < 1

    @property
    def asks_labels(self) -> bool:
        """Whether hard labels count."""
        return self.alpha > 0

    def check_task(self, task: Task) -> None:
        """Refuse what a task has no meaning for.

        Raises:
            InputError: The task is unknown, or a regression is asked for distributions or classes.
        """
        if task not in (known := get_args(Task)):
            raise InputError(f"the task is {task!r}: expected one of {', '.join(known)}")
        kind = LOSSES[self.kind]
        if task not in kind.functions:
            fitting = ", ".join(name for name, other in LOSSES.items() if task in other.functions)
            raise InputError(
                f"loss.kind is {self.kind}, but the task is {task}, and {kind.refusal}: expected {fitting}"
            )

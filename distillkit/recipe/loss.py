"""Section `loss`: what the student is asked to match."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from distillkit.errors import InputError
from distillkit.recipe.teacher import TEACHER_NAME


@dataclass(frozen=True)
class LossConfig:
    """What the student is asked to match."""

    kind: Literal["mse", "soft"] = "mse"
    """mse: squared distance of the logits (Tang et al. 2019); soft: KL divergence of softened distributions (Hinton et al. 2015)."""
    alpha: float = 0.0
    """Weight of the hard-label cross-entropy, 0 to 1; 1 ignores the teacher's logits."""
    temperature: float = 1.0
    """Softens both distributions of `soft`, > 0; the loss is multiplied by its square."""
    teachers: tuple[str, ...] = ()
    """Teachers of the logit store whose logits are averaged: NAME, or NAME=WEIGHT (1 where none is given); empty: all, alike."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"loss.alpha is {self.alpha}: expected 0 to 1")
        if not self.temperature > 0:
            raise InputError(f"loss.temperature is {self.temperature}: expected more than 0")
        for item in self.teachers:
            if not re.fullmatch(rf"{TEACHER_NAME}(=.+)?", item) or not _is_weight(item.partition("=")[2] or "1"):
                raise InputError(
                    f"loss.teachers has {item!r}: expected NAME or NAME=WEIGHT, the weight a number above 0"
                )
        if len(self.teacher_weights()) < len(self.teachers):
            raise InputError(f"loss.teachers is {', '.join(self.teachers)}: expected each teacher once")

    def teacher_weights(self) -> dict[str, float]:
        """Return the weight of each teacher that is named."""
        pairs = (item.partition("=") for item in self.teachers)
        return {name: float(weight or 1) for name, _, weight in pairs}


def _is_weight(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False

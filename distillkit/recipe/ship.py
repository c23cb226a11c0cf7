"""Section `ship`: what a run ends with."""

from dataclasses import dataclass, field
from typing import Literal

from distillkit.recipe.bounds import NotNegative, Positive, check
from distillkit.recipe.compress import CompressConfig


@dataclass(frozen=True)
class ShipConfig:
    """The bundle that a run ends with; `ship: none` in a recipe leaves it out."""

    form: Literal["bundle", "none"] = "bundle"
    """bundle: the student, compressed, in one file that answers without torch; none: nothing."""
    max_mb: Positive = 1.0
    """Largest size in MB (10^6 bytes)."""
    max_drop: NotNegative = 0.5
    """Points of the dev score that may be lost, but always what two dev rows are worth. If no bundle
    of the size keeps to it, a larger one is made."""
    compress: CompressConfig = field(default_factory=CompressConfig)
    """What the student loses, whatever that costs; without it `max_mb` and `max_drop` choose."""
    cascade: bool = False
    """Also find the confidence below which the teacher should be asked (classification)."""

    def __post_init__(self) -> None:
        check(self, "ship")

"""Generated: texts written by a causal language model fine-tuned on the task's own."""

from distillkit.augment.method import Method
from distillkit.recipe import AugmentConfig


def _model(config: AugmentConfig, teacher: str) -> tuple[str, str]:
    return "augment.generated.model", config.generated.model


GENERATED = Method(
    "generated",
    "Texts written by a causal language model fine-tuned on the training texts (Tang et al. 2019b).",
    rows="distillkit.augment.generated:generate",
    origin="generated",
    model=_model,
)

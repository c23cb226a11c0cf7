"""Generated: texts written by a causal language model fine-tuned on the task's own."""

from collections.abc import Iterable

import pyarrow as pa

from distillkit.augment.method import Method, RowsJob
from distillkit.recipe import AugmentConfig


def _rows(job: RowsJob) -> Iterable[pa.Table]:
    from distillkit.augment.generated import generate

    return generate(job)


def _model(config: AugmentConfig, teacher: str) -> tuple[str, str]:
    return "augment.generated.model", config.generated.model


GENERATED = Method(
    "generated",
    "Texts written by a causal language model fine-tuned on the training texts (Tang et al. 2019b).",
    rows=_rows,
    origin="generated",
    model=_model,
)

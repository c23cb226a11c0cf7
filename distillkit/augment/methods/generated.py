"""Generated: texts written by a causal language model fine-tuned on the task's own."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict

import pyarrow as pa

from distillkit.augment.method import Method, RowsJob
from distillkit.recipe import AugmentConfig


def _rows(job: RowsJob) -> Iterable[pa.Table]:
    from distillkit.augment.generated import generate

    made_by = json.dumps(
        [asdict(job.options.config.generated), job.options.seed, job.options.models.fingerprints()]
    )
    key = hashlib.sha256((job.digest + made_by).encode()).hexdigest()[:16]
    return generate(
        job.tables,
        job.wanted,
        job.options.models.of["generated"],
        job.options.config.generated,
        job.options.seed,
        job.options.config.mask,
        job.work / f"generated-{key}",
        engine=job.options.engine,
        workers=job.options.workers,
    )


def _model(config: AugmentConfig, teacher: str) -> tuple[str, str]:
    return "augment.generated.model", config.generated.model


GENERATED = Method(
    "generated",
    "Texts written by a causal language model fine-tuned on the training texts (Tang et al. 2019b).",
    rows=_rows,
    origin="generated",
    model=_model,
)

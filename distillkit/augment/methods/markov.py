"""Markov: texts written by a Markov chain over the words of the task's own."""

from collections.abc import Iterable

import pyarrow as pa

from distillkit.augment.method import Method, RowsJob
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig


def _rows(job: RowsJob) -> Iterable[pa.Table]:
    from distillkit.augment.markov import write_chains

    return write_chains(job)


def _check(config: AugmentConfig, pairs: bool, unlabelled: bool) -> None:
    if pairs:
        raise InputError(
            f"augment.mix.markov is {config.mix.markov}, but the task is of pairs, and a chain writes single texts: set it to 0"
        )


MARKOV = Method(
    "markov",
    "Texts written by a Markov chain over the words of the training texts.",
    rows=_rows,
    origin="generated",
    check=_check,
)

"""Sentences: unlabelled documents cut into sentences that look like the task's texts."""

from collections.abc import Iterable

import pyarrow as pa

from distillkit.augment.method import Method, RowsJob
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig


def _rows(job: RowsJob) -> Iterable[pa.Table]:
    from distillkit.augment.sentences import cut_sentences

    return cut_sentences(job)


def _check(config: AugmentConfig, pairs: bool, unlabelled: bool) -> None:
    if pairs or not unlabelled:
        why = "the task is of pairs" if pairs else "there is no unlabelled text"
        raise InputError(
            f"augment.mix.sentences is {config.mix.sentences}, but {why}; it cuts unlabelled single texts: give some, or set it to 0"
        )


SENTENCES = Method(
    "sentences",
    "Sentences cut from unlabelled documents.",
    rows=_rows,
    origin="unlabelled",
    check=_check,
)

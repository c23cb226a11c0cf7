"""Markov: texts written by a Markov chain over the words of the task's own."""

from collections.abc import Iterable

import pyarrow as pa

from distillkit.augment.method import Method, RowsJob


def _rows(job: RowsJob) -> Iterable[pa.Table]:
    from distillkit.augment.markov import write_chains

    return write_chains(job)


MARKOV = Method(
    "markov",
    "Texts written by a Markov chain over the words of the training texts.",
    rows=_rows,
    origin="generated",
)

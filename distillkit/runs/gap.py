"""How far a student is from its teacher, on texts it has learnt from and on others."""

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from distillkit import pipeline
from distillkit.data.content import texts_alone
from distillkit.data.keys import KeyIndex
from distillkit.data.logits import keys_of
from distillkit.data.tables import draw_rows, read_table, with_mask, write_table
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig, ColumnsConfig, MixConfig, Task

TEXTS = 500  # of each kind
_RAW = "wordnet"


def unexplained(student: np.ndarray, teacher: np.ndarray, task: Task) -> float:
    """Return the share of the variance of a teacher's logits that a student's do not explain.

    Args:
        student: Logits, (N, C) float.
        teacher: Logits, (N, C) float.
        task: What they are for.

    Returns:
        0 where both are alike (of one class among several: but for a constant a row), 1 for one
        who answers the mean.
    """
    if task == "classification":  # softmax ignores a constant
        student, teacher = (z - z.mean(1, keepdims=True) for z in (student, teacher))
    spread = np.square(teacher - teacher.mean(0)).sum()
    return float(np.square(student - teacher).sum() / spread) if spread else 0.0


def texts_for(
    train: pa.Table,
    dev: pa.Table,
    transfer_set: str,
    columns: ColumnsConfig,
    config: AugmentConfig,
    seed: int,
) -> dict[str, pa.Table]:
    """Draw the texts on which student and teacher are compared.

    Args:
        train: The training texts.
        dev: The dev texts.
        transfer_set: What the student learnt from.
        columns: Names of its columns.
        config: How it was made: rates, tagger and mask word of the variants.
        seed: Draws them.

    Returns:
        `train`; `variants`, made anew by the paper's rules; `raw`, glosses of WordNet where it is
        installed and the texts are no pairs; `dev`. No row of `variants` and `raw` is in the
        transfer set.
    """
    seen = KeyIndex(keys_of(read_table(transfer_set, columns, labels="ignored")))
    tables = {"train": _some(train, seed), "dev": _some(dev, seed)}
    with tempfile.TemporaryDirectory() as work:
        source, target = Path(work) / "source.parquet", Path(work) / "target.parquet"
        # With a label, or augment would say that there is none.
        labels = pa.array(["x"] * len(tables["train"]))
        write_table(tables["train"].append_column("label", labels), source)
        rules = replace(config, n_iter=4, mix=MixConfig(), vary_unlabelled=False)
        pipeline.augment(str(source), target, rules, columns, seed=seed + 1)
        tables["variants"] = read_table(str(target), columns, labels="ignored")
    if not columns.text_pair:
        with suppress(InputError):  # not installed
            tables["raw"] = read_table(_RAW, columns, labels="ignored")
    for name in tables.keys() - {"train", "dev"}:
        fresh = ~seen.has(keys_of(tables[name]))
        tables[name] = _some(tables[name].filter(pa.array(fresh)), seed)
    return {name: tables[name] for name in ("train", "variants", "raw", "dev") if name in tables}


def _some(table: pa.Table, seed: int) -> pa.Table:
    return draw_rows(texts_alone(table), TEXTS, seed)


@dataclass(frozen=True)
class Probe:
    """A teacher's logits of some texts, which its students are held against.

    Attributes:
        teacher: Folder of the model.
        texts: From `texts_for`.
        task: The teacher's.
        mask: The transfer set's mask word, which teacher and student read as their own.

    Raises:
        InputError: The teacher cannot read them.
    """

    teacher: str
    texts: Mapping[str, pa.Table]
    task: Task
    mask: str = AugmentConfig().mask

    def gaps(self, student: str) -> dict[str, float]:
        """Return, for each kind of text, the share of the teacher's variance that is missed."""
        wanted, labels = self._wanted
        found, _ = pipeline.classify(student, self._every, "gap", labels)
        ends = np.cumsum([len(table) for table in self._tables.values()])[:-1]
        parts = zip(np.split(found, ends), np.split(wanted, ends), strict=True)
        return {
            name: unexplained(*both, self.task)
            for name, both in zip(self._tables, parts, strict=True)
        }

    @property
    def _tables(self) -> dict[str, pa.Table]:
        return {name: table for name, table in self.texts.items() if len(table) > 1}

    @cached_property
    def _every(self) -> pa.Table:
        plain = [table.replace_schema_metadata(None) for table in self._tables.values()]
        return with_mask(pa.concat_tables(plain), self.mask)

    @cached_property
    def _wanted(self) -> tuple[np.ndarray, list[str]]:
        return pipeline.classify(self.teacher, self._every, "gap")

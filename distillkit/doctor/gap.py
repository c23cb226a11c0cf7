"""How far a student is from its teacher, on texts it has learnt from and on others, and why."""

import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distillkit import pipeline
from distillkit.data.logits import keys_of
from distillkit.data.tables import read_table, with_mask, write_table
from distillkit.doctor.findings import Finding, percent
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig, ColumnsConfig, MixConfig

TEXTS = 500  # of each kind
# Fewer optimizer steps than these left every student that was measured short of what it could be:
# docs/doctor.md has the figures.
STEPS = 3000
NEAR = 0.05  # share of the teacher's variance that a student may miss on dev
_RAW = "wordnet"


def unexplained(student: np.ndarray, teacher: np.ndarray) -> float:
    """Return the share of the variance of a teacher's logits that a student's do not explain.

    Args:
        student: Logits, (N, C) float.
        teacher: Logits, (N, C) float.

    Returns:
        0 where both are alike but for a constant a row, 1 for one who answers the mean.
    """
    if teacher.shape[1] > 1:  # softmax ignores a constant
        student, teacher = (z - z.mean(1, keepdims=True) for z in (student, teacher))
    spread = np.square(teacher - teacher.mean(0)).sum()
    return float(np.square(student - teacher).sum() / spread) if spread else 0.0


def texts_for(
    train: pa.Table, dev: pa.Table, transfer_set: str, columns: ColumnsConfig, seed: int
) -> dict[str, pa.Table]:
    """Draw the texts on which student and teacher are compared.

    Args:
        train: The training texts.
        dev: The dev texts.
        transfer_set: What the student learnt from.
        columns: Names of its columns.
        seed: Draws them.

    Returns:
        `train`; `variants`, made anew by the paper's rules; `raw`, glosses of WordNet where it is
        installed and the texts are no pairs; `dev`. No row of `variants` and `raw` is in the
        transfer set.
    """
    seen = keys_of(read_table(transfer_set, columns, labels="ignored"))
    tables = {"train": _some(train, seed), "dev": _some(dev, seed)}
    with tempfile.TemporaryDirectory() as work:
        source, target = Path(work) / "source.parquet", Path(work) / "target.parquet"
        write_table(tables["train"], source)
        config = replace(AugmentConfig(), n_iter=4, mix=MixConfig())
        pipeline.augment(str(source), target, config, columns, seed=seed + 1)
        tables["variants"] = read_table(str(target), columns, labels="ignored")
    if not columns.text_pair:
        with suppress(InputError):  # not installed
            tables["raw"] = read_table(_RAW, columns, labels="ignored")
    for name in tables.keys() - {"train", "dev"}:
        fresh = pc.invert(pc.is_in(keys_of(tables[name]), value_set=seen))
        tables[name] = _some(tables[name].filter(fresh), seed)
    return {name: tables[name] for name in ("train", "variants", "raw", "dev") if name in tables}


def _some(table: pa.Table, seed: int) -> pa.Table:
    table = table.select([name for name in ("text", "text_pair") if name in table.column_names])
    if len(table) <= TEXTS:
        return table
    return table.take(np.sort(np.random.default_rng(seed).choice(len(table), TEXTS, replace=False)))


def gaps(student: str, teacher: str, tables: Mapping[str, pa.Table]) -> dict[str, float]:
    """Return, for each kind of text, the share of the teacher's variance that a student misses."""
    tables = {name: table for name, table in tables.items() if len(table) > 1}
    plain = [table.replace_schema_metadata(None) for table in tables.values()]
    every = with_mask(pa.concat_tables(plain), AugmentConfig().mask)
    wanted, labels = pipeline.classify(teacher, every, "doctor")
    found, _ = pipeline.classify(student, every, "doctor", labels)
    ends = np.cumsum([len(table) for table in plain])[:-1]
    parts = zip(np.split(found, ends), np.split(wanted, ends), strict=True)
    return {name: unexplained(*both) for name, both in zip(tables, parts, strict=True)}


def steps_of(student: Path) -> int:
    """Return how many optimizer steps a student was trained for, from its training's log."""
    log = (student / "training" / "log.jsonl").read_text(encoding="utf-8")
    return max((json.loads(line)["step"] for line in log.splitlines()), default=0)


def gap_finding(found: Mapping[str, float], steps: int) -> Finding:
    """Say why a student is not its teacher, and what to do first.

    Args:
        found: From `gaps`: `train`, `dev`, and `variants` and `raw` where there were any.
        steps: Optimizer steps of its training.
    """
    dev, train, variants = found["dev"], found["train"], found.get("variants", 0.0)
    if steps < STEPS:
        why = f"it trained for {steps:,} steps only"
        do = f"train longer: --training.steps {max(STEPS, 2 * steps)}"
    elif train >= dev / 2:
        why = "it has not even learnt what it was shown"
        do = "take a larger student (hidden_size, layers, subwords), or more steps"
    elif variants >= 2 * train and variants >= dev:
        why = "it knows the training texts, but not their variants"
        do = "draw more of them: --augment.n-iter"
    else:
        why = "it knows the texts it was shown, but not others"
        do = "show it more text, of any domain: --data.unlabelled wordnet, or your own"
    shares = ", ".join(f"{percent(share)} on {name}" for name, share in found.items())
    seen = f"of the teacher's variance the student misses {shares}"
    metrics = {**{f"unexplained_{name}": share for name, share in found.items()}, "steps": steps}
    if dev < NEAR:
        return Finding("student-gap", "fine", seen, metrics=metrics)
    return Finding("student-gap", "warning", f"{seen}: {why}", do, metrics)

"""What a recipe's data are: every source of a task read and checked, before anything is trained."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distillkit.data.columns import find_columns
from distillkit.data.content import texts_alone
from distillkit.data.corrections import (
    check_corrections,
    corrected,
    count_corrections,
    read_corrections,
)
from distillkit.data.gold import check_labels_known, label_names
from distillkit.data.memory import source_of
from distillkit.data.own_tables import canonical_names, raw_columns
from distillkit.data.readers import read_rows
from distillkit.data.sentences import sentences_of
from distillkit.data.splits import split_dev
from distillkit.data.tables import draw_rows, read_table
from distillkit.errors import InputError
from distillkit.pipeline.raw_text import settle_raw_text
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, DataConfig
from distillkit.student.model import PairStudent, StudentModel
from distillkit.teacher.checkpoint import resolve

COLUMNS = ColumnsConfig()
NO_DATA = "no training data: give --data.train, a file with a text and a label column; or --data.labels and --data.unlabelled"
# Beside a teacher's weights. Not in config.json: a logit store is tied to that file's hash.
_NOTE = "distillkit.json"


# Raise it when the same settings and inputs give another result: runs then do the stage again.
DATA_VERSION = 2


def read_data(data: DataConfig, seed: int = 1) -> dict[str, pa.Table]:
    """Read everything a task has into canonical tables.

    Args:
        data: The kind of task, sources, or rows in memory as `data.memory.source_of` takes them,
            and their columns.
        seed: Which rows become dev where the task has none.

    Returns:
        `train`, `dev`, where given `test` and `unlabelled`.

    Raises:
        InputError: A source is wrong, has one class or score only, or has a label that train has
            not.
    """
    data = replace(
        data,
        train=source_of(data.train, "train"),
        dev=source_of(data.dev, "dev"),
        test=source_of(data.test, "test"),
        unlabelled=tuple(source_of(rows, "unlabelled") for rows in data.unlabelled),
    )
    data, found = settle_columns(data)
    data, _ = settle_raw_text(data)
    if found:
        log(f"data: {found}")
    if not data.train:
        raise InputError(NO_DATA)
    tables = read_labelled(data)
    if data.corrections:
        tables = _corrected(data, tables)
    if "dev" not in tables:
        if not data.dev_fraction:
            raise InputError("no dev data: give --data.dev, or a --data.dev-fraction above 0")
        tables["train"], tables["dev"] = split_dev(tables["train"], data.dev_fraction, seed)
    names = [name for name in tables["train"].column_names if name in ("text", "text_pair")]
    _check_alike(list(tables.values()))
    # Of a pair task the unlabelled sources may have pairs or single texts, all of them alike.
    raw = read_unlabelled(data)
    if raw is not None:
        raw = raw.select([name for name in names if name in raw.column_names])
        wanted = data.unlabelled_rows
        tables["unlabelled"] = _some(raw, tables["train"], wanted, seed) if wanted else raw
    return tables


def read_unlabelled(data: DataConfig) -> pa.Table | None:
    """Read the texts, or pairs, of all of `data.unlabelled`; None where there is none."""
    tables = [
        read_table(
            source,
            raw_columns(source, data.columns),
            labels="ignored",
            or_canonical=True,
            missing=data.missing,
        )
        for source in data.unlabelled
    ]
    _check_alike(tables)
    return pa.concat_tables(map(texts_alone, tables)) if tables else None


def _check_alike(tables: Sequence[pa.Table]) -> None:
    if len({"text_pair" in table.column_names for table in tables}) > 1:
        raise InputError(
            "some sources of data have pairs and some single texts; give all of them the same columns"
        )


def read_labelled(
    data: DataConfig, splits: Sequence[str] = ("train", "dev", "test")
) -> dict[str, pa.Table]:
    """Read the labelled sources as they are: nothing is corrected, no dev is cut from train.

    Args:
        data: Sources on disk; the columns are settled.
        splits: Which, `train` always.

    Returns:
        Of the splits those that are given.

    Raises:
        InputError: As `read_data`.
    """
    task, missing = data.task, data.missing
    tables = {"train": read_table(data.train, data.columns, task=task, missing=missing)}
    names = label_names(tables["train"], data.train)
    for split in splits:
        if split != "train" and (source := getattr(data, split)):
            tables[split] = read_table(
                source, data.columns, task=task, known=names, missing=missing
            )
    return tables


def _corrected(data: DataConfig, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Apply `data.corrections` to train and dev; say how many rows change."""
    written = read_corrections(data.corrections)
    corrections = check_corrections(written, tables, label_names(tables["train"], data.train))
    for split, counts in count_corrections(corrections).items():
        tables[split] = corrected(tables[split], split, corrections)
        log(
            f"data: {data.corrections}: of {split} {counts['corrected']:,} labels are corrected and {counts['removed']:,} rows left out"
        )
    names = label_names(tables["train"], f"{data.train} as {data.corrections} corrects it")
    for split in ("dev", "test"):  # a label may be gone from train
        if split in tables:
            check_labels_known(tables[split], names, getattr(data, split))
    return tables


def settle_columns(data: DataConfig) -> tuple[DataConfig, str]:
    """Find the columns of the training data, or else dev, where a recipe's names do not fit.

    Returns:
        The same with the columns found, and in a line what was found; empty for nothing.
    """
    source = data.train or data.dev
    if not source or canonical_names(source) is not None:
        return data, ""
    first = next(read_rows(source), None)
    columns, said = find_columns(list(first[1]) if first else [], data.columns)
    return replace(data, columns=columns), said and f"{source}: {said}"


def _some(raw: pa.Table, train: pa.Table, rows: int, seed: int) -> pa.Table:
    """Draw so many raw texts, in their order; cut those that no training text is as long as.

    Args:
        raw: `text`, or pairs, which stay as they are.
        train: The training texts.
        rows: How many; all where there are fewer.
        seed: Draws them.

    Returns:
        Distinct texts.
    """
    if "text_pair" not in raw.column_names:
        longest = pc.max(pc.utf8_length(train["text"])).as_py()
        texts = (
            sentence
            for text in raw["text"].to_pylist()
            for sentence in ([text] if len(text) <= longest else sentences_of(text))
        )
        raw = pa.table({"text": pa.array(dict.fromkeys(texts), pa.string())})
    return draw_rows(raw, rows, seed)


def write_note(folder: Path, *, pairs: bool) -> None:
    """Note in a teacher's folder what it was trained on, for `reads_pairs`."""
    (folder / _NOTE).write_text(json.dumps({"pairs": pairs}) + "\n", encoding="utf-8")


def reads_pairs(model: str, network: Any = None) -> bool | None:
    """Say whether a model answers pairs (True) or single texts (False); None: unknown, or both.

    Args:
        model: Its name, as for `teacher.checkpoint.resolve`.
        network: The model itself, where it is loaded; a student of distillkit takes one of the two.
    """
    if isinstance(network, StudentModel):
        return isinstance(network, PairStudent)
    note = Path(resolve(model)) / _NOTE
    return json.loads(note.read_text(encoding="utf-8"))["pairs"] if note.is_file() else None


def check_reads(model: str, network: Any = None, *, pairs: bool, source: str) -> None:
    """Refuse pairs to a model for single texts, and single texts to a model for pairs.

    Raises:
        InputError: They do not fit.
    """
    check_pairs(model, reads_pairs(model, network), pairs=pairs, source=source)


def check_pairs(model: str, reads: bool | None, *, pairs: bool, source: str) -> None:
    """Refuse as `check_reads` does where it is known what a model reads; None: unknown, or both."""
    if reads in (None, pairs):
        return
    if pairs:
        raise InputError(
            f"{source}: pairs, but {model} answers single texts; give single texts, without --data.columns.text-pair"
        )
    raise InputError(
        f"{source}: single texts, but {model} answers pairs; name the second text's column with --data.columns.text-pair"
    )

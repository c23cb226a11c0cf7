"""Tables that distillkit wrote: how they are recognised, and what is checked again."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from upath import UPath

from distillkit.data.columns import parse_text
from distillkit.data.labels import LABEL_TYPES, parse_label, task_of_labels
from distillkit.data.readers import (
    is_plain_text,
    parquet_schema,
    read_batches,
    read_rows,
    source_files,
)
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig, Task

# Keys of the schema's metadata: what this version of the project wrote, and a transfer set's mask
# word.
STAMP, MASK = b"distillkit.format", b"distillkit.mask"
_OWN_TEXTS = ("text", "text_pair", "origin", "rules")
_OWN_TYPES = {name: [pa.string()] for name in _OWN_TEXTS} | {"label": [*LABEL_TYPES.values()]}
_BLOCK_ROWS = 65_536


def canonical_names(source: str) -> set[str] | None:
    """Return the columns of a source with canonical names, None for any other source.

    Canonical are text files, and tables that `write_table` wrote.
    """
    if source.startswith("datasets:"):
        return None
    names: set[str] = set()
    for file in source_files(source):
        own = ["text"] if is_plain_text(file) else _stamped_names(file)
        if own is None:
            return None
        names.update(own)
    return names


def raw_columns(source: str, columns: ColumnsConfig) -> ColumnsConfig:
    """Return the columns of unlabelled text: of a pair task it may have pairs or single texts."""
    names = canonical_names(source)
    if names is None:
        names = set(next(read_rows(source), ("", {}))[1])
    single = not {columns.text_pair, "text_pair"} & names
    return replace(columns, text_pair="") if single else columns


def _stamped_names(file: UPath) -> list[str] | None:
    if file.suffix != ".parquet":
        return None
    schema = parquet_schema(file)
    return schema.names if STAMP in (schema.metadata or {}) else None


def own_files(source: str, wanted: set[str], labels: str) -> list[UPath]:
    """Return the files of a source that is a table of our own form, with rows and what is wanted.

    A folder's files have the same columns. Of any other source: none.
    """
    files = source_files(source)
    if any(file.suffix != ".parquet" for file in files):
        return []
    schema, *others = (parquet_schema(file) for file in files)
    masks = {(one.metadata or {}).get(MASK) for one in (schema, *others)}
    if len(masks) > 1 or any(one != schema for one in others):
        if masks != {None}:
            raise InputError(
                f"{source}: its tables have different columns or mask words; give the files of one transfer set"
            )
        return []
    columns = [*wanted, *([] if labels == "ignored" else ["label"])]
    # Whoever writes the stamp may write it over other columns.
    if any(schema.get_field_index(name) < 0 for name in columns) or any(
        field.type not in _OWN_TYPES[field.name] for field in schema if field.name in _OWN_TYPES
    ):
        return []
    if labels != "required":
        some = any(True for file in files for _ in islice(read_batches(file, 1, columns[:1]), 1))
        return files if some else []
    blocks = (b for file in files for _, b in read_batches(file, _BLOCK_ROWS, ["label"]))
    nulls = [block["label"].null_count for block in blocks]
    return files if nulls and not sum(nulls) else []


def believed(source: str, first: int, block: pa.Table) -> pa.Table:
    """Check rows that carry distillkit's stamp, which anybody can write, and return them.

    Raises:
        InputError: A text is missing, or a label is none.
    """
    names = [name for name in ("text", "text_pair") if name in block.column_names]
    blank = (pc.equal(pc.utf8_trim_whitespace(block[name]), "").fill_null(True) for name in names)
    if any(pc.any(column).as_py() for column in blank):
        for number, row in enumerate(block.select(names).to_pylist(), start=first):
            for name in names:
                parse_text(row, name, f"{source} row {number}")
    if "label" in block.column_names:
        labels = block["label"].combine_chunks()
        task = task_of_labels(labels.type)
        in_lists = task == "multi-label"
        if in_lists:
            labels, task = labels.flatten(), "classification"
        place = f"{source} rows {first} to {first + len(block) - 1}"
        for label in labels.unique().to_pylist():
            parse_label({"label": label}, ColumnsConfig(), place, task, (), required=in_lists)
    return block


def check_own_task(files: Sequence[UPath], found: pa.DataType, task: Task) -> None:
    """Refuse a table of our own whose labels, if it has any, are of another task."""
    if found == LABEL_TYPES[task]:
        return
    for file in files:
        blocks = read_batches(file, _BLOCK_ROWS, ["label"])
        if all(block["label"].null_count == len(block) for _, block in blocks):
            continue
        raise InputError(
            f"{file}: its labels are of a {task_of_labels(found)} task, expected {task}; check --data.task, or which model this is for"
        )


def of_task(table: pa.Table, task: Task) -> pa.Table:
    """Give a column without any label the task's type."""
    if "label" not in table.column_names or table["label"].type == LABEL_TYPES[task]:
        return table
    return table.set_column(
        table.column_names.index("label"), "label", pa.nulls(len(table), LABEL_TYPES[task])
    )

"""Canonical tables: what a source becomes before any stage sees it, and its checks."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distillkit.data.columns import find_columns, no_column, parse_text
from distillkit.data.files import whole_file
from distillkit.data.labels import LABEL_TYPES, parse_label
from distillkit.data.own_tables import (
    MASK,
    STAMP,
    believed,
    canonical_names,
    check_own_task,
    of_task,
    own_files,
)
from distillkit.data.readers import Row, parquet_schema, read_batches, read_rows
from distillkit.data.scratch import Scratch
from distillkit.errors import InputError, MissingValue
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, Missing, Task

BLOCK_ROWS = 65_536
_LISTED = 20  # rows of an error's list
_LETTER = re.compile(r"[^\W\d_]")
_SECOND_NAMES = {
    f"{stem}{mark}"
    for stem in ("text", "sentence", "question")
    for mark in ("2", "_2", "b", "_b", "_pair")
} | {"hypothesis"}


def read_table(
    source: str,
    columns: ColumnsConfig,
    *,
    task: Task = "classification",
    labels: str = "required",
    known: Sequence[str] = (),
    or_canonical: bool = False,
    missing: Missing | None = None,
    scratch: Scratch | None = None,
) -> pa.Table:
    """Read a source into one canonical table, in memory or where `scratch` has it.

    See `read_blocks`.
    """
    blocks = read_blocks(
        source,
        columns,
        task=task,
        labels=labels,
        known=known,
        or_canonical=or_canonical,
        missing=missing,
    )
    return pa.concat_tables(blocks) if scratch is None else scratch.table(blocks)


def read_blocks(
    source: str,
    columns: ColumnsConfig,
    *,
    task: Task = "classification",
    labels: str = "required",
    known: Sequence[str] = (),
    or_canonical: bool = False,
    missing: Missing | None = None,
    rows: int = BLOCK_ROWS,
) -> Iterator[pa.Table]:
    """Read a source block by block into the columns `text`, `text_pair` (pairs only), `label`.

    Args:
        source: Anything `readers.read_rows` takes.
        columns: Names of the source's columns. Where the default ones are not there, they are
            found as `data.columns` says. A table that `write_table` wrote and a text file have the
            canonical names, whatever is given here. Such a table with a column `text_pair` holds
            pairs; a transfer set keeps its `origin` and `rules`.
        task: What a label is; `data.labels.LABEL_TYPES` has the column's type.
        labels: `required`, `optional` (a null label, or no such column, gives null) or `ignored`
            (no label column).
        known: Labels that training saw; empty: any will do.
        or_canonical: A text column of the canonical name will do where the one named is absent:
            text without labels is often from elsewhere.
        missing: `drop` leaves out the rows without a text or a label that is required, and says
            how many; otherwise they are refused, all in one message, which offers `data.missing`
            where this is given.
        rows: Rows a block; the last may have fewer.

    Raises:
        InputError: A column is missing, a text is empty or no text, a label is missing, NaN, not
            `known` or of another task, or an unused column looks like a second text.
    """
    if (own := canonical_names(source)) is not None:
        second = "text_pair" if columns.text_pair or "text_pair" in own else ""
        columns = replace(columns, text="text", text_pair=second, label="label")
    wanted = _wanted(columns)
    files = [] if own is None or known else own_files(source, set(wanted), labels)
    if files:
        schema = parquet_schema(files[0])
        names = [*wanted, *(["label"] if labels != "ignored" else []), "origin", "rules"]
        found = [name for name in names if name in schema.names]
        if "label" in found:
            check_own_task(files, schema.field("label").type, task)
        blocks = (
            of_task(believed(str(file), first, block), task)
            for file in files
            for first, block in read_batches(file, rows, found)
        )
        yield from (
            block.replace_schema_metadata(schema.metadata) for block in resized(blocks, rows)
        )
        return
    # Anything else goes row by row, and a row that does not fit is said with its place.
    found_rows = read_rows(source)
    first = list(islice(found_rows, 1))
    if own is None and first:
        columns, said = find_columns(list(first[0][1]), columns)
        if said:
            log(f"{source}: {said}")
    columns_of = _Columns(columns, task, labels, known, or_canonical)
    yield from _checked(source, chain(first, found_rows), columns_of, missing, rows)


def _wanted(columns: ColumnsConfig) -> dict[str, str]:
    """Return the source's name of each canonical column of text."""
    second = {"text_pair": columns.text_pair} if columns.text_pair else {}
    return {"text": columns.text, **second}


def _checked(
    source: str,
    found: Iterable[Row],
    columns_of: "_Columns",
    missing: Missing | None,
    rows: int,
) -> Iterator[pa.Table]:
    """Yield a source in blocks of so many rows; say which rows lack a value."""
    empty = True
    lacking: list[MissingValue] = []
    for place, row in found:
        try:
            columns_of.add(place, row)
        except MissingValue as error:
            lacking.append(error)
            continue
        if empty and columns_of.size == 1:
            _refuse_second_text(row, columns_of.columns, place)
        if columns_of.size == rows:
            block, empty = columns_of.take(), False
            if missing == "drop" or not lacking:
                yield block
    if lacking and missing != "drop":
        several = f"{_lacking(source, lacking)}; fill or drop them"
        offer = "; --data.missing drop leaves such rows out" if missing else ""
        raise InputError(f"{lacking[0] if len(lacking) == 1 else several}{offer}")
    if columns_of.size:
        yield columns_of.take()
    elif empty:
        raise InputError(f"{source}: no rows{' with a text and a label' if lacking else ''}")
    if lacking:
        log(f"{_lacking(source, lacking)}; they are dropped")


def _lacking(source: str, lacking: list[MissingValue]) -> str:
    """Say which rows lack a value."""
    places: dict[str, list[str]] = {}
    for error in lacking:
        places.setdefault(error.what, []).append(error.place.removeprefix(source).strip(": "))
    found = [
        f"{what} ({', '.join(lines[:_LISTED])}{', ...' if len(lines) > _LISTED else ''})"
        for what, lines in places.items()
    ]
    return f"{source}: {len(lacking):,} rows lack a value, by line: {'; '.join(found)}"


@dataclass
class _Columns:
    """Canonical columns that fill row by row."""

    columns: ColumnsConfig
    task: Task
    labels: str
    known: Sequence[str]
    or_canonical: bool

    def __post_init__(self) -> None:
        self.wanted = _wanted(self.columns)
        types = dict.fromkeys(self.wanted, pa.string())
        if self.labels != "ignored":
            types["label"] = LABEL_TYPES[self.task]
        self.schema = pa.schema(list(types.items()))
        self.rows: dict[str, list[Any]] = {name: [] for name in types}

    def add(self, place: str, row: dict[str, Any]) -> None:
        values: dict[str, Any] = {}
        for name, column in self.wanted.items():
            usual = self.or_canonical and column not in row and name in row
            values[name] = parse_text(row, name if usual else column, place)
        if self.labels != "ignored":
            if "label" in row and self.columns.label not in row:  # which the user did not mean
                raise no_column(row, self.columns.label, place, "--data.columns.label")
            required = self.labels == "required"
            values["label"] = parse_label(
                row, self.columns, place, self.task, self.known, required=required
            )
        for name, value in values.items():
            self.rows[name].append(value)

    @property
    def size(self) -> int:
        """Rows since the last `take`."""
        return len(self.rows["text"])

    def take(self) -> pa.Table:
        table = pa.table(self.rows, schema=self.schema)
        self.rows = {name: [] for name in self.rows}
        return table


def resized(blocks: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Cut a stream of tables anew into tables of `rows` rows, the last of what is left."""
    waiting: list[pa.Table] = []
    for block in blocks:
        waiting.append(block)
        while sum(map(len, waiting)) >= rows:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, rows)
            waiting = [joined.slice(rows)]
    if sum(map(len, waiting)):
        yield pa.concat_tables(waiting)


def blocks_of(table: pa.Table) -> Iterator[pa.Table]:
    """Cut a table, so that Python's objects are made of a few rows at a time; one block at least."""
    for start in range(0, max(len(table), 1), BLOCK_ROWS):
        yield table.slice(start, BLOCK_ROWS)


def take_rows(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Return some rows of a table of any size.

    Arrow's own `take` first joins the whole table, which ends at 2 GiB of text a column.

    Args:
        table: Any table.
        rows: Numbers of its rows, (M,) int64. If they do not rise, they have less than 2 GiB of text.
    """
    if not len(rows):
        return table.slice(0, 0)
    if (np.diff(rows) < 0).any():
        rising, places = np.unique(rows, return_inverse=True)
        return take_rows(table, rising).take(pa.array(places))
    start = int(rows[0])
    parts = []
    for batch in table.slice(start, int(rows[-1]) - start + 1).to_batches():
        mine = rows[slice(*np.searchsorted(rows, (start, start + len(batch))))] - start
        start += len(batch)
        if len(mine):
            parts.append(batch.take(pa.array(mine)))
    return pa.Table.from_batches(parts, table.schema)


def spread_rows(table: pa.Table, count: int) -> pa.Table:
    """Return at most `count` rows of a table, evenly spread, in their order."""
    return take_rows(table, np.linspace(0, len(table) - 1, min(count, len(table))).astype(int))


def _refuse_second_text(row: dict[str, Any], columns: ColumnsConfig, place: str) -> None:
    """Refuse a row of which an unused column looks like the second text of a pair."""
    if columns.text_pair:
        return
    for name, value in row.items():
        if (
            name not in (columns.text, columns.label)
            and is_second_name(name, columns.text)
            and isinstance(value, str)
            and _LETTER.search(value)
        ):
            raise InputError(
                f"{place}: column {name!r} looks like the second text of a pair and is not used; "
                f"for pairs give --data.columns.text-pair {name}, for single texts drop the column"
            )


def is_second_name(name: str, first: str) -> bool:
    """Say whether a column's name is that of a second text beside the column `first`.

    >>> is_second_name("question2", "question1"), is_second_name("title", "text")
    (True, False)
    """
    return name.lower() in _SECOND_NAMES or are_halves(first, name)


def are_halves(first: str, second: str) -> bool:
    """Say whether two names differ as those of a first and a second text do: 1 and 2."""
    first, second = first.lower(), second.lower()
    marks = (("1", "2"), ("first", "second"))
    return any(second == first.replace(a, b) != first for a, b in marks)


def draw_rows(table: pa.Table, count: int, seed: int) -> pa.Table:
    """Draw rows at random, at most `count`; they stay in their order."""
    if len(table) <= count:
        return table
    drawn = np.random.default_rng(seed).choice(len(table), count, replace=False)
    return take_rows(table, np.sort(drawn))


def mask_of(table: pa.Table) -> str:
    """Return the mask word of a transfer set, empty for any other table."""
    return (table.schema.metadata or {}).get(MASK, b"").decode()


def with_mask(table: pa.Table, mask: str) -> pa.Table:
    """Note a transfer set's mask word in its metadata, which Parquet keeps."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), MASK: mask.encode()})


@contextmanager
def table_writer(target: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer of a Parquet file, whole or absent; each table is a row group."""
    schema = schema.with_metadata({**(schema.metadata or {}), STAMP: b"1"})
    with (
        whole_file(target) as partial,
        pq.ParquetWriter(partial, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        yield writer


def write_table(table: pa.Table, target: Path) -> None:
    """Write a table as Parquet, whole or not at all."""
    with table_writer(target, table.schema) as writer:
        writer.write_table(table)

"""Canonical tables: what a source becomes before any stage sees it, and the checks it passes on the way."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distillkit.data.files import whole_file
from distillkit.data.readers import read_rows
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig

KEY_BYTES = 16
HASH = np.dtype([("high", "u8"), ("low", "u8")])
# Keys of the schema's metadata: what this version of the project wrote, and a transfer set's mask word.
_STAMP, _MASK = b"distillkit.format", b"distillkit.mask"


def read_table(source: str, columns: ColumnsConfig, *, labels: str = "required", known: Sequence[str] = ()) -> pa.Table:
    """Read a source into the canonical columns `text`, `text_pair` (pairs only), `label`; see `read_blocks`."""
    return pa.concat_tables(read_blocks(source, columns, labels=labels, known=known))


def read_blocks(
    source: str, columns: ColumnsConfig, *, labels: str = "required", known: Sequence[str] = (), rows: int = 65_536
) -> Iterator[pa.Table]:
    """Read a source block by block into the canonical columns `text`, `text_pair` (pairs only), `label`.

    Args:
        source: Anything `readers.read_rows` takes.
        columns: Names of the source's columns; canonical names are found too, so that a stage's output is a source
            (and a transfer set keeps its `origin`).
        labels: `required`, `optional` (a null label, or no such column, gives null) or `ignored` (no label column).
        known: Labels that training saw; empty: any will do.
        rows: Rows a block; the last may have fewer.

    Raises:
        InputError: A column is missing, a text is empty or no text, a label is missing, NaN or not `known`.
    """
    wanted = {"text": columns.text}
    if columns.text_pair:
        wanted["text_pair"] = columns.text_pair
    if not known and _is_own(source, set(wanted), labels):
        names = [*wanted, *(["label"] if labels != "ignored" else []), "origin"]
        file = pq.ParquetFile(source)
        found = [name for name in names if name in file.schema_arrow.names]
        meta = file.schema_arrow.metadata
        blocks = (pa.Table.from_batches([batch]) for batch in file.iter_batches(rows, columns=found))
        yield from (block.select(found).replace_schema_metadata(meta) for block in resized(blocks, rows))
        return
    # Anything else goes row by row, and a row that does not fit is said with its place.
    columns_of = _Columns(wanted, columns.label, labels, known)
    empty = True
    for place, row in read_rows(source):
        columns_of.add(place, row)
        if len(columns_of.rows["text"]) == rows:
            yield columns_of.take()
            empty = False
    if columns_of.rows["text"]:
        yield columns_of.take()
    elif empty:
        raise InputError(f"{source}: no rows")


class _Columns:
    """Canonical columns that fill row by row."""

    def __init__(self, wanted: dict[str, str], label: str, labels: str, known: Sequence[str]) -> None:
        self.wanted, self.label, self.labels, self.known = wanted, label, labels, known
        self.names = [*wanted, *(["label"] if labels != "ignored" else [])]
        self.rows: dict[str, list[Any]] = {name: [] for name in self.names}

    def add(self, place: str, row: dict[str, Any]) -> None:
        for name, column in self.wanted.items():
            self.rows[name].append(_text(row, column if column in row else name, column, place))
        if self.labels != "ignored":
            self.rows["label"].append(_label(row, self.label, place, self.known, required=self.labels == "required"))

    def take(self) -> pa.Table:
        table = pa.table(self.rows, schema=pa.schema([(name, pa.string()) for name in self.names]))
        self.rows = {name: [] for name in self.names}
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


def _is_own(source: str, wanted: set[str], labels: str) -> bool:
    """Say whether a source is a table that `write_table` wrote, whose rows were checked before, and has what is wanted."""
    if not source.endswith(".parquet") or not Path(source).is_file():
        return False
    try:
        file = pq.ParquetFile(source)
    except pa.ArrowInvalid:
        return False  # the reader of foreign files says what is wrong
    names = file.schema_arrow.names
    if _STAMP not in (file.schema_arrow.metadata or {}) or not wanted <= set(names) or not file.metadata.num_rows:
        return False
    if labels != "required":
        return labels == "ignored" or "label" in names
    return "label" in names and not pq.read_table(source, columns=["label"])["label"].null_count


def mask_of(table: pa.Table) -> str:
    """Return the mask word of a transfer set, empty for any other table."""
    return (table.schema.metadata or {}).get(_MASK, b"").decode()


def with_mask(table: pa.Table, mask: str) -> pa.Table:
    """Note a transfer set's mask word in its metadata, which Parquet keeps."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _MASK: mask.encode()})


def _text(row: dict[str, Any], column: str, asked: str, place: str) -> str:
    if column not in row:
        raise InputError(
            f"{place}: no column {asked!r}; there is {', '.join(map(repr, row))}: name yours with --data.columns.text or --data.columns.text-pair"
        )
    value = row[column]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise InputError(f"{place}: column {column!r} is empty (null or NaN); expected text: fill or drop the row")
    if not isinstance(value, str):
        raise InputError(f"{place}: column {column!r} is {value!r}; expected text")
    if not value.strip():
        raise InputError(f"{place}: column {column!r} is empty; fill or drop the row")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{place}: column {column!r} is {value!r}: half of a surrogate pair is no text") from None
    return value


def _label(row: dict[str, Any], column: str, place: str, known: Sequence[str], *, required: bool) -> str | None:
    asked, column = column, column if column in row else "label"
    if column not in row:
        if required:
            raise InputError(
                f"{place}: no column {asked!r}; there is {', '.join(map(repr, row))}: name yours with --data.columns.label"
            )
        return None
    value = row[column]
    if value is None or value == "":
        if required:
            raise InputError(f"{place}: column {column!r} is empty; every row here needs a label")
        return None
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if text.lower() == "nan":
        raise InputError(f"{place}: column {column!r} is NaN; every row here needs a label")
    if _is_fraction(text):
        raise InputError(
            f"{place}: column {column!r} is {text}, a number with a fraction; expected a class, by name or integer"
        )
    if known and text not in known:
        raise _unknown_label(place, text, known)
    return text


def _is_fraction(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and not float(text).is_integer()
    except ValueError:
        return False


def _unknown_label(place: str, label: str, known: Sequence[str]) -> InputError:
    shown = ", ".join(map(repr, known[:20])) + (" ..." if len(known) > 20 else "")
    return InputError(
        f"{place}: label {label!r} was never seen in training; known: {shown}. Correct it, or add such rows to the training data"
    )


def label_names(table: pa.Table, source: str = "training data") -> list[str]:
    """List the labels of a training table in the order that gives them their ids: integers by value, names by code point.

    Args:
        table: Canonical, labelled.
        source: Named in the error.

    Raises:
        InputError: There are fewer than two.
    """
    names = set(table["label"].to_pylist()) - {None}
    if not names:
        raise InputError(f"{source}: no row has a label; a classifier is trained on labelled rows")
    if len(names) < 2:
        raise InputError(
            f"{source}: one class only ({', '.join(map(repr, names))}); a classifier needs at least two: check --data.columns.label"
        )
    try:
        return sorted(names, key=int)
    except ValueError:
        return sorted(names)


def check_labels_known(table: pa.Table, names: Sequence[str], source: str) -> None:
    """Refuse a table with a label that training never saw.

    Raises:
        InputError: There is one; the message says the first row with it.
    """
    known = set(names)
    for number, label in enumerate(table["label"].to_pylist(), start=1):
        if label is not None and label not in known:
            raise _unknown_label(f"{source} row {number}", label, names)


def label_ids(table: pa.Table, names: Sequence[str]) -> list[int]:
    """Return each row's label as its place in `names`; -100 where there is none (what cross-entropy ignores)."""
    place = {name: i for i, name in enumerate(names)}
    return [-100 if label is None else place[label] for label in table["label"].to_pylist()]


def split_dev(table: pa.Table, fraction: float, seed: int) -> tuple[pa.Table, pa.Table]:
    """Set aside a share of each label's rows; equal texts stay on one side.

    Args:
        table: Canonical, labelled.
        fraction: Share set aside, above 0.
        seed: Which rows.

    Returns:
        What is left to train on, and the dev rows, both in their old order.

    Raises:
        InputError: A label has too few distinct texts to stand on both sides.
    """
    keys = content_keys(*texts_of(table))
    labels = table["label"].to_pylist()
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    chosen: set[bytes] = set()
    for label in sorted(set(labels)):
        # Ranked by a keyed hash, so that a row added later moves at most one other.
        mine = sorted(
            (hashlib.blake2b(k, key=str(seed).encode(), digest_size=8).digest(), k)
            for k, i in first.items()
            if labels[i] == label
        )
        count = max(1, round(fraction * len(mine)))
        if count >= len(mine):
            raise InputError(
                f"label {label!r} has {len(mine)} distinct texts: too few to set {fraction:.0%} aside as dev; give --data.dev"
            )
        chosen.update(key for _, key in mine[:count])
    in_dev = pa.array([key in chosen for key in keys])
    return table.filter(pa.compute.invert(in_dev)), table.filter(in_dev)


def texts_of(table: pa.Table) -> tuple[list[str], list[str] | None]:
    """Return the texts and, for pairs, the second texts."""
    pairs = table["text_pair"].to_pylist() if "text_pair" in table.column_names else None
    return table["text"].to_pylist(), pairs


def paired(texts: Sequence[str], text_pairs: Sequence[str] | None) -> list[tuple[str, str | None]]:
    """Return each row's (text, second text), the second None where there are no pairs."""
    seconds: Sequence[str | None] = [None] * len(texts) if text_pairs is None else text_pairs
    return list(zip(texts, seconds, strict=True))


def content_keys(texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> list[bytes]:
    """Hash each row's content: what logits are joined by.

    Args:
        texts: N texts.
        text_pairs: N second texts, or None.

    Returns:
        N keys of 16 bytes: BLAKE2b of the UTF-8 text and, for a pair, of the length of the first text, and both texts.
    """
    if text_pairs is None:
        return [hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest() for text in texts]
    # The length keeps ("ab", "c") apart from ("a", "bc").
    return [
        hashlib.blake2b(f"{len(a)}\0{a}{b}".encode(), digest_size=KEY_BYTES).digest()
        for a, b in zip(texts, text_pairs, strict=True)
    ]


def content_hashes(texts: pa.Array, text_pairs: pa.Array | None = None) -> np.ndarray:
    """Hash each row's content, as `content_keys` does, into two numbers: for sorting, joining and finding equals.

    Args:
        texts: N strings.
        text_pairs: N strings, or None.

    Returns:
        (N,) of the fields `high` and `low`, uint64: the key's 16 bytes, big end first.
    """
    keys = content_keys(texts.to_pylist(), None if text_pairs is None else text_pairs.to_pylist())
    halves = np.frombuffer(b"".join(keys), dtype=">u8").reshape(-1, 2)
    out = np.empty(len(halves), dtype=HASH)
    out["high"], out["low"] = halves[:, 0], halves[:, 1]
    return out


@contextmanager
def table_writer(target: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer of a Parquet file that is whole or absent; each table written is a row group."""
    schema = schema.with_metadata({**(schema.metadata or {}), _STAMP: b"1"})
    with whole_file(target) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        yield writer


def write_table(table: pa.Table, target: Path) -> None:
    """Write a table as Parquet, whole or not at all."""
    with table_writer(target, table.schema) as writer:
        writer.write_table(table)


def class_counts(table: pa.Table) -> dict[str, int]:
    """Count each label, most frequent first; equal counts by name."""
    counts: Iterable[tuple[str, int]] = Counter(
        label for label in table["label"].to_pylist() if label is not None
    ).items()
    return dict(sorted(counts, key=lambda item: (-item[1], item[0])))

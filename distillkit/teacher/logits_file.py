"""Logits that an interface on the net or another tool made, joined to text by content."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit.data.checked import fingerprint
from distillkit.data.keys import KeyIndex
from distillkit.data.logits import LABELS, keys_of
from distillkit.data.readers import parquet_schema, parse_json, read_rows, source_files
from distillkit.data.tables import read_table
from distillkit.errors import InputError, library_errors
from distillkit.recipe import ColumnsConfig

_BLOCK_ROWS = 65_536


class LogitsFile:
    """A file with text (text_pair) and `logits`, a list of C numbers; log-probabilities will do.

    Args:
        source: .parquet or .jsonl.
        columns: Names of its text columns; canonical names are found too.

    Raises:
        InputError: A row has no text or no logits, they are of another length than the first row's,
            not finite, or not those that the same text has elsewhere in the file.
    """

    def __init__(self, source: str, columns: ColumnsConfig) -> None:
        self.source = source
        keys = keys_of(read_table(source, columns, labels="ignored", or_canonical=True))
        self._index = KeyIndex(keys)
        self._values = np.concatenate(list(self._blocks()))
        self._refuse_contradictions(self._index.find(keys))

    @property
    def classes(self) -> int:
        """Numbers a row, C."""
        return self._values.shape[1]

    def fingerprint(self) -> str:
        """Return what a store is tied to: the file's hash, or the name of one that is elsewhere."""
        if "://" in self.source or self.source.startswith("datasets:"):
            return self.source
        return fingerprint(*(Path(str(path)) for path in source_files(self.source)))

    def name_labels(self, given: Sequence[str], data: Sequence[str]) -> list[str]:
        """Say what the C logits of a row mean.

        Args:
            given: What the user says; empty: the file's own metadata, if it is a shard of a store,
                or else `data`.
            data: Labels of the labelled rows, in their order.

        Raises:
            InputError: Nobody says, or there are not C of them.
        """
        names = list(given) or self._own_labels() or list(data)
        if len(names) != self.classes or len(set(names)) != len(names):
            said = f"{len(names)} labels ({', '.join(names)})" if names else "no labels"
            raise InputError(
                f"{self.source}: {self.classes} logits a row, but {said}; name {self.classes} different ones, in the order of the logits, with --labels"
            )
        return names

    def check_covers(self, table: pa.Table) -> None:
        """Refuse a table with rows that are not in the file.

        Raises:
            InputError: There are some; the message counts them and quotes the first.
        """
        missing = np.flatnonzero(~self._index.has(keys_of(table)))
        if len(missing):
            first = table["text"][int(missing[0])].as_py()
            raise InputError(
                f"{self.source}: {len(missing)} of {len(table)} rows have no logits there, the first is {first!r}; add them to the file"
            )

    def find(self, table: pa.Table) -> np.ndarray:
        """Look up the logits of rows that are all in the file, (N, C) float32."""
        return self._values[self._index.find(keys_of(table))]

    def _blocks(self) -> Iterator[np.ndarray]:
        width = 0
        rows = read_rows(self.source)
        while block := [(place, _numbers(row, place)) for place, row in islice(rows, _BLOCK_ROWS)]:
            width = width or len(block[0][1])
            for place, values in block:
                if len(values) != width:
                    raise InputError(
                        f"{place}: {len(values)} logits, but the first row has {width}; expected one a label"
                    )
            yield np.array([values for _, values in block], np.float32)

    def _refuse_contradictions(self, first: np.ndarray) -> None:
        """Refuse rows that differ from the first one of their text, (N,) int64."""
        other = (self._values != self._values[first]).any(axis=1)
        if other.any():
            row = int(other.argmax())
            numbers = (row, int(first[row]))
            place, earlier = (next(islice(read_rows(self.source), i, None))[0] for i in numbers)
            raise InputError(
                f"{place}: the text of {earlier} with other logits; keep one of the two"
            )

    def _own_labels(self) -> list[str]:
        if not self.source.endswith(".parquet"):
            return []
        place = f"{self.source}: {LABELS.decode()} in its metadata"
        meta = parquet_schema(source_files(self.source)[0]).metadata or {}
        with library_errors(place, "not UTF-8", "; give the names with --labels"):
            found = parse_json(meta.get(LABELS, b"[]").decode(), place)
        if not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
            raise InputError(f"{place}: expected a list of names; give them with --labels")
        return found


def _numbers(row: dict[str, Any], place: str) -> list[float]:
    if "logits" not in row:
        raise InputError(
            f"{place}: no column 'logits'; there is {', '.join(map(repr, row))}: rename yours"
        )
    found = row["logits"]
    try:
        values = [float(value) for value in found] if isinstance(found, list) else []
    except (TypeError, ValueError, OverflowError):
        values = []
    if not values:
        raise InputError(f"{place}: logits are {found!r}; expected a list of numbers")
    with np.errstate(over="ignore"):  # refused here, in words
        finite = np.isfinite(np.array(values, np.float32)).all()
    if not finite:
        raise InputError(f"{place}: logits are {values}, expected finite numbers")
    return values

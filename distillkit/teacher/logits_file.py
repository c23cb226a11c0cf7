"""Logits that an interface on the net or another tool made, joined to text by content."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit.data.checked import fingerprint
from distillkit.data.keys import KeyColumn, KeyIndex, in_parts, look_up
from distillkit.data.logits import LABELS, keys_of
from distillkit.data.readers import parquet_schema, parse_json, read_rows, source_files
from distillkit.data.scratch import TEMPORARY, Scratch
from distillkit.data.tables import BLOCK_ROWS, read_blocks
from distillkit.errors import InputError, library_errors
from distillkit.recipe import ColumnsConfig

LOGITS = "logits"


class LogitsFile:
    """A file with text (text_pair) and `logits`, a list of C numbers; log-probabilities will do.

    Args:
        source: .parquet or .jsonl.
        columns: Names of its text columns; canonical names are found too.
        scratch: Where its keys and logits are kept.

    Raises:
        InputError: A row has no text or no logits, they are of another length than the first row's,
            not finite, or not those that the same text has elsewhere in the file.
    """

    def __init__(self, source: str, columns: ColumnsConfig, scratch: Scratch = TEMPORARY) -> None:
        self.source, self._scratch = source, scratch
        keys = KeyColumn(scratch)
        for block in read_blocks(source, columns, labels="ignored", or_canonical=True):
            keys.append(keys_of(block))
        self._keys = keys.whole()
        self._values = scratch.stacked(self._blocks())
        self._refuse_contradictions()

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
            InputError: Nobody says, there are not C of them, or the file says otherwise.
        """
        own = file_labels(self.source)
        if given and own and list(given) != own:
            raise InputError(
                f"{self.source}: its logits are of {', '.join(own)}, and {', '.join(given)} are given; leave out what is given"
            )
        names = list(given) or own or list(data)
        if len(names) != self.classes or len(set(names)) != len(names):
            said = f"{len(names)} labels ({', '.join(names)})" if names else "no labels"
            raise InputError(
                f"{self.source}: {self.classes} logits a row, but {said}; name {self.classes} different ones, in the order of the logits, with --labels"
            )
        return names

    def join(self, table: pa.Table) -> pa.Table:
        """Give a canonical table a column of its rows' logits, `LOGITS`.

        Raises:
            InputError: Some rows are not in the file; the message counts them and quotes the first.
        """
        beside = (
            (self._keys.slice(start, BLOCK_ROWS), self._values[start : start + BLOCK_ROWS])
            for start in range(0, len(self._keys), BLOCK_ROWS)
        )
        keys = keys_of(table, self._scratch)
        found, missing, first = look_up(keys, beside, self.classes, self._scratch)
        if missing:
            text = table["text"][first].as_py()
            raise InputError(
                f"{self.source}: {missing} of {len(table)} rows have no logits there, the first is {text!r}; add them to the file"
            )
        column = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), self.classes)
        return table.append_column(LOGITS, column)

    def _blocks(self) -> Iterator[np.ndarray]:
        width = 0
        rows = read_rows(self.source)
        while block := [(place, _numbers(row, place)) for place, row in islice(rows, BLOCK_ROWS)]:
            width = width or len(block[0][1])
            for place, values in block:
                if len(values) != width:
                    raise InputError(
                        f"{place}: {len(values)} logits, but the first row has {width}; expected one a label"
                    )
            yield np.array([values for _, values in block], np.float32)

    def _refuse_contradictions(self) -> None:
        """Refuse rows that differ from the first one of their text."""
        pairs = []
        for numbers, mine, _ in in_parts(self._keys, (), self._scratch):
            firsts = numbers[KeyIndex(mine).find(mine)]
            other = (self._values[numbers] != self._values[firsts]).any(axis=1)
            pairs += [(int(numbers[row]), int(firsts[row])) for row in np.flatnonzero(other)[:1]]
        if pairs:
            place, earlier = (next(islice(read_rows(self.source), i, None))[0] for i in min(pairs))
            raise InputError(
                f"{place}: the text of {earlier} with other logits; keep one of the two"
            )


def file_labels(source: str) -> list[str]:
    """Return what the logits of a file mean by its own metadata, if it is a shard of a store; else [].

    Raises:
        InputError: The metadata is damaged.
    """
    if not source.endswith(".parquet"):
        return []
    place = f"{source}: {LABELS.decode()} in its metadata"
    meta = parquet_schema(source_files(source)[0]).metadata or {}
    with library_errors(place, "not UTF-8", "; give the names with --labels"):
        found = parse_json(meta.get(LABELS, b"[]").decode(), place)
    if not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise InputError(f"{place}: expected a list of names; give them with --labels")
    return found


def logits_in(table: pa.Table) -> np.ndarray:
    """Return the logits of N rows, (N, C) float32, that `LogitsFile.join` put beside them."""
    return table[LOGITS].combine_chunks().flatten().to_numpy().reshape(len(table), -1)


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

"""A file of labels that a person has looked at: `distillkit doctor --labels` writes it, data reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit.data.labels import unknown_label
from distillkit.data.readers import read_rows
from distillkit.errors import InputError

# What a person writes into the column `correction` to leave a row out; it is never a label.
REMOVE = "remove"
_NEEDED = ("split", "row", "text", "label", "correction")


@dataclass(frozen=True)
class Correction:
    """A row of the file.

    Attributes:
        place: FILE:LINE, for errors.
        split: train or dev: the source that has the row.
        row: Its number there, from 1; rows without a text or a label are not counted.
        fields: The row's columns.
        label: What the row's label is to be, `REMOVE`, or empty: it stays as it is.
    """

    place: str
    split: str
    row: int
    fields: dict[str, Any]
    label: str


def read_corrections(source: str) -> list[Correction]:
    """Read a file that `distillkit doctor --labels` wrote and a person has filled in.

    Raises:
        InputError: A column is missing, or a row names no row of train or dev, or one twice.
    """
    found: dict[tuple[str, int], Correction] = {}
    for place, fields in read_rows(source):
        lacking = [name for name in _NEEDED if name not in fields]
        if lacking:
            raise InputError(
                f"{place}: no column {lacking[0]!r}; expected the columns that distillkit doctor --labels writes: {', '.join(_NEEDED)}"
            )
        split, row = str(fields["split"]).strip(), str(fields["row"]).strip()
        if split not in ("train", "dev") or not row.isdecimal():
            raise InputError(
                f"{place}: split {split!r}, row {row!r}; expected train or dev, and a row's number"
            )
        one = Correction(place, split, int(row), fields, _shown(fields["correction"]))
        if (split, one.row) in found:
            raise InputError(
                f"{place}: row {row} of {split} stands at {found[split, one.row].place} already; drop one of the two"
            )
        found[split, one.row] = one
    return list(found.values())


def check_corrections(
    corrections: Sequence[Correction], tables: Mapping[str, pa.Table], names: Sequence[str]
) -> list[Correction]:
    """Check that a file's rows are rows of the data, and its corrections labels.

    A spreadsheet may change white space, and changes True to TRUE: texts are compared without
    regard to white space, and a name in capitals that is no label stands for the label.

    Args:
        corrections: Of one file.
        tables: Labelled sources as they were read, by split.
        names: The labels of train.

    Returns:
        The same, with both labels spelt as in `names`.

    Raises:
        InputError: A row is not there, has another text or label, or is given an unknown label.
    """
    if corrections and REMOVE in names:
        raise InputError(
            f"{corrections[0].place}: a label is called {REMOVE!r}, which in the column 'correction' leaves a row out; rename the label"
        )
    spelt = {**{name.upper(): name for name in names}, **{name: name for name in names}}
    found = [_spelt(one, spelt) for one in corrections]
    for one in found:
        table = tables.get(one.split)
        if table is None or not 1 <= one.row <= len(table):
            there = "no such data" if table is None else f"{len(table):,} rows"
            raise InputError(
                f"{one.place}: row {one.row} of {one.split}, which has {there}; write the file again: distillkit doctor RECIPE --labels FILE.csv"
            )
        own = table.slice(one.row - 1, 1).to_pylist()[0]
        for name in ("text", "text_pair", "label"):
            if _shown(one.fields.get(name)) != _shown(own.get(name)):
                raise InputError(
                    f"{one.place}: row {one.row} of {one.split}: {name} is {_cut(one.fields.get(name))}, expected {_cut(own.get(name))}, as the data have it; "
                    "the data have changed: write the file again (distillkit doctor RECIPE --labels FILE.csv), or put the row back"
                )
        if one.label not in ("", REMOVE, *names):
            error = unknown_label(f"{one.place}: column 'correction'", one.label, names)
            raise InputError(f"{error}; {REMOVE} leaves the row out")
    return found


def _spelt(one: Correction, names: Mapping[str, str]) -> Correction:
    before = _shown(one.fields.get("label"))
    fields = {**one.fields, "label": names.get(before, before)}
    return replace(one, fields=fields, label=names.get(one.label, one.label))


def corrected(table: pa.Table, split: str, corrections: Sequence[Correction]) -> pa.Table:
    """Return a split's table with its corrections, which `check_corrections` has checked."""
    labels, keep = table["label"].to_pylist(), np.ones(len(table), bool)
    for one in corrections:
        if one.split == split and one.label == REMOVE:
            keep[one.row - 1] = False
        elif one.split == split and one.label:
            labels[one.row - 1] = one.label
    place = table.column_names.index("label")
    column = pa.array(labels, table["label"].type)
    return table.set_column(place, "label", column).filter(pa.array(keep))


def count_corrections(corrections: Sequence[Correction]) -> dict[str, dict[str, int]]:
    """Count by split the rows whose label changes (`corrected`) and that are left out (`removed`)."""
    found: dict[str, dict[str, int]] = {}
    for one in corrections:
        counts = found.setdefault(one.split, {"corrected": 0, "removed": 0})
        if one.label == REMOVE:
            counts["removed"] += 1
        elif one.label not in ("", _shown(one.fields["label"])):
            counts["corrected"] += 1
    return found


def row_of(table: pa.Table, row: int) -> dict[str, str]:
    """Return the texts and the label of a row, from 0, as the file has them.

    White space is single, so that a row is a line. A text that a spreadsheet would compute begins
    with a blank.
    """
    own = {name: _shown(value) for name, value in table.slice(row, 1).to_pylist()[0].items()}
    return {
        name: f" {value}" if name != "label" and value.startswith(tuple("=+-@")) else value
        for name, value in own.items()
    }


def _shown(value: Any) -> str:
    return "" if value is None else " ".join(str(value).split())


def _cut(value: Any) -> str:
    return repr(_shown(value)[:60])

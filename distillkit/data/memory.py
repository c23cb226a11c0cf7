"""Rows in memory as a source: written to a file once, then read and checked as any other."""

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distillkit.data.files import whole_file
from distillkit.data.readers import named_rows
from distillkit.errors import InputError

if TYPE_CHECKING:
    import datasets
    import pandas as pd

    Rows: TypeAlias = (
        str
        | Path
        | pd.DataFrame
        | pd.Series[str]
        | datasets.Dataset
        | pa.Table
        | list[str]
        | tuple[Any, ...]
    )

_LISTS = {2: ("text", "label"), 3: ("text", "text_pair", "label")}


def source_of(rows: "Rows", name: str, folder: Path | None = None) -> str:
    """Return a source of rows; what is in memory is written to a Parquet file first.

    Args:
        rows: A source, which is returned as it is; a pandas DataFrame or Series, a
            `datasets.Dataset`, a pyarrow Table, a list of texts, or lists (texts, labels) or
            (texts, second texts, labels).
        name: What they are, for errors, and the file's name.
        folder: Where the file is written; None: a temporary folder of this process.

    Raises:
        InputError: They are something else, or no rows, or a column has values of several types.
    """
    if isinstance(rows, (str, Path)):
        return str(rows)
    table = _table(rows, name)
    if not len(table):
        raise InputError(f"{name}: no rows")
    target = (folder or Path(tempfile.mkdtemp(dir=_temporary().name))) / f"{name}.parquet"
    with whole_file(target) as partial:
        try:
            pq.write_table(table, partial, write_page_checksum=True)
        except pa.ArrowException as error:
            raise InputError(
                f"{name}: a column cannot be written, leave it out: {' '.join(str(error).split())}"
            ) from None
    return str(target)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="distillkit-")


def _of_frame(frame: Any, name: str) -> pa.Table:
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"{name}: the frame has the column {str(twice)!r} twice; rename one")
    frame = frame.copy(deep=False)
    for own, column in frame.items():  # Arrow takes lists of any length, but no empty array
        if column.dtype == object and any(isinstance(cell, np.ndarray) for cell in column):
            lists = [cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in column]
            frame[own] = type(column)(lists, frame.index, dtype=object)
    return pa.Table.from_pandas(frame, preserve_index=False)


def _table(rows: Any, name: str) -> pa.Table:
    """Turn rows in memory into a table with their own names of columns."""
    kind = f"{type(rows).__module__.partition('.')[0]}.{type(rows).__name__}"
    try:
        if isinstance(rows, pa.Table):
            return rows
        if kind == "pandas.DataFrame":
            return _of_frame(rows, name)
        if kind == "datasets.Dataset":
            # Of a format such as pandas rows are no mappings; a transform is the user's own wish.
            rows = rows if rows.format["type"] == "custom" else rows.with_format(None)
            named = list(named_rows(rows))
            return pa.table({name: [row[name] for row in named] for name in rows.column_names})
        if isinstance(rows, list) and rows and isinstance(rows[0], dict | tuple):
            raise InputError(
                f"{name}: a list of {type(rows[0]).__name__}s; expected a frame, as of pandas.DataFrame(rows), or lists (texts, labels)"
            )
        if kind == "pandas.Series" or isinstance(rows, list):
            return pa.table({"text": pa.array(list(rows), from_pandas=True)})
        if isinstance(rows, tuple) and len(rows) in _LISTS:
            # Iterated, an array or a tensor gives scalars of its own.
            lists = (c.tolist() if hasattr(c, "tolist") else list(c) for c in rows)
            columns = dict(zip(_LISTS[len(rows)], lists, strict=True))
            if len({len(column) for column in columns.values()}) > 1:
                sizes = ", ".join(f"{len(column):,} of {what}" for what, column in columns.items())
                raise InputError(
                    f"{name}: lists of unequal length ({sizes}); expected one of each for every row"
                )
            return pa.table(
                {name: pa.array(column, from_pandas=True) for name, column in columns.items()}
            )
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"{name}: values of several types in one column, expected one type: {' '.join(str(error).split())}"
        ) from None
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise InputError(
            f"{name}: a value that no column can hold, mend it or leave its column out: {' '.join(str(error).split())}"
        ) from None
    raise InputError(
        f"{name}: {kind.removeprefix('builtins.')}; expected a pandas DataFrame, a datasets.Dataset, lists (texts, labels), or a source such as a file"
    )

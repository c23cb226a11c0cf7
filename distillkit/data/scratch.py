"""What grows with the rows: in memory while it is small, else in files that are mapped into it.

The system takes mapped pages back where it needs memory. The files have no name, so nothing is left
of them, however the process ends.
"""

import math
import mmap
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAPPED_BYTES = 1 << 24  # what is larger is in a file


@dataclass(frozen=True)
class Scratch:
    """Makes tables and arrays, each in memory or in a file of its own.

    Attributes:
        folder: Where the files are, on a disk with room for the rows; made if absent. None: the
            system's folder for temporary files.
    """

    folder: Path | None = None

    def table(self, blocks: Iterable[pa.Table]) -> pa.Table:
        """Put blocks of one schema together; one at least."""
        held: list[pa.Table] = []
        size, file, writer = 0, None, None
        for block in blocks:
            held.append(block)
            size += block.nbytes
            if size > MAPPED_BYTES:
                if file is None:
                    file = self.open()
                    writer = pa.ipc.new_file(file, block.schema)
                _write_all(writer, held)
                size = 0
        if file is None:
            return pa.concat_tables(held)
        _write_all(writer, held)
        writer.close()
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        file.close()
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """Return an array of zeros."""
        if math.prod(shape) * np.dtype(dtype).itemsize <= MAPPED_BYTES:
            return np.zeros(shape, dtype)
        with self.open() as file:
            return np.memmap(file, dtype, "w+", shape=shape)

    def stacked(self, blocks: Iterable[np.ndarray]) -> np.ndarray:
        """Put arrays (n, ...) of one type together, one at least."""
        column: Column | None = None
        for block in blocks:
            column = column or self.column(block.dtype, block.shape[1:])
            column.append(block)
        assert column is not None
        return column.whole()

    def column(self, dtype: npt.DTypeLike, shape: tuple[int, ...] = ()) -> "Column":
        """Return an array to be filled from its start, of so many values of a shape each."""
        return Column(self, np.dtype(dtype), shape)

    def open(self) -> IO[bytes]:
        """Open a new file without a name."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self.folder)


# Where nobody says where files may be.
TEMPORARY = Scratch()


class Column:
    """An array that is filled from its start, and read when it is `whole`."""

    def __init__(self, scratch: Scratch, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._scratch, self._dtype, self._shape = scratch, dtype, shape
        self._held: list[np.ndarray] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def append(self, values: np.ndarray) -> None:
        """Add values, (n, ...), of the column's type and shape."""
        self._held.append(values.astype(self._dtype, copy=False))
        self._size += values.nbytes
        if self._size > MAPPED_BYTES:
            self._file = self._file or self._scratch.open()
            self._flush(self._file)

    def whole(self) -> np.ndarray:
        """Return all that was added, (N, ...); nothing may be added any more."""
        if self._file is None:
            return np.concatenate([np.empty((0, *self._shape), self._dtype), *self._held])
        with self._file as file:
            self._flush(file)
            file.flush()
            return np.memmap(file, self._dtype, "r+").reshape(-1, *self._shape)

    def _flush(self, file: IO[bytes]) -> None:
        for values in self._held:
            file.write(values.tobytes())
        self._held, self._size = [], 0


def _write_all(writer: pa.ipc.RecordBatchFileWriter, held: list[pa.Table]) -> None:
    for block in held:
        writer.write_table(block)
    held.clear()

"""What grows with the rows: in memory while it is small, else in files that are mapped into it.

The system takes mapped pages back where it needs memory. The files have no name, so nothing is left
of them, however the process ends.
"""

import math
import mmap
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distillkit.data.files import disk_errors
from distillkit.processes import return_memory

MAPPED_BYTES = 1 << 24  # what is larger is in a file
_ZEROS = 1 << 20  # bytes written together


@dataclass(frozen=True)
class Scratch:
    """Makes tables and arrays, each in memory or in a file of its own.

    Attributes:
        folder: Where the files are, on a disk with room for the rows; made if absent. None: the
            system's folder for temporary files.
    """

    folder: Path | None = None

    def table(self, blocks: Iterable[pa.Table]) -> pa.Table:
        """Put blocks of one schema together; one at least.

        Raises:
            InputError: The disk is full.
        """
        held: list[pa.Table] = []
        size = 0
        file: IO[bytes] | None = None
        with ExitStack() as stack:
            for block in blocks:
                held.append(block)
                size += block.nbytes
                if size <= MAPPED_BYTES:
                    continue
                if file is None:
                    file = stack.enter_context(self._open())
                    writer = stack.enter_context(pa.ipc.new_file(file, block.schema))
                with self._disk_errors():
                    for part in held:
                        writer.write_table(part)
                held, size = [], 0
            if file is None:
                return pa.concat_tables(held)
            with self._disk_errors():
                for part in held:
                    writer.write_table(part)
                writer.close()
                file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return_memory()  # reading 30 million rows has left 108 MB
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """Return an array of zeros.

        Raises:
            InputError: The disk is full.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size <= MAPPED_BYTES:
            return np.zeros(shape, dtype)
        with self._disk_errors(), self._open() as file:
            # Written, not left open: a full disk would end the process later, without a word.
            for start in range(0, size, _ZEROS):
                file.write(bytes(min(_ZEROS, size - start)))
            file.flush()
            return np.memmap(file, dtype, "r+", shape=shape)

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
        return Column(np.dtype(dtype), shape, self._open, self._disk_errors)

    def _open(self) -> IO[bytes]:
        """Open a new file without a name."""
        with self._disk_errors():
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryFile(dir=self.folder)

    def _disk_errors(self) -> AbstractContextManager[None]:
        return disk_errors(self.folder or Path(tempfile.gettempdir()))


# Where nobody says where files may be.
TEMPORARY = Scratch()


class Column:
    """An array that is filled from its start, and read when it is `whole`.

    Args:
        dtype: Of its numbers.
        shape: Of what stands in each row.
        open_: Opens the file that takes it where it is large.
        errors: In which the file is written.
    """

    def __init__(
        self,
        dtype: np.dtype,
        shape: tuple[int, ...],
        open_: Callable[[], IO[bytes]],
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._dtype, self._shape, self._open, self._errors = dtype, shape, open_, errors
        self._held: list[np.ndarray] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def append(self, values: np.ndarray) -> None:
        """Add values, (n, ...), of the column's type and shape.

        Raises:
            InputError: The disk is full.
        """
        self._held.append(values.astype(self._dtype, copy=False))
        self._size += values.nbytes
        if self._size > MAPPED_BYTES:
            self._file = self._file or self._open()
            self._flush(self._file)

    def whole(self) -> np.ndarray:
        """Return all that was added, (N, ...); nothing may be added any more.

        Raises:
            InputError: The disk is full.
        """
        if self._file is None:
            return np.concatenate([np.empty((0, *self._shape), self._dtype), *self._held])
        with self._file as file:
            self._flush(file)
            return np.memmap(file, self._dtype, "r+").reshape(-1, *self._shape)

    def _flush(self, file: IO[bytes]) -> None:
        with self._errors():
            for values in self._held:
                file.write(values.tobytes())
            file.flush()
        self._held, self._size = [], 0

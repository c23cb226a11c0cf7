"""Files that say when they were damaged: each has a checksum, which is compared when it is read.

Parquet has one of each page, `write_arrow` and `write_array` put one at the file's end, and `seal`
one of each file into a file of its own in the folder.
"""

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distillkit.data.files import SUMS, whole_file
from distillkit.errors import InputError, library_errors
from distillkit.processes import quiet_transformers

# What a folder's checksums cover. Other files are for a user to edit, as a model's config.json is.
_SEALED = ("*.safetensors", "*.npy", "tokenizer.json", "state.json")
_AGAIN = "run the same command again, which begins anew"
_SUM_BYTES = 4  # a CRC-32, as Parquet has for its pages


def readable(path: Path, mend: str) -> contextlib.AbstractContextManager[None]:
    """Turn whatever a library raises on a damaged file of ours into one line.

    Args:
        path: What is read.
        mend: What to do.
    """
    return library_errors(str(path), "cannot be read", f"; {mend}")


def read_json(path: Path, mend: str = "make it anew") -> Any:
    """Read a JSON file of ours.

    Raises:
        InputError: It is damaged or not there; the message ends with `mend`.
    """
    with readable(path, mend):
        return json.loads(path.read_text(encoding="utf-8"))


@contextlib.contextmanager
def arrow_writer(target: Path, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchFileWriter]:
    """Yield a writer of tables between two steps of a job, whole or absent, a checksum behind them."""
    with whole_file(target) as partial:
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            yield writer
        _append_sum(partial)


def write_arrow(table: pa.Table, target: Path) -> None:
    """Write a table between two steps of a job, as `arrow_writer` does."""
    with arrow_writer(target, table.schema) as writer:
        writer.write_table(table)


def read_arrow(path: Path) -> pa.Table:
    """Read what `write_arrow` wrote.

    Raises:
        InputError: The file is damaged.
    """
    with readable(path, _AGAIN), pa.OSFile(str(path), "rb") as source:
        content = source.read_buffer()
        end = content.size - _SUM_BYTES
        _compare(zlib.crc32(content[:end]), bytes(content[end:]))
        return pa.ipc.open_file(content[:end]).read_all()


def open_arrow(path: Path) -> pa.ipc.RecordBatchFileReader:
    """Map what `arrow_writer` wrote into memory, so that each batch is read alone.

    Raises:
        InputError: The file is damaged.
    """
    with readable(path, _AGAIN):
        _compare_all(path)
        content = pa.memory_map(str(path)).read_buffer()
        return pa.ipc.open_file(content[: content.size - _SUM_BYTES])


def as_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table of less than 2 GiB a column as one batch.

    Raises:
        InputError: It has more.
    """
    first, *more = as_batches(table)
    if more:
        raise InputError(
            f"{len(table):,} rows have more than 2 GiB of text; cut the longest texts into parts"
        )
    return first


def as_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """Return a table as one batch, also a table without rows; more where a column has over 2 GiB."""
    batches = table.combine_chunks().to_batches()
    return batches or [pa.RecordBatch.from_pylist([], table.schema)]


def write_array(array: np.ndarray, target: Path) -> None:
    """Write an array between two steps of a job, as `write_arrow` does a table."""
    with whole_file(target) as partial:
        with partial.open("wb") as sink:
            save_array(array, sink)
        _append_sum(partial)


def save_array(array: np.ndarray, sink: IO[bytes]) -> None:
    """Write an array as numpy does; a full disk is an OSError that says so, which numpy's is not."""
    np.save(SimpleNamespace(write=sink.write), array, allow_pickle=False)


def read_array(path: Path) -> np.ndarray:
    """Map what `write_array` wrote into memory.

    Raises:
        InputError: The file is damaged.
    """
    with readable(path, _AGAIN):
        _compare_all(path)
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def _append_sum(path: Path) -> None:
    """Write a file's checksum behind it; Arrow and numpy read what stands before."""
    found = _sum(path)
    with path.open("ab") as sink:
        sink.write(found.to_bytes(_SUM_BYTES, "little"))


def _compare_all(path: Path) -> None:
    """Compare a file that is mapped into memory with the checksum behind it."""
    with path.open("rb") as source:
        source.seek(-_SUM_BYTES, os.SEEK_END)
        _compare(_sum(path, _SUM_BYTES), source.read())


def _compare(found: int, written: bytes) -> None:
    if found.to_bytes(_SUM_BYTES, "little") != written:
        raise ValueError("its content does not fit its checksum")


def _sum(path: Path, behind: int = 0) -> int:
    """Return the CRC-32 of a file without its last bytes."""
    stat = path.stat()
    return _sum_of(path, stat.st_size - behind, stat.st_mtime_ns)


@lru_cache(maxsize=4096)  # several steps read parts of the same file
def _sum_of(path: Path, left: int, changed: int) -> int:
    found = 0
    with path.open("rb") as source:
        while block := source.read(min(left, 1 << 20)):
            found, left = zlib.crc32(block, found), left - len(block)
    return found


def seal(folder: Path) -> None:
    """Write the checksums of a folder's weights, arrays and tokenizer beside them."""
    files = (file for name in _SEALED for file in sorted(folder.glob(name)))
    sums = {file.name: _sum(file) for file in files}
    (folder / SUMS).write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")


def check_sealed(folder: Path, mend: str = "") -> None:
    """Compare a folder's files with what `seal` wrote; a folder without that is not checked.

    Raises:
        InputError: A file is absent, or has changed since.
    """
    sums = folder / SUMS
    if not sums.is_file():
        return
    mend = mend or f"make it anew; if it was changed on purpose, delete {sums}"
    with readable(sums, mend):
        for name, written in json.loads(sums.read_text(encoding="utf-8")).items():
            with readable(folder / name, mend):
                _compare(_sum(folder / name), written.to_bytes(_SUM_BYTES, "little"))


def open_parquet(path: Path | str) -> pq.ParquetFile:
    """Open a Parquet file whose pages are compared with their checksums, where they have any."""
    return pq.ParquetFile(path, page_checksum_verification=True)


def read_parquet(path: Path | str, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file of ours.

    Raises:
        InputError: It is damaged.
    """
    with readable(Path(path), "make it anew"):
        return open_parquet(path).read(columns)


def fingerprint(*paths: Path) -> str:
    """Return a SHA-256 over files, and over those below folders, sorted, without hidden ones."""
    digest = hashlib.sha256()
    for path in paths:
        inside = (
            sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
            if path.is_dir()
            else [path]
        )
        for file in inside:
            digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def fingerprint_or_name(name: str) -> str:
    """Return a file's or folder's fingerprint; what is not on this machine is known by its name."""
    return fingerprint(Path(name)) if name and Path(name).exists() else name


def save_pretrained(folder: Path, *parts: Any) -> None:
    """Save a model and its tokenizer as transformers does, and seal the folder."""
    with quiet_transformers():
        for part in parts:
            part.save_pretrained(folder)
    seal(folder)

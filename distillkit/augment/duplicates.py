"""Find which of many rows come first, by their hashes, in as little memory as one likes.

Every unit of work leaves its rows' hashes in a file, sorted. One partition of the hash values is
then read at a time, across all files: equal rows have equal hashes, so they meet there.
"""

from pathlib import Path

import numpy as np

from distillkit.data.checked import read_array, write_array
from distillkit.data.content import HASH

_KEY = np.dtype([*HASH.descr, ("rank", "u8"), ("label", "u4")])
BYTES_A_ROW = 4 * _KEY.itemsize  # in memory, while a partition is looked at
# A rank is a class (an original comes before anything else), a unit, and a place in the unit.
_CLASS, _UNIT, _PLACE = np.uint64(60), np.uint64(28), np.uint64(2**28 - 1)
_CLASSLESS = np.uint64(2**60 - 1)


def write_hashes(
    path: Path, hashes: np.ndarray, classes: np.ndarray, unit: int, labels: np.ndarray
) -> None:
    """Keep the hashes of a unit's rows.

    Args:
        path: File to write.
        hashes: (M,) of tables.HASH, in the order of the rows.
        classes: (M,) integers; the lowest comes first, whatever the unit.
        unit: Number of the unit; among rows of a class the lowest unit comes first, then the first
            row.
        labels: (M,) uint32, a number for each label, 0 for none.
    """
    keys = np.empty(len(hashes), _KEY)
    keys["high"], keys["low"], keys["label"] = hashes["high"], hashes["low"], labels
    keys["rank"] = (
        (classes.astype(np.uint64) << _CLASS)
        | np.uint64(unit << int(_UNIT))
        | np.arange(len(hashes), dtype=np.uint64)
    )
    write_array(keys[np.argsort(keys["high"])], path)


def keep_first(paths: list[Path], partition: int, partitions: int, target: Path) -> None:
    """Find, in one partition of all hashes, the row that comes first of each set of equals.

    Args:
        paths: What `write_hashes` wrote, all units.
        partition: Which, 0 to partitions - 1.
        partitions: Of how many.
        target: File to write, for `kept`.
    """
    low, high = (2**64 * i // partitions for i in (partition, partition + 1))
    parts = []
    for path in paths:
        keys = read_array(path)
        a, b = (len(keys) if bound >= 2**64 else _place(keys, bound) for bound in (low, high))
        parts.append(np.array(keys[a:b]))
    keys = np.concatenate(parts) if parts else np.empty(0, _KEY)
    keys = keys[np.argsort(keys["high"])]
    new = _is_new(keys)
    if (new & (keys["high"] == np.roll(keys["high"], 1)))[1:].any():  # as good as never
        keys = keys[np.lexsort((keys["low"], keys["high"]))]
        new = _is_new(keys)
    starts = np.flatnonzero(new)
    first = np.minimum.reduceat(keys["rank"], starts)
    # Only originals have labels; two different ones on one text cancel out.
    most = np.maximum.reduceat(keys["label"], starts)
    known = np.where(keys["label"] > 0, keys["label"], np.uint32(2**32 - 1))
    least = np.minimum.reduceat(known, starts)
    out = np.empty(len(first), [("place", "u8"), ("conflicting", "?")])
    out["place"], out["conflicting"] = first & _CLASSLESS, (most > 0) & (least < most)
    write_array(out[np.argsort(out["place"])], target)


def kept(paths: list[Path], unit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows of a unit come first.

    Args:
        paths: What `keep_first` wrote, all partitions.
        unit: Number of the unit.

    Returns:
        Numbers of its rows, (K,) int64, rising; and which of them stood in the sources with two
        labels, (K,) bool.
    """
    parts = []
    for path in paths:
        rows = read_array(path)
        a, b = (
            int(np.searchsorted(rows["place"], np.uint64(n << int(_UNIT))))
            for n in (unit, unit + 1)
        )
        parts.append(np.array(rows[a:b]))
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows["place"])]
    return (rows["place"] & _PLACE).astype(np.int64), rows["conflicting"]


def _is_new(keys: np.ndarray) -> np.ndarray:
    """Say which rows, sorted, have another hash than the row before, (M,) bool."""
    new = (keys["high"] != np.roll(keys["high"], 1)) | (keys["low"] != np.roll(keys["low"], 1))
    new[:1] = True
    return new


def _place(keys: np.ndarray, bound: int) -> int:
    return int(np.searchsorted(keys["high"], np.uint64(bound)))

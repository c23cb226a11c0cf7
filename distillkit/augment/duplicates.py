"""Find the first of each set of equal rows by their hashes, in bounded memory.

Every unit of work leaves its rows' hashes in a file, sorted. One partition of the hash values is
then read at a time, across all files: equal rows have equal hashes, so they meet there.

A file is an array whose rows are its columns. A search in one of these reads a few of its pages; a
search in a field of a structured array copies all of the field.
"""

from pathlib import Path

import numpy as np

from distillkit.data.checked import read_array, write_array
from distillkit.data.keys import in_order

_COLUMNS = 4  # the hash's high and low half, the rank, the label
BYTES_A_ROW = 4 * 8 * _COLUMNS  # in memory, while a partition is looked at
# A rank is a class (an original comes before anything else), a unit, and a place in the unit.
_CLASS, _UNIT, _PLACE = np.uint64(60), np.uint64(28), np.uint64(2**28 - 1)
_CLASSLESS = np.uint64(2**60 - 1)


def write_hashes(
    path: Path, hashes: np.ndarray, classes: np.ndarray, unit: int, labels: np.ndarray
) -> None:
    """Keep the hashes of a unit's rows.

    Args:
        path: File to write.
        hashes: (M,) of content.HASH, in the order of the rows.
        classes: (M,) integers below 8; the lowest comes first, whatever the unit.
        unit: Number of the unit; among rows of a class the lowest unit comes first, then the first
            row.
        labels: (M,) uint32, a number for each label, 0 for none.
    """
    ranks = (
        # Of equals of a class one with a label comes first.
        ((2 * classes.astype(np.uint64) + (labels == 0)) << _CLASS)
        | np.uint64(unit << int(_UNIT))
        | np.arange(len(hashes), dtype=np.uint64)
    )
    order = np.argsort(hashes["high"])
    columns = (hashes["high"], hashes["low"], ranks, labels)
    keys = np.empty((_COLUMNS, len(hashes)), np.uint64)
    for row, column in zip(keys, columns, strict=True):
        row[:] = column[order]
    write_array(keys, path)


def keep_first(paths: list[Path], partition: int, partitions: int, target: Path) -> None:
    """Find, in one partition of all hashes, the row that comes first of each set of equals.

    Args:
        paths: What `write_hashes` wrote, all units.
        partition: Which, 0 to partitions - 1.
        partitions: Of how many.
        target: File to write, for `kept`.
    """
    bounds = [2**64 * i // partitions for i in (partition, partition + 1)]
    parts = [np.empty((_COLUMNS, 0), np.uint64)]
    for path in paths:
        keys = read_array(path)
        a, b = (_place(keys[0], bound) for bound in bounds)
        parts.append(np.array(keys[:, a:b]))
    high, low, ranks, labels = np.concatenate(parts, axis=1)
    del parts
    order, new = in_order(high, low)
    starts, labels = np.flatnonzero(new), labels[order]
    first = np.minimum.reduceat(ranks[order], starts) & _CLASSLESS
    # Only originals have labels; two different ones on one text cancel out.
    most = np.maximum.reduceat(labels, starts)
    least = np.minimum.reduceat(np.where(labels > 0, labels, np.uint64(2**64 - 1)), starts)
    conflicting = (most > 0) & (least < most)
    write_array(np.sort(first << np.uint64(1) | conflicting), target)


def kept(paths: list[Path], unit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows of a unit come first.

    Args:
        paths: What `keep_first` wrote, all partitions.
        unit: Number of the unit.

    Returns:
        Numbers of its rows, (K,) int64, rising; and which of them stood in the sources with two
        labels, (K,) bool.
    """
    parts = [np.empty(0, np.uint64)]
    for path in paths:
        found = read_array(path)
        a, b = (_place(found, n << int(_UNIT) + 1) for n in (unit, unit + 1))
        parts.append(np.array(found[a:b]))
    rows = np.sort(np.concatenate(parts))
    places = (rows >> np.uint64(1)) & _PLACE
    return places.astype(np.int64), (rows & np.uint64(1)).astype(bool)


def _place(values: np.ndarray, bound: int) -> int:
    """Return where values, rising, reach a bound."""
    return len(values) if bound >= 2**64 else int(np.searchsorted(values, np.uint64(bound)))

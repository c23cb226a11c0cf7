"""Where content keys stand among many others, however many those are.

Arrow's own look-ups (`unique`, `is_in`, `index_in`) end at 2 GiB of keys, which is 134 million.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from distillkit.data.content import KEY_BYTES
from distillkit.data.scratch import Column, Scratch
from distillkit.processes import return_memory

_BLOCK = 2**20  # keys looked up together
_KEY = np.dtype(f"V{KEY_BYTES}")
PART_KEYS = 2**20  # keys indexed together
_CUT_KEYS = 2**17  # keys cut into parts together

# Keys, and what stands beside each.
Keyed = tuple[pa.Array, np.ndarray]


class KeyIndex:
    """Distinct keys, sorted: 24 bytes each, and about as much again while it is made.

    Args:
        keys: N content keys, fixed_size_binary[16], in any order.

    Attributes:
        first: Place in `keys` of the first of each distinct key, (D,) int64, in the order of the
            index.
    """

    def __init__(self, keys: pa.Array) -> None:
        high, low = _halves(keys)
        order, new = in_order(high, low)
        starts = np.flatnonzero(new)
        self.first = np.minimum.reduceat(order, starts) if len(starts) else order
        del order, new, starts
        self._high, self._low = high[self.first], low[self.first]

    def __len__(self) -> int:
        return len(self.first)

    def slots(self, keys: pa.Array) -> np.ndarray:
        """Return each key's number in the index, (M,) int64; -1: it is not there."""
        out = np.full(len(keys), -1)
        for start in range(0, len(keys) if len(self) else 0, _BLOCK):
            high, low = _halves(keys.slice(start, _BLOCK))
            # In their order the searches touch memory in its order, which is several times faster.
            order = np.argsort(high)
            high, low = high[order], low[order]
            slot = np.searchsorted(self._high, high)
            while True:  # a second round for halves that are equal in two keys: as good as never
                at = np.minimum(slot, len(self) - 1)
                alike = (slot < len(self)) & (self._high[at] == high)
                there = alike & (self._low[at] == low)
                if not (alike & ~there).any():
                    break
                slot += alike & ~there
            out[start + order[there]] = slot[there]
        return out

    def find(self, keys: pa.Array) -> np.ndarray:
        """Return the place of each key's first equal, (M,) int64; -1: there is none."""
        slots = self.slots(keys)
        return np.where(slots < 0, -1, self.first[slots]) if len(self) else slots

    def has(self, keys: pa.Array) -> np.ndarray:
        """Say which keys are in the index, (M,) bool."""
        return self.slots(keys) >= 0


class KeyColumn:
    """Keys that come in blocks, kept where a `Scratch` has them."""

    def __init__(self, scratch: Scratch) -> None:
        self._column = scratch.column(_KEY)

    def append(self, keys: pa.Array) -> None:
        """Add content keys, fixed_size_binary[16]."""
        self._column.append(_raw(keys))

    def whole(self) -> pa.Array:
        """Return all keys, fixed_size_binary[16]."""
        return _keys_of_raw(self._column.whole())


def in_parts(
    keys: pa.Array, others: Iterable[Keyed], scratch: Scratch
) -> Iterator[tuple[np.ndarray, pa.Array, Iterator[Keyed]]]:
    """Bring keys together with others like them, in parts of which an index fits in memory.

    Args:
        keys: N content keys, fixed_size_binary[16].
        others: Blocks of keys with what stands beside each, (n, ...) of one type.
        scratch: Where keys and others are kept once cut into parts, 16 bytes each and what stands
            beside them.

    Yields:
        Numbers of a part's keys, rising, (M,) int64; these keys, (M,); and blocks of those others
        that may equal one of them, in their order.
    """
    bits = max(0, (len(keys) - 1) // PART_KEYS).bit_length()
    if not bits:
        yield np.arange(len(keys)), keys, iter(others)
        return
    blocks = (keys.slice(start, _CUT_KEYS) for start in range(0, len(keys), _CUT_KEYS))
    numbered = (
        (block, np.arange(i * _CUT_KEYS, i * _CUT_KEYS + len(block)))
        for i, block in enumerate(blocks)
    )
    mine = _Parts(numbered, bits, scratch)
    theirs = _Parts(others, bits, scratch)
    for part in range(2**bits):
        return_memory()  # of 30 million keys, the parts before have left 250 MB
        found = list(mine.of(part))
        rows = np.concatenate([np.empty(0, np.int64), *(rows for _, rows in found)])
        joined = pa.concat_arrays([keys.slice(0, 0), *(some for some, _ in found)])
        del found
        yield rows, joined, theirs.of(part)


def look_up(
    keys: pa.Array, others: Iterable[Keyed], width: int, scratch: Scratch
) -> tuple[np.ndarray, int, int]:
    """Find what stands beside each key's equal among others; of several the first counts.

    Args:
        keys: N content keys, fixed_size_binary[16].
        others: Blocks of keys with numbers beside each, (n, C).
        width: C.
        scratch: Where the numbers are kept.

    Returns:
        The numbers, (N, C) float32; how many keys have no equal; and the place of the first of
        those.
    """
    out = scratch.array((len(keys), width), np.float32)
    missing, first = 0, len(keys)
    for numbers, mine, theirs in in_parts(keys, others, scratch):
        index = KeyIndex(mine)
        values = np.empty((len(index), width), np.float32)
        there = np.zeros(len(index), bool)
        for block, beside in theirs:
            found = index.slots(block)
            wanted = found >= 0
            wanted[wanted] = ~there[found[wanted]]
            rows = np.flatnonzero(wanted)[::-1]  # numpy keeps the last of those it is given
            values[found[rows]] = beside[rows]
            there[found[rows]] = True
        slots = index.slots(mine)
        out[numbers] = values[slots]
        lacking = numbers[~there[slots]]
        missing, first = missing + len(lacking), min([first, *lacking[:1]])
    return out, missing, int(first)


def count_distinct(keys: pa.Array, scratch: Scratch) -> int:
    """Count the different keys."""
    return sum(len(KeyIndex(mine)) for _, mine, _ in in_parts(keys, (), scratch))


class _Parts:
    """Blocks of keys sorted by their first bits, one after the other in a column."""

    def __init__(self, blocks: Iterable[Keyed], bits: int, scratch: Scratch) -> None:
        self._cuts: list[np.ndarray] = []
        column: Column | None = None
        begin = 0
        for keys, values in blocks:
            record = np.dtype([("key", _KEY), ("value", values.dtype, values.shape[1:])])
            column = column or scratch.column(record)
            part = (_halves(keys)[0] >> np.uint64(64 - bits)).astype(np.int64)
            order = np.argsort(part, kind="stable")
            records = np.empty(len(keys), record)
            records["key"], records["value"] = _raw(keys)[order], values[order]
            column.append(records)
            self._cuts.append(begin + np.searchsorted(part[order], np.arange(2**bits + 1)))
            begin += len(keys)
        self._records = None if column is None else column.whole()

    def of(self, part: int) -> Iterator[Keyed]:
        for cuts in self._cuts:
            assert self._records is not None
            records = self._records[cuts[part] : cuts[part + 1]]
            yield _keys_of_raw(np.ascontiguousarray(records["key"])), records["value"]


def _raw(keys: pa.Array) -> np.ndarray:
    """Return the keys' bytes, (N,) of 16 bytes each."""
    return np.frombuffer(keys.buffers()[1] or b"", _KEY)[keys.offset : keys.offset + len(keys)]


def _keys_of_raw(raw: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(raw.view(np.uint8) if len(raw) else b"")]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), len(raw), buffers)


def first_places(keys: pa.Array) -> np.ndarray:
    """Return the places of keys that no earlier one equals, rising, (D,) int64."""
    return np.sort(KeyIndex(keys).first)


def _halves(keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return two numbers a key, which are as good as random: keys are hashes."""
    numbers = np.frombuffer(keys.buffers()[1] or b"", np.uint64)
    mine = numbers[2 * keys.offset : 2 * (keys.offset + len(keys))]
    return mine[::2], mine[1::2]


def in_order(high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort keys of two numbers each, which are as good as random.

    Returns:
        Their places, sorted, (N,) int64; and which of them differ from the one before, (N,) bool.
    """
    order = np.argsort(high)
    new = _is_new(high[order], low[order])
    if (new[1:] & (np.diff(high[order]) == 0)).any():  # as good as never
        order = np.lexsort((low, high))
        new = _is_new(high[order], low[order])
    return order, new


def _is_new(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Say which keys, sorted, differ from the one before, (N,) bool."""
    new = np.ones(len(high), bool)
    new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return new

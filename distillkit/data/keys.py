"""Where content keys stand among many others, however many those are.

Arrow's own look-ups (`unique`, `is_in`, `index_in`) end at 2 GiB of keys, which is 134 million.
"""

import numpy as np
import pyarrow as pa

_BLOCK = 2**20  # keys looked up together


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
        order = np.argsort(high)
        new = _is_new(high[order], low[order])
        if (new[1:] & (np.diff(high[order]) == 0)).any():  # as good as never
            order = np.lexsort((low, high))
            new = _is_new(high[order], low[order])
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


def first_places(keys: pa.Array) -> np.ndarray:
    """Return the places of keys that no earlier one equals, rising, (D,) int64."""
    return np.sort(KeyIndex(keys).first)


def _halves(keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return two numbers a key, which are as good as random: keys are hashes."""
    numbers = np.frombuffer(keys.buffers()[1] or b"", np.uint64)
    mine = numbers[2 * keys.offset : 2 * (keys.offset + len(keys))]
    return mine[::2], mine[1::2]


def _is_new(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Say which keys, sorted, differ from the one before, (N,) bool."""
    new = np.ones(len(high), bool)
    new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return new

"""Random numbers that depend on the place of their use alone: SplitMix64 as a counter.

There is no state, so order, block size and number of workers change nothing.

The n-th output of SplitMix64 is a bijective mix of seed + n * gamma. Nesting that function over the
coordinates (seed, kind, row, iteration, ...) gives every variant a key, and every word of it a
number, that anybody can compute alone.

Source: Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators, figures 16 and
17; counter-based generation as in Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15
_WRAP = 2**64
GOLDEN = _GAMMA - _WRAP  # of tensors, which have no unsigned 64-bit arithmetic
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # shift and factor


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, in place, (...) uint64."""
    for shift, factor in _ROUNDS:
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x


def mix_tensor(value: "Tensor") -> "Tensor":
    """SplitMix64's finaliser of a tensor on any device, (...) int64 with the bits of a uint64."""
    for shift, factor in _ROUNDS:
        # The mask makes torch's signed shift an unsigned one.
        value = (value ^ ((value >> shift) & (2 ** (64 - shift) - 1))) * (factor - _WRAP)
    return value ^ ((value >> 31) & (2**33 - 1))


def seed_key(seed: int, *coordinates: int) -> int:
    """Return the 64-bit key of a seed and fixed coordinates, such as the kind of text."""
    key = np.array([int(seed) % _WRAP], dtype=np.uint64)
    for coordinate in (0, *coordinates):
        key = draw(key, np.array([coordinate]))
    return int(key[0])


def draw(keys: np.ndarray | int, numbers: np.ndarray) -> np.ndarray:
    """Return the `numbers`-th value of each key's sequence.

    Args:
        keys: (...) uint64, or one key.
        numbers: (...) integers, 0 or more.

    Returns:
        (...) uint64, uniform; a new array.
    """
    steps = numbers.astype(np.uint64)
    steps += np.uint64(1)
    steps *= np.uint64(_GAMMA)
    steps = steps + (np.uint64(keys) if isinstance(keys, int) else keys)
    return _mix(steps)


def high(u: np.ndarray) -> np.ndarray:
    """Return the upper 32 bits as uint32."""
    return (u >> np.uint64(32)).astype(np.uint32)


def below(u: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
    """Turn the lower 32 bits into integers, uniform over 0 to `bound` - 1, (...) int64."""
    return (
        (u & np.uint64(0xFFFFFFFF)) * np.asarray(bound).astype(np.uint64) >> np.uint64(32)
    ).astype(np.int64)


def threshold(p: float) -> int:
    """Return t such that a uniform uint32 is below t with probability p.

    Compare as uint64: for p = 1 it is 2 ** 32.
    """
    return round(p * 2**32)

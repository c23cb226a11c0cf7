"""Random numbers that are a function of where they are used: no state, so no order, block size or number of workers can change them.

The n-th output of SplitMix64 is a bijective mix of seed + n * gamma. Nesting that function over the
coordinates (seed, kind, row, iteration, ...) gives every variant a key, and every word of it a
number, that anybody can compute alone.

Source: Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators, figures 16 and
17; counter-based generation as in Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
"""

import numpy as np

_GAMMA = 0x9E3779B97F4A7C15
_WRAP = 2**64


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, in place, (...) uint64."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def seed_key(seed: int, *coordinates: int) -> int:
    """Return the 64-bit key of a seed and fixed coordinates, say which kind of text and which side of a pair."""
    key = np.array([seed % _WRAP], dtype=np.uint64)
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
    """Return t such that a uniform uint32 is below t with probability p; compare as uint64, for p = 1 is 2 ** 32."""
    return round(p * 2**32)

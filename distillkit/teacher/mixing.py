"""Whole numbers mixed beyond recognition, on any device: keys of words, and draws that depend on a row alone.

Source: Steele et al. 2014, "Fast splittable pseudorandom number generators" (SplitMix64).
"""

from torch import Tensor

# Signed, since torch has no unsigned shift.
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


def mix(value: Tensor) -> Tensor:
    """Return a number for each number, (...) int64: another for another, and every bit of it depends on every bit."""
    for shift, factor in _FACTORS:
        value = (value ^ ((value >> shift) & (2 ** (64 - shift) - 1))) * factor
    return value ^ ((value >> 31) & (2**33 - 1))

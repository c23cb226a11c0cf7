"""Random numbers by place: against SplitMix64 in plain Python, and as even and independent as they must be."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chisquare

from distillkit.data.counter import GOLDEN, below, draw, high, mix_tensor, seed_key, threshold

FAIR = 1e-4
WRAP = 2**64
LAST = WRAP - 1


def splitmix64(seed, n):
    """The n-th number of a seed's sequence, from 0, in Python's integers."""
    z = (seed + (n + 1) * 0x9E3779B97F4A7C15) % WRAP
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WRAP
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WRAP
    return z ^ z >> 31


def test_numbers_are_those_published_for_splitmix64():
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert draw(1234567, np.arange(4)).tolist() == published
    assert draw(0, np.array([0])).tolist() == [0xE220A8397B1DCDAF]


@pytest.mark.parametrize("key", [0, 1, 2**63, LAST, LAST - 0x9E3779B97F4A7C15])
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64])
def test_draw_is_splitmix64_at_any_key_and_number(key, kind):
    numbers = np.array([0, 1, 2, 19, 2**31 - 1], dtype=kind)
    expected = [splitmix64(key, int(n)) for n in numbers]
    assert draw(key, numbers).tolist() == expected
    assert draw(np.full(5, key, np.uint64), numbers).tolist() == expected


def test_draw_pairs_keys_with_numbers_and_changes_neither():
    keys, numbers = np.array([5, 6, 7], np.uint64), np.array([2, 0, 1], np.uint64)
    assert draw(keys, numbers).tolist() == [splitmix64(5, 2), splitmix64(6, 0), splitmix64(7, 1)]
    assert (keys.tolist(), numbers.tolist()) == ([5, 6, 7], [2, 0, 1])


def test_tensors_are_mixed_as_arrays_are():
    numbers = np.array([0, 1, 2, 19, 2**31 - 1, 2**62], dtype=np.int64)
    for key in (0, 7, -1, 2**62):
        mixed = mix_tensor(key + (torch.from_numpy(numbers) + 1) * GOLDEN)
        assert mixed.numpy().view(np.uint64).tolist() == draw(key % WRAP, numbers).tolist()


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("coordinates", [(), (0,), (1,), (1, 0, 7)])
def test_seed_key_nests_the_numbers_over_the_coordinates(seed, coordinates):
    key = seed % WRAP
    for coordinate in (0, *coordinates):
        key = splitmix64(key, coordinate)
    assert seed_key(seed, *coordinates) == key


def test_seeds_and_coordinates_give_keys_of_their_own():
    keys = {seed_key(seed, kind) for seed in range(-500, 500) for kind in (0, 1)}
    assert len(keys) == 2000
    assert len({seed_key(1), seed_key(1, 0), seed_key(1, 0, 0), seed_key(0), seed_key(0, 1)}) == 5


def test_no_two_rows_and_iterations_share_a_key():
    rows, iterations = np.divmod(np.arange(400_000), 20)
    keys = [
        draw(draw(seed_key(seed, kind), rows), iterations)
        for seed, kind in [(1, 0), (1, 1), (2, 0)]
    ]
    assert len(np.unique(np.concatenate(keys))) == 1_200_000


@pytest.mark.parametrize("numbered", ["keys", "numbers", "nested"])
def test_every_bit_is_set_half_of_the_time(numbered):
    n = 40_000
    places = np.arange(n)
    u = {
        "keys": lambda: draw(places.astype(np.uint64), np.full(n, 2)),
        "numbers": lambda: draw(seed_key(7), places),
        "nested": lambda: draw(draw(seed_key(7), places // 20), places % 20),
    }[numbered]()
    for bit in range(64):
        ones = int((u >> np.uint64(bit) & np.uint64(1)).sum())
        assert binomtest(ones, n).pvalue > FAIR / 64


@pytest.mark.parametrize("half", [high, lambda u: below(u, 2**32)])
def test_both_halves_are_uniform(half):
    counts = np.bincount(
        half(draw(seed_key(3), np.arange(200_000))).astype(np.int64) >> 24, minlength=256
    )
    assert chisquare(counts).pvalue > FAIR


def test_the_halves_of_a_number_are_independent():
    u = draw(seed_key(4), np.arange(200_000))
    counts = np.bincount(
        (high(u) >> np.uint32(28)).astype(np.int64) * 16 + below(u, 16), minlength=256
    )
    assert chisquare(counts).pvalue > FAIR


def test_high_is_the_upper_half():
    u = high(np.array([0xFEDCBA9876543210, 0xFFFFFFFF, LAST], np.uint64))
    assert u.dtype == np.uint32
    assert u.tolist() == [0xFEDCBA98, 0, 2**32 - 1]


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 7, 1000, 2**31 - 1, 2**32])
def test_below_scales_the_lower_half_and_never_reaches_the_bound(bound):
    low = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint64)
    found = below(low | np.uint64(0xABCDEF01 << 32), bound)
    assert found.dtype == np.int64
    assert found.tolist() == [int(u) * bound >> 32 for u in low]
    assert found[0] == 0
    assert found[-1] == bound - 1


def test_below_takes_a_bound_for_each_number():
    u = draw(seed_key(1), np.arange(5000))
    bounds = np.arange(1, 5001)
    assert below(u, bounds).tolist() == [
        (int(x) & 0xFFFFFFFF) * int(b) >> 32 for x, b in zip(u, bounds, strict=True)
    ]


@pytest.mark.parametrize("bound", [2, 3, 5, 10, 60])
def test_below_is_uniform(bound):
    counts = np.bincount(below(draw(seed_key(11), np.arange(60_000)), bound), minlength=bound)
    assert len(counts) == bound
    assert chisquare(counts).pvalue > FAIR


@pytest.mark.parametrize(
    ("p", "t"), [(0.0, 0), (1.0, 2**32), (0.5, 2**31), (0.1, 429496730), (2**-32, 1)]
)
def test_threshold_is_the_share_of_2_to_the_32(p, t):
    assert threshold(p) == t


def test_threshold_of_one_lets_every_number_pass():
    assert (np.array([0, 2**32 - 1], np.uint32).astype(np.uint64) < threshold(1.0)).all()

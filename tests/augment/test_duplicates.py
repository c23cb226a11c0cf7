"""Which rows come first: as a plain Python dict says, whatever the partitions."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distillkit.augment.duplicates import keep_first, kept, write_hashes
from distillkit.data.content import HASH


def find(folder, units, partitions):
    """Kept (place, conflicting) of each unit; units are lists of (high, low, class, label)."""
    paths = [folder / f"hashes-{number}.npy" for number in range(len(units))]
    for number, (path, rows) in enumerate(zip(paths, units, strict=True)):
        hashes = np.array([row[:2] for row in rows], dtype=HASH)
        classes = np.array([row[2] for row in rows], np.int64)
        labels = np.array([row[3] for row in rows], np.uint32)
        write_hashes(path, hashes, classes, number, labels)
    targets = [folder / f"first-{partition}.npy" for partition in range(partitions)]
    for partition, target in enumerate(targets):
        keep_first(paths, partition, partitions, target)
    found = [kept(targets, number) for number in range(len(units))]
    return [list(zip(*map(np.ndarray.tolist, columns), strict=True)) for columns in found]


def reference(units):
    best, labels = {}, {}
    for number, rows in enumerate(units):
        for place, (high, low, kind, label) in enumerate(rows):
            key, rank = (high, low), (kind, not label, number, place)
            best[key] = min(best.get(key, rank), rank)
            labels.setdefault(key, set()).update({label} - {0})
    found = [[] for _ in units]
    for key, (_, _, number, place) in best.items():
        found[number].append((place, len(labels[key]) > 1))
    return [sorted(rows) for rows in found]


# Few values, so that equal ones are many; the ends of partitions and of all among them; halves that
# agree where the others do not.
ROW = st.tuples(
    st.sampled_from([0, 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]),
    st.sampled_from([0, 7, 2**64 - 1]),
    st.integers(0, 3),
    st.sampled_from([0, 0, 1, 5, 2**32 - 1]),
)


@pytest.mark.parametrize("partitions", [1, 2, 3, 16])
@settings(max_examples=60, deadline=None)
@given(units=st.lists(st.lists(ROW, max_size=12), min_size=1, max_size=4))
def test_rows_that_stay_are_those_of_a_plain_dict(partitions, units, tmp_path_factory):
    assert find(tmp_path_factory.mktemp("hashes"), units, partitions) == reference(units)


@pytest.mark.parametrize("partitions", [1, 5, 64])
def test_many_random_rows_in_many_units(partitions, tmp_path):
    rng = np.random.default_rng(1)
    pool = rng.integers(0, 2**64, (600, 2), dtype=np.uint64).tolist()
    units = [
        [(*pool[i], int(rng.integers(4)), int(rng.integers(3))) for i in rng.integers(0, 600, size)]
        for size in (300, 0, 700, 1)
    ]
    assert find(tmp_path, units, partitions) == reference(units)


def test_the_lowest_class_comes_first_then_a_label_then_the_lowest_unit_then_the_first_row(
    tmp_path,
):
    late_original = [(1, 1, 0, 4)]
    units = [[(1, 1, 3, 0), (2, 2, 1, 0)], [(3, 3, 3, 0), (2, 2, 1, 0), (3, 3, 3, 0)]]
    assert find(tmp_path, [*units, late_original], 2) == [[(1, False)], [(0, False)], [(0, False)]]


def test_equal_upper_halves_do_not_make_equal_rows(tmp_path):
    units = [[(5, low, 3, 0) for low in (9, 3, 9, 3, 1)], [(5, 3, 0, 0), (5, 4, 3, 0)]]
    assert find(tmp_path, units, 1) == [[(0, False), (4, False)], [(0, False), (1, False)]]


@pytest.mark.parametrize(
    ("labels", "conflicting"),
    [((4, 4), False), ((4, 5), True), ((0, 4, 0), False), ((4, 0, 5), True), ((0, 0), False)],
)
def test_a_text_with_two_labels_has_conflicting_ones(tmp_path, labels, conflicting):
    rows = [(8, 8, 0, label) for label in labels]
    first = next((place for place, label in enumerate(labels) if label), 0)
    whole = find(tmp_path, [[*rows, (8, 9, 0, 6)]], 1)
    assert whole == [[(first, conflicting), (len(rows), False)]]
    apart = find(tmp_path, [[row] for row in rows], 1)
    assert apart == [[(0, conflicting)] if place == first else [] for place in range(len(rows))]


def test_empty_units_and_no_units(tmp_path):
    assert find(tmp_path, [[], []], 3) == [[], []]
    keep_first([], 0, 1, tmp_path / "none.npy")
    places, conflicting = kept([tmp_path / "none.npy"], 0)
    assert len(places) == len(conflicting) == 0


def test_units_beyond_the_width_of_a_byte_keep_their_rows(tmp_path):
    units = [[] for _ in range(300)]
    units[255] = [(1, 1, 3, 0)]
    units[256] = [(1, 1, 3, 0), (2, 2, 3, 0)]
    units[299] = [(2, 2, 1, 0), (3, 3, 3, 0)]
    assert find(tmp_path, units, 2) == reference(units)


def peak_of(function, *given):
    """Most bytes at once of a second call: the first reads the whole file for its checksum."""
    function(*given)
    tracemalloc.start()
    function(*given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_small_partition_or_unit_is_found_without_reading_all_others(tmp_path):
    n, path, target = 200_000, tmp_path / "h.npy", tmp_path / "s.npy"
    hashes, none = np.zeros(n, HASH), np.zeros(n, np.uint32)
    hashes["high"] = np.random.default_rng(3).integers(0, 2**64, n, dtype=np.uint64)
    write_hashes(path, hashes, none.astype(np.int64), 0, none)
    assert peak_of(keep_first, [path], 7, 1000, target) < n  # a column has 8 n bytes
    keep_first([path], 0, 1, target)
    assert peak_of(kept, [target], 1) < n


def test_partitions_share_the_hashes_evenly(tmp_path):
    hashes, path, n = np.zeros(40_000, HASH), tmp_path / "h.npy", 40_000
    hashes["high"] = np.random.default_rng(2).integers(0, 2**64, n, dtype=np.uint64)
    write_hashes(path, hashes, np.zeros(n, np.int64), 0, np.zeros(n, np.uint32))
    sizes = []
    for partition in range(8):
        keep_first([path], partition, 8, tmp_path / "s.npy")
        sizes.append(len(kept([tmp_path / "s.npy"], 0)[0]))
    assert sum(sizes) == n
    assert max(sizes) < 5400

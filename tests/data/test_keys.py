"""Keys are found as a plain dict finds them, whatever their bits."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distillkit.data import keys as module
from distillkit.data import scratch
from distillkit.data.content import content_keys
from distillkit.data.keys import KeyIndex, count_distinct, first_places, in_parts
from distillkit.data.scratch import TEMPORARY

# Few halves, so that keys are equal, or in one half alone; the ends of the numbers among them.
HALF = st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\0" * 7 + b"\1", b"\1" + b"\0" * 7, b"\x80" * 8])
KEYS = st.lists(st.tuples(HALF, HALF).map(b"".join), max_size=30)


def array(keys):
    return pa.array(keys, pa.binary(16))


@settings(deadline=None)
@given(KEYS, KEYS, st.integers(0, 5))
def test_places_are_those_of_a_plain_dict(known, asked, cut):
    index, sliced = KeyIndex(array(known)), array([b"x" * 16] * cut + asked).slice(cut)
    places = {key: place for place, key in reversed(list(enumerate(known)))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", 7)
        assert index.find(sliced).tolist() == [places.get(key, -1) for key in asked]
        assert index.has(sliced).tolist() == [key in places for key in asked]
    assert len(index) == len(places)
    assert first_places(array(known)).tolist() == sorted(places.values())
    assert first_places(array(known).slice(1)).tolist() == sorted(
        known[1:].index(key) for key in set(known[1:])
    )


def test_an_index_holds_and_needs_few_bytes_a_key():
    n = 200_000
    drawn = np.random.default_rng(1).integers(0, 256, (n, 16), np.uint8)
    keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, pa.py_buffer(drawn)])
    tracemalloc.start()
    index = KeyIndex(keys)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 25 * n
    assert peak < 50 * n
    assert np.array_equal(index.find(keys), np.arange(n))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 40), max_size=60), st.lists(st.lists(st.integers(0, 40)), max_size=4)
)
def test_parts_have_all_keys_once_and_the_others_that_may_equal_them(known, others):
    def hashed(numbers):
        return array(content_keys([str(number) for number in numbers]))

    blocks = [(hashed(block), np.array(block, np.int64)) for block in others]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART_KEYS", 7)
        patch.setattr(module, "_CUT_KEYS", 5)
        patch.setattr(scratch, "MAPPED_BYTES", 100)
        parts = [
            (rows.tolist(), mine, [(k, v) for k, v in theirs])
            for rows, mine, theirs in in_parts(hashed(known), blocks, TEMPORARY)
        ]
        assert count_distinct(hashed(known), TEMPORARY) == len(set(known))
    assert len(parts) == 1 if len(known) <= 7 else len(parts) > 1
    assert sorted(row for rows, _, _ in parts for row in rows) == list(range(len(known)))
    found = []
    for rows, mine, theirs in parts:
        assert rows == sorted(rows)
        assert mine.to_pylist() == hashed([known[row] for row in rows]).to_pylist()
        for keys, values in theirs:
            assert keys.to_pylist() == hashed(values.tolist()).to_pylist()
            found += [
                (known[row], value) for row in rows for value in values if known[row] == value
            ]
    wanted = [(a, b) for a in known for block in others for b in block if a == b]
    assert sorted(found) == sorted(wanted)

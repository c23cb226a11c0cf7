"""Keys are found as a plain dict finds them, whatever their bits."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distillkit.data import keys as module
from distillkit.data.keys import KeyIndex, first_places

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

"""What is in files is what it would be in memory, and no file is left or seen."""

import numpy as np
import pyarrow as pa
import pytest

from distillkit.data import scratch as module
from distillkit.data.content import Texts
from distillkit.data.scratch import Scratch


@pytest.fixture(params=[0, 50, 10**6])
def place(request, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MAPPED_BYTES", request.param)
    return Scratch(tmp_path / "new")


def test_blocks_of_a_table_are_one_table_with_its_metadata(place):
    whole = pa.table({"text": [f"text {i}" for i in range(9)], "label": ["a", None, "b"] * 3})
    whole = whole.replace_schema_metadata({"mask": "[MASK]"})
    found = place.table(whole.slice(start, 2) for start in range(0, 9, 2))
    assert found.equals(whole, check_metadata=True)
    assert list(Texts(found["text"], found["text"])) == 2 * whole["text"].to_pylist()
    assert Texts(found["text"])[3:5] == ["text 3", "text 4"]
    assert Texts(found["text"])[-1] == "text 8"


@pytest.mark.parametrize("count", [0, 1, 100])
def test_columns_and_arrays(place, count):
    parts = [np.arange(n * 2, dtype=np.float32).reshape(n, 2) for n in (count, 0, 3)]
    found = place.stacked(parts)
    assert found.tolist() == np.concatenate(parts).tolist()
    empty = place.array((count, 3), np.int64)
    assert (empty.shape, empty.dtype, empty.any()) == ((count, 3), np.int64, False)
    empty[:] = 7
    assert (empty == 7).all()
    assert place.column(np.int32).whole().tolist() == []


def test_no_file_has_a_name(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MAPPED_BYTES", 0)
    held = Scratch(tmp_path).array((1000,), np.int64), Scratch(tmp_path).column(np.int8)
    held[1].append(np.ones(10, np.int8))
    assert list(tmp_path.iterdir()) == []
    assert isinstance(held[1].whole(), np.memmap)

"""Rows that know their words: gathered with padding, further columns beside them, on any device."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from distillkit.data.rows import ELSEWHERE, FIRST, FOLLOWS, LATER, SPECIAL, SWAPPED, TextRows

PAD = 9


@pytest.fixture
def rows():
    """Rows of 3, 1 and 4 tokens."""
    return TextRows(
        ids=torch.tensor([2, 5, 3, 7, 2, 6, 8, 3], dtype=torch.int32),
        types=None,
        offsets=torch.tensor([0, 3, 4, 8]),
        pad_id=PAD,
        words=torch.tensor([0, 1, 0, 1, 0, 1, 2, 0], dtype=torch.int8),
    )


def test_a_batch_has_the_words_of_its_tokens_and_special_ones_for_padding(rows):
    batch = rows.batch(torch.tensor([2, 0]))
    assert batch["input_ids"].tolist() == [[2, 6, 8, 3], [2, 5, 3, PAD]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["words"].tolist() == [
        [SPECIAL, FIRST, LATER, SPECIAL],
        [SPECIAL, FIRST, SPECIAL, SPECIAL],
    ]
    assert batch["words"].dtype == torch.int64
    assert set(batch) == {"input_ids", "attention_mask", "words"}
    assert rows.batch(torch.tensor([1]), longest=3)["words"].tolist() == [[FIRST, SPECIAL, SPECIAL]]


def test_another_device_has_all_of_it(rows):
    more = replace(
        rows,
        types=rows.words,
        order=torch.tensor([FOLLOWS, SWAPPED, ELSEWHERE]),
    )
    moved = more.to(torch.device("meta"))
    assert isinstance(moved, TextRows)
    tensors = [moved.ids, moved.types, moved.offsets, moved.words, moved.order]
    assert [tensor.device.type for tensor in tensors] == ["meta"] * 5
    assert moved.pad_id == PAD
    assert rows.to(torch.device("cpu")).order is None


def test_rows_without_tokens_are_padding():
    empty = torch.empty(0, dtype=torch.int8)
    rows = TextRows(empty.int(), None, torch.zeros(3, dtype=torch.long), PAD, empty)
    batch = rows.batch(torch.tensor([0, 1]))
    assert batch["input_ids"].tolist() == [[PAD], [PAD]]
    assert batch["words"].tolist() == [[0], [0]]


def test_ids_may_be_a_file_in_memory(rows, tmp_path, recwarn):
    np.save(tmp_path / "ids.npy", rows.ids.numpy())
    mapped = replace(rows, ids=torch.from_numpy(np.load(tmp_path / "ids.npy", mmap_mode="c")))
    every = torch.arange(3)
    assert torch.equal(mapped.batch(every)["input_ids"], rows.batch(every)["input_ids"])
    assert not recwarn.list

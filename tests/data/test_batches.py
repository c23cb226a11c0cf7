"""Tokenised rows in batches: every row once, padding on the right, budgets kept."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from distillkit.data.batches import (
    Encoded,
    budget_batches,
    drawn_rows,
    encode,
    shuffled_batches,
    with_own_mask,
)

PAD, UNK, CLS, SEP, MASK = range(5)
A, B, C = 5, 6, 7


@pytest.fixture(scope="module")
def tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<mask>", "a", "b", "c"]
    built = BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}, mask_token="<mask>")
    # A tokenizer that lost its vocabulary says [UNK] to everything, and every test below would
    # compare nothing.
    assert built("a b c").input_ids == [CLS, A, B, C, SEP]
    return built


def rows_of(encoded):
    return [
        encoded.ids[i:j].tolist()
        for i, j in zip(encoded.offsets, encoded.offsets[1:], strict=False)
    ]


def encoded_rows(rows, types=False, pad=9):
    flat = torch.tensor([token for row in rows for token in row], dtype=torch.int32)
    offsets = torch.tensor([0, *map(len, rows)]).cumsum(0)
    return Encoded(flat, torch.ones_like(flat) if types else None, offsets, pad)


def test_rows_are_tokenised_with_special_tokens_and_without_padding(tokenizer):
    encoded = encode(tokenizer, ["a", "a b c", ""], None, 16)
    assert rows_of(encoded) == [[CLS, A, SEP], [CLS, A, B, C, SEP], [CLS, SEP]]
    assert (len(encoded), encoded.lengths.tolist(), encoded.pad_id) == (3, [3, 5, 2], PAD)


def test_second_text_has_token_type_one(tokenizer):
    encoded = encode(tokenizer, ["a b"], ["c"], 16)
    assert rows_of(encoded) == [[CLS, A, B, SEP, C, SEP]]
    assert encoded.types.tolist() == [0, 0, 0, 0, 1, 1]


def test_longer_rows_are_truncated(tokenizer):
    assert rows_of(encode(tokenizer, ["a b c a b c"], None, 4)) == [[CLS, A, B, SEP]]


def test_longer_side_of_a_pair_is_truncated_first(tokenizer):
    assert rows_of(encode(tokenizer, ["a a a a a"], ["b"], 6)) == [[CLS, A, A, SEP, B, SEP]]


def test_every_row_is_kept_when_there_are_more_than_a_chunk(tokenizer):
    encoded = encode(tokenizer, ["a", "b b", "c c c"] * 3001, None, 16)
    assert len(encoded) == 9003
    assert encoded.batch(torch.tensor([9002]))["input_ids"].tolist() == [[CLS, C, C, C, SEP]]


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>", "b"])
def test_mask_word_becomes_the_tokenizers_own_on_both_sides(tokenizer, mask):
    encoded = encode(tokenizer, [f"a {mask} c"], [mask], 16, mask=mask)
    assert rows_of(encoded) == [[CLS, A, MASK, C, SEP, MASK, SEP]]


def test_mask_word_is_text_where_none_is_given(tokenizer):
    assert rows_of(encode(tokenizer, ["a b"], None, 16, mask="")) == [[CLS, A, B, SEP]]


def test_mask_is_the_unknown_word_where_a_tokenizer_has_none():
    bare = BertTokenizerFast(
        vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4}, mask_token=None
    )
    assert bare("a").input_ids == [2, 4, 3]
    assert with_own_mask(["a [MASK]"], "[MASK]", bare) == ["a [UNK]"]
    bare.unk_token = None
    assert with_own_mask(["a [MASK]"], "[MASK]", bare) == ["a [MASK]"]


@pytest.mark.parametrize("types", [False, True])
def test_batch_is_padded_on_the_right_to_its_longest_row(types):
    encoded = encoded_rows([[1, 2, 3], [4], [5, 6], [7, 7, 7, 7]], types)
    batch = encoded.batch(torch.tensor([2, 0, 1]))
    assert batch["input_ids"].tolist() == [[5, 6, 9], [1, 2, 3], [4, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 0]]
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())
    assert ("token_type_ids" in batch) == types
    if types:
        assert batch["token_type_ids"].tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 0]]


@settings(deadline=None)
@given(
    st.data(),
    st.lists(st.lists(st.integers(1, 8), max_size=6), min_size=1, max_size=12),
    st.booleans(),
)
def test_unpadded_batch_is_the_rows_that_were_asked_for(data, rows, types):
    asked = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    batch = encoded_rows(rows, types).batch(torch.tensor(asked))
    mask = batch["attention_mask"].bool()
    assert [ids[keep].tolist() for ids, keep in zip(batch["input_ids"], mask, strict=True)] == [
        rows[i] for i in asked
    ]
    assert (batch["input_ids"][~mask] == 9).all()
    assert mask.shape[1] == max(1, *(len(rows[i]) for i in asked))


def test_rows_are_the_same_on_the_device_that_is_asked_for():
    encoded = encoded_rows([[1, 2], [3]], types=True).to(torch.device("meta"))
    assert {tensor.device.type for tensor in (encoded.ids, encoded.types, encoded.offsets)} == {
        "meta"
    }
    assert encoded.pad_id == 9


def test_rows_come_as_often_as_wanted_and_fractions_are_drawn_anew():
    times = torch.tensor([1.0, 0.0, 2.0, 0.25, 0.25, 0.25, 0.25, 1.25])
    generator = torch.Generator().manual_seed(0)
    drawn = [drawn_rows(times, generator).tolist() for _ in range(40)]
    for rows in drawn:
        assert [rows.count(i) for i in (0, 1, 2)] == [1, 0, 2]
        assert sorted(rows) == rows
        assert len(rows) == 3 + 1 + 1  # of the five rows with a quarter left over, one
    assert {i for rows in drawn for i in (3, 4, 5, 6) if i in rows} == {3, 4, 5, 6}
    assert {rows.count(7) for rows in drawn} == {1, 2}


def test_without_fractions_nothing_is_drawn():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert drawn_rows(torch.ones(4), generator).tolist() == [0, 1, 2, 3]
    assert torch.equal(generator.get_state(), before)


LENGTHS = st.lists(st.integers(0, 50), min_size=1, max_size=200).map(torch.tensor)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 20), st.integers(1, 4), st.integers(0, 99))
def test_shuffle_has_every_row_exactly_once_the_tail_included(
    lengths, batch_size, pool_batches, seed
):
    batches = shuffled_batches(
        lengths, batch_size, torch.Generator().manual_seed(seed), pool_batches
    )
    assert torch.cat(batches).sort().values.tolist() == list(range(len(lengths)))
    assert max(map(len, batches)) <= batch_size
    assert len(batches) == -(-len(lengths) // batch_size)


def test_shuffle_is_drawn_from_the_generator():
    lengths = torch.arange(100) % 7

    def draw(generator):
        return [batch.tolist() for batch in shuffled_batches(lengths, 8, generator, pool_batches=2)]

    generator = torch.Generator().manual_seed(1)
    first, second = draw(generator), draw(generator)
    assert draw(torch.Generator().manual_seed(1)) == first != second


def test_shuffle_puts_rows_of_like_length_together_and_short_batches_anywhere():
    lengths = torch.arange(1000) % 50
    batches = shuffled_batches(lengths, 10, torch.Generator().manual_seed(0))
    spread = torch.tensor([int(lengths[batch].max() - lengths[batch].min()) for batch in batches])
    assert spread.float().mean() < 3
    means = [lengths[batch].float().mean().item() for batch in batches]
    assert means != sorted(means)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 200))
def test_budget_has_every_row_exactly_once_and_is_kept_with_padding(lengths, budget):
    batches = list(budget_batches(lengths, budget))
    assert torch.cat(batches).sort().values.tolist() == list(range(len(lengths)))
    assert all(
        len(batch) == 1 or len(batch) * int(lengths[batch].max()) <= budget for batch in batches
    )


def test_budget_comes_longest_first_and_is_filled():
    lengths = torch.tensor([1, 5, 2, 9, 2])
    assert [lengths[batch].tolist() for batch in budget_batches(lengths, 6)] == [
        [9],
        [5],
        [2, 2, 1],
    ]


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 200))
def test_even_budget_has_every_row_exactly_once_and_is_kept(lengths, budget):
    batches = list(budget_batches(lengths, budget, even=True))
    assert torch.cat(batches).sort().values.tolist() == list(range(len(lengths)))
    assert all(
        len(batch) == 1 or len(batch) * int(lengths[batch].max()) <= budget for batch in batches
    )


def test_even_batches_end_where_the_length_changes_once_they_are_half_full():
    lengths = torch.tensor([4] * 5 + [3] * 2 + [2] * 3)
    found = [lengths[batch].tolist() for batch in budget_batches(lengths, 12, even=True)]
    assert found == [[4, 4, 4], [4, 4], [3, 3], [2, 2, 2]]
    few = [lengths[batch].tolist() for batch in budget_batches(lengths, 40, even=True)]
    assert few == [[4] * 5, [3, 3, 2, 2, 2]]  # two of thirteen are not worth a batch

"""Logits are joined by content, never by position, and missing or damaged ones are refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit.data.logits import join_logits, read_store, stored_keys
from distillkit.data.tables import content_keys, texts_of
from distillkit.errors import InputError

TEXTS = [f"text {i}" for i in range(20)]
SINGLE = pa.table({"text": TEXTS})
PAIRS = pa.table({"text": ["ab", "a", "ab"], "text_pair": ["c", "bc", "d"]})


@pytest.fixture
def store(tmp_path):
    """Write a store in the documented form, some rows a shard; row i of the table has logits i and -i."""

    def build(table, rows_a_shard=8):
        values = np.arange(len(table), dtype=np.float32)
        logits = np.stack([values, -values], axis=1)
        keys = content_keys(*texts_of(table))
        (tmp_path / "manifest.json").write_text(json.dumps({"labels": ["no", "yes"]}))
        for number, start in enumerate(range(0, len(table), rows_a_shard)):
            part = slice(start, start + rows_a_shard)
            column = pa.FixedSizeListArray.from_arrays(pa.array(logits[part].ravel(), pa.float32()), 2)
            shard = pa.table({"key": pa.array(keys[part], pa.binary(16)), "logits": column})
            pq.write_table(shard, tmp_path / f"shard-{number:05}.parquet")
        return tmp_path

    return build


@pytest.mark.parametrize("rows_a_shard", [1, 8, 20])
def test_logits_follow_the_content_through_a_shuffle(store, rows_a_shard):
    order = np.random.default_rng(0).permutation(20)
    found = join_logits(SINGLE.take(order), store(SINGLE, rows_a_shard))
    assert found.dtype == np.float32
    assert found.tolist() == [[i, -i] for i in order.tolist()]


def test_row_that_comes_twice_gets_its_logits_twice_and_others_are_left_out(store):
    table = SINGLE.take([7, 3, 7])
    assert join_logits(table, store(SINGLE)).tolist() == [[7, -7], [3, -3], [7, -7]]


def test_other_columns_do_not_matter(store):
    table = SINGLE.append_column("label", [["x"] * 20]).take([5])
    assert join_logits(table, store(SINGLE)).tolist() == [[5, -5]]


def test_pairs_are_joined_by_both_texts_and_where_the_first_ends(store):
    assert join_logits(PAIRS.take([2, 1, 0]), store(PAIRS)).tolist() == [[2, -2], [1, -1], [0, 0]]


def test_swapped_pair_is_another_row(store):
    swapped = pa.table({"text": ["c"], "text_pair": ["ab"]})
    with pytest.raises(InputError, match=r"1 of 1 rows have no logits"):
        join_logits(swapped, store(PAIRS))


def test_row_without_logits_is_refused_and_quoted(store):
    table = pa.table({"text": ["text 3", "never labelled", "nor this"]})
    with pytest.raises(InputError, match=r"2 of 3 rows have no logits, the first is 'never labelled'; run distillkit label"):
        join_logits(table, store(SINGLE))


def test_empty_store_has_logits_for_no_row(store):
    folder = store(SINGLE.slice(0, 0))
    assert stored_keys(folder) == set()
    with pytest.raises(InputError, match=r"20 of 20 rows have no logits"):
        join_logits(SINGLE, folder)


# A string type would cut a key's last zero bytes, and signed numbers would misplace those that begin high.
def test_every_byte_of_a_key_counts(store):
    table = pa.table({"text": [f"row {i}" for i in range(2000)]})
    keys = content_keys(table["text"].to_pylist())
    assert any(key.endswith(b"\0") for key in keys)
    assert any(key.startswith(b"\0") for key in keys)
    assert any(key[0] > 127 for key in keys)
    assert join_logits(table, store(table, 500))[:, 0].tolist() == list(range(2000))


def test_stored_keys_are_the_contents_of_every_shard(store):
    assert stored_keys(store(SINGLE)) == set(content_keys(TEXTS))


def test_manifest_is_read_back(store):
    assert read_store(store(SINGLE))["labels"] == ["no", "yes"]


def test_folder_without_a_manifest_is_no_store(tmp_path):
    with pytest.raises(InputError, match=r"not a logit store: it has no manifest\.json; make one with distillkit label"):
        read_store(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file: not a logit store"):
        read_store(tmp_path / "file")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "not JSON"), (b"\xff", "not JSON"), (b"[]", "not the manifest"), (b'{"seed": 1}', "not the manifest")],
)
def test_manifest_of_another_kind_is_refused(tmp_path, content, message):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"manifest\.json: {message}.*delete the folder and label again"):
        read_store(tmp_path)


@pytest.mark.parametrize("use", [stored_keys, lambda folder: join_logits(SINGLE, folder)], ids=["keys", "join"])
def test_damaged_shard_is_named(store, use):
    folder = store(SINGLE)
    shard = folder / "shard-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"shard-00001\.parquet: damaged: .*delete this shard and label again"):
        use(folder)


def test_shard_without_logits_is_named(store):
    folder = store(SINGLE)
    pq.write_table(pa.table({"text": ["a"]}), folder / "shard-00000.parquet")
    with pytest.raises(InputError, match=r"shard-00000\.parquet: damaged"):
        join_logits(SINGLE, folder)

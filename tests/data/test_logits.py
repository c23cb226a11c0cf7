"""Logits are joined by content, never by position, and missing or damaged ones are refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit.data.content import content_keys, texts_of
from distillkit.data.logits import (
    join_logits,
    joined_labels,
    keys_of,
    read_store,
    rounding_error,
    shard_name,
    shard_table,
    stored_keys,
    teacher_shares,
    with_logits,
    write_shard,
)
from distillkit.errors import InputError

TEXTS = [f"text {i}" for i in range(20)]
SINGLE = pa.table({"text": TEXTS})
PAIRS = pa.table({"text": ["ab", "a", "ab"], "text_pair": ["c", "bc", "d"]})


def numbered(table, scale=1):
    values = scale * np.arange(len(table), dtype=np.float32)
    return np.stack([values, -values], axis=1)


@pytest.fixture
def store(tmp_path):
    """Write a teacher's folder, some rows a shard; row i of the table has logits i and -i, times a scale."""

    def build(
        table,
        rows_a_shard=8,
        *,
        name="teacher",
        labels=("no", "yes"),
        scale=1,
        storage="fp16",
        less=0,
    ):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "manifest.json").write_text(json.dumps({"format": 2, "labels": list(labels)}))
        logits = numbered(table, scale) - np.float32(less)
        for start in range(0, len(table), rows_a_shard):
            part = slice(start, start + rows_a_shard)
            shard = shard_table(
                table.slice(start, rows_a_shard), logits[part], storage, "teacher", labels
            )
            write_shard(folder, shard)
        return tmp_path

    return build


def shard_files(folder):
    return sorted((folder / "teacher").glob("shard-*.parquet"))


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
    with pytest.raises(
        InputError,
        match=r"2 of 3 rows have no logits, the first is 'never labelled'; run distillkit label",
    ):
        join_logits(table, store(SINGLE))


def test_a_manifest_of_fewer_labels_than_logits_is_refused(store):
    folder = store(SINGLE)
    place = next(folder.glob("*/manifest.json"))
    place.write_text(json.dumps({"format": 2, "labels": ["yes"]}))
    with pytest.raises(InputError, match=r"2 logits a row, but manifest\.json names 1 labels"):
        join_logits(SINGLE, folder)


def test_empty_store_has_logits_for_no_row(store):
    folder = store(SINGLE.slice(0, 0))
    assert len(stored_keys(folder / "teacher")) == 0
    with pytest.raises(InputError, match=r"teacher: 20 of 20 rows have no logits"):
        join_logits(SINGLE, folder)


def test_no_rows_have_no_logits(store):
    assert join_logits(SINGLE.slice(0, 0), store(SINGLE)).shape == (0, 2)


# A string type would cut a key's last zero bytes.
def test_every_byte_of_a_key_counts(store):
    table = pa.table({"text": [f"row {i}" for i in range(2000)]})
    keys = content_keys(table["text"].to_pylist())
    assert any(key.endswith(b"\0") for key in keys)
    assert any(key.startswith(b"\0") for key in keys)
    assert any(key[0] > 127 for key in keys)
    assert join_logits(table, store(table, 500))[:, 0].tolist() == list(range(2000))


def test_stored_keys_are_the_contents_of_every_shard(store):
    found = stored_keys(store(SINGLE) / "teacher")
    assert found.type == pa.binary(16)
    assert sorted(found.to_pylist()) == sorted(content_keys(TEXTS))


@pytest.mark.parametrize("table", [SINGLE, PAIRS, PAIRS.slice(0, 0)])
def test_keys_are_those_of_the_contents_block_by_block(table, monkeypatch):
    monkeypatch.setattr("distillkit.data.tables.BLOCK_ROWS", 3)
    assert keys_of(table).to_pylist() == content_keys(*texts_of(table))


def test_of_rows_that_are_stored_twice_the_first_shard_by_name_counts(store):
    store(SINGLE, 20)
    folder = store(SINGLE.slice(0, 4), 4, scale=3)
    names = [path.name for path in shard_files(folder)]
    assert len(names) == 2
    first = min(shard_name(keys_of(part)) for part in (SINGLE, SINGLE.slice(0, 4)))
    scale = 1 if first == shard_name(keys_of(SINGLE)) else 3
    assert join_logits(SINGLE.slice(0, 4), folder)[:, 0].tolist() == [
        0,
        scale,
        2 * scale,
        3 * scale,
    ]


def test_shard_is_named_by_its_keys_and_says_what_it_holds(tmp_path):
    def write(table, logits):
        return write_shard(tmp_path, shard_table(table, logits, "fp16", "t", ["no", "yes"]))

    one, other = (
        write(SINGLE, numbered(SINGLE)),
        write(SINGLE.slice(0, 5), numbered(SINGLE.slice(0, 5))),
    )
    assert one.name != other.name
    assert one.name == f"shard-{shard_name(keys_of(SINGLE))}.parquet"
    assert pq.read_table(one).column_names == ["key", "text", "logits"]
    assert json.loads(pq.read_schema(one).metadata[b"distillkit.labels"]) == ["no", "yes"]
    before = one.read_bytes()
    assert write(SINGLE.append_column("label", [["x"] * 20]), numbered(SINGLE)) == one
    assert one.read_bytes() == before  # whatever else the table has


def test_fp16_is_given_back_as_float32_and_its_largest_rounding_error_is_said(store):
    logits = np.array([[0.1, 2049.0], [-3.3, 7.0]], np.float32)
    shard = shard_table(SINGLE.slice(0, 2), logits, "fp16", "t", ["a", "b"])
    assert shard["logits"].type == pa.list_(pa.float16(), 2)
    assert (
        float(shard.schema.metadata[b"distillkit.rounding_error"]) == 1.0
    )  # of 2049, where fp16 has steps of 2
    assert (
        float(
            shard_table(SINGLE.slice(0, 2), logits, "fp32", "t", ["a", "b"]).schema.metadata[
                b"distillkit.rounding_error"
            ]
        )
        == 0
    )
    folder = store(SINGLE, 7, scale=np.float32(0.1))
    joined = join_logits(SINGLE, folder)
    assert joined.dtype == np.float32
    exact = numbered(SINGLE, np.float32(0.1))
    assert rounding_error(folder / "teacher") == pytest.approx(
        np.abs(joined - exact).max(), rel=1e-6
    )
    assert 0 < rounding_error(folder / "teacher") < 1e-3
    assert (
        rounding_error(
            store(SINGLE, 7, name="full", scale=np.float32(0.1), storage="fp32") / "full"
        )
        == 0
    )


@pytest.mark.parametrize("value", [7e4, -1e30])
def test_logits_beyond_fp16_are_refused_with_the_mend(value):
    logits = numbered(SINGLE)
    logits[3, 1] = value
    with pytest.raises(
        InputError, match=r"t: logits of 'text 3' are too large for fp16 .*--label\.storage fp32"
    ):
        shard_table(SINGLE, logits, "fp16", "t", ["no", "yes"])
    assert (
        shard_table(SINGLE, logits, "fp32", "t", ["no", "yes"])["logits"].to_pylist()
        == logits.tolist()
    )


@pytest.mark.parametrize("storage", ["fp16", "fp32"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_refused(value, storage):
    logits = numbered(SINGLE)
    logits[3, 1] = value
    with pytest.raises(
        InputError, match=r"not finite for 'text 3'; label with --label\.precision fp32"
    ):
        shard_table(SINGLE, logits, storage, "t", ["no", "yes"])


def test_teachers_are_averaged_alike_or_by_weight_with_labels_in_the_order_of_the_first(store):
    store(SINGLE, name="b", scale=4)
    store(SINGLE, 5, name="c", scale=-8, labels=("yes", "no"))  # says the same as 8 times (no, yes)
    folder = store(SINGLE, name="a", scale=1)
    assert joined_labels(folder) == ["no", "yes"]
    assert joined_labels(folder, {"c": 1, "b": 1}) == ["no", "yes"]
    assert joined_labels(folder, {"c": 2}) == ["yes", "no"]
    for weights, scale in (
        (None, 13 / 3),
        ({}, 13 / 3),
        ({"b": 5}, 4),
        ({"c": 3, "a": 1}, 6.25),
        ({"a": 0.1, "b": 0.1}, 2.5),
    ):
        np.testing.assert_allclose(
            join_logits(SINGLE, folder, weights), numbered(SINGLE, scale), rtol=1e-6
        )
    assert np.array_equal(join_logits(SINGLE, folder, {"c": 2}), numbered(SINGLE, -8))
    assert teacher_shares(folder, {"c": 3, "a": 1}) == {"a": 0.25, "c": 0.75}


def test_a_student_learns_log_probabilities_less_the_mean_of_each_row(store):
    logits = numbered(SINGLE, 0.5)  # means of 0
    norm = np.logaddexp.reduce(logits, axis=1, keepdims=True)
    folder = store(SINGLE, name="a", scale=0.5, less=norm)
    store(SINGLE, name="b", scale=0.5, less=-1)
    one, other = {"a": 1}, {"b": 1}
    np.testing.assert_allclose(join_logits(SINGLE, folder, one), logits - norm, atol=0.01)
    store(SINGLE, name="c", scale=0.5, less=norm + 0.3)  # the mean of several prompts'
    two = {"a": 1, "b": 1}
    for weights, expected in (
        (one, logits),
        (other, logits + 1),
        (two, logits + 0.5),
        ({"c": 1}, logits),
    ):
        found = join_logits(SINGLE, folder, weights, as_targets=True)
        np.testing.assert_allclose(found, expected, atol=0.01)


def test_teachers_become_columns_of_the_table(store):
    store(SINGLE, name="b", scale=4, labels=("yes", "no"))
    folder = store(SINGLE, name="a")
    table = with_logits(SINGLE.take([7, 3]), folder)
    assert table.column_names == ["text", "logits_a", "logits_b"]
    assert table["logits_a"].type == pa.list_(pa.float32(), 2)
    assert table["logits_a"].to_pylist() == [[7, -7], [3, -3]]
    assert table["logits_b"].to_pylist() == [[-28, 28], [-12, 12]]


def test_unknown_teacher_is_refused_with_those_there_are(store):
    store(SINGLE, name="b")
    with pytest.raises(InputError, match=r"no teacher 'x'; there is a, b"):
        join_logits(SINGLE, store(SINGLE, name="a"), {"a": 1, "x": 1})


def test_teachers_of_other_labels_are_not_averaged(store):
    store(SINGLE, name="b", labels=("no", "perhaps"))
    folder = store(SINGLE, name="a")
    with pytest.raises(
        InputError, match=r"teacher 'b' has the labels no, perhaps, teacher 'a' no, yes"
    ):
        join_logits(SINGLE, folder)
    assert joined_labels(folder, {"b": 1}) == ["no", "perhaps"]


def test_teachers_of_another_kind_of_task_are_not_averaged(store):
    store(SINGLE, name="b")
    folder = store(SINGLE, name="a")
    manifest = folder / "b" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"head": "sigmoid"}))
    with pytest.raises(InputError, match=r"teacher 'b' has the head sigmoid, teacher 'a' softmax"):
        join_logits(SINGLE, folder)


def test_row_that_one_teacher_has_not_labelled_is_refused(store):
    store(SINGLE.slice(1), name="b")
    with pytest.raises(InputError, match=r"b: 1 of 20 rows have no logits, the first is 'text 0'"):
        join_logits(SINGLE, store(SINGLE, name="a"))


def test_manifests_are_read_back_by_name(store):
    store(SINGLE, name="b")
    found = read_store(store(SINGLE, name="a"))
    assert list(found) == ["a", "b"]
    assert found["a"]["labels"] == ["no", "yes"]


def test_folder_without_a_teacher_is_no_store(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(
            InputError, match=r"not a logit store: .*; make one with distillkit label"
        ):
            read_store(path)


def test_store_of_an_older_form_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": 1, "labels": ["a", "b"]}')
    with pytest.raises(InputError, match=r"older form; delete the folder and label again"):
        read_store(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not the manifest"),
        (b'{"seed": 1}', "not the manifest"),
        (b'{"labels": ["a"], "format": 3}', "its format is 3, expected 2"),
    ],
)
def test_manifest_of_another_kind_is_refused(tmp_path, content, message):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "manifest.json").write_bytes(content)
    with pytest.raises(
        InputError, match=rf"manifest\.json: {message}.*delete the folder and label again"
    ):
        read_store(tmp_path)


USES = [lambda folder: stored_keys(folder / "teacher"), lambda folder: join_logits(SINGLE, folder)]


@pytest.mark.parametrize("use", USES, ids=["keys", "join"])
def test_damaged_shard_is_named(store, use):
    folder = store(SINGLE)
    shard = shard_files(folder)[1]
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(
        InputError, match=rf"{shard.name}: cannot be read.*delete this shard and label again"
    ):
        use(folder)


def test_a_flipped_bit_of_a_shard_is_named(store):
    folder = store(SINGLE)
    shard = shard_files(folder)[1]
    whole = shard.read_bytes()
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # the rest is the footer
    before, said = join_logits(SINGLE, folder), []
    for place in range(4, pages, 5):
        shard.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:  # what is not refused is in a header, and changes nothing
            assert np.array_equal(join_logits(SINGLE, folder), before)
        except InputError as error:
            said.append(str(error))
    assert all(f"{shard.name}: cannot be read" in line for line in said)
    assert len(said) > len(range(4, pages, 5)) / 2


@pytest.mark.parametrize(
    "columns",
    [{"text": ["a"]}, {"key": ["a"], "logits": [[1.0]]}],
    ids=["no logits", "another tool's"],
)
def test_shard_of_another_form_is_named(store, columns):
    folder = store(SINGLE)
    pq.write_table(pa.table(columns), shard_files(folder)[0])
    with pytest.raises(InputError, match=rf"{shard_files(folder)[0].name}: cannot be read"):
        join_logits(SINGLE, folder)

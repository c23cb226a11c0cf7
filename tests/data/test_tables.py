"""Canonical tables: what is accepted, what is refused and in which words, splits and content keys."""

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distillkit.data.content import HASH, content_hashes, content_keys, paired, texts_of
from distillkit.data.gold import check_labels_known, class_counts, label_ids, label_names
from distillkit.data.labels import LABEL_TYPES, task_of_labels
from distillkit.data.splits import split_dev
from distillkit.data.tables import (
    mask_of,
    read_blocks,
    read_table,
    resized,
    spread_rows,
    table_writer,
    take_rows,
    with_mask,
    write_table,
)
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig, DataConfig


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path as text: rows (dicts) as JSON lines or Parquet, text as it is."""

    def to_disk(name, content):
        path = tmp_path / name
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(content), path)
        else:
            text = (
                content
                if isinstance(content, str)
                else "".join(json.dumps(row) + "\n" for row in content)
            )
            path.write_text(text, encoding="utf-8")
        return str(path)

    return to_disk


def failure(source, columns=None, **options):
    with pytest.raises(InputError) as caught:
        read_table(source, columns or ColumnsConfig(), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def labelled(counts):
    """A table with as many distinct texts of each label as counts say."""
    rows = [(f"{label} {i}", label) for label, count in counts.items() for i in range(count)]
    return pa.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]})


def test_columns_get_their_canonical_names(write):
    source = write("a.tsv", "id\tsentence1\tsentence2\tgold\n1\ta\tb\tx\n")
    columns = ColumnsConfig(text="sentence1", text_pair="sentence2", label="gold")
    assert read_table(source, columns).to_pylist() == [
        {"text": "a", "text_pair": "b", "label": "x"}
    ]


def test_text_without_labels_may_be_named_text_where_the_task_names_its_own(write):
    source = write("a.tsv", "text\nb\n")
    columns = ColumnsConfig(text="sentence")
    table = read_table(source, columns, labels="ignored", or_canonical=True)
    assert table.to_pylist() == [{"text": "b"}]
    with pytest.raises(InputError, match="no column 'sentence'"):
        read_table(source, columns, labels="ignored")


@pytest.mark.parametrize("known", [[], ["x"]])  # as they are, and row by row
def test_written_table_has_canonical_names_whatever_the_settings_say(tmp_path, known):
    write_table(
        pa.table({"text": ["a"], "text_pair": ["b"], "label": ["x"]}), tmp_path / "own.parquet"
    )
    columns = ColumnsConfig(text="sentence1", text_pair="sentence2", label="gold")
    for source in (tmp_path / "own.parquet", tmp_path):
        table = read_table(str(source), columns, known=known)
        assert table.to_pylist() == [{"text": "a", "text_pair": "b", "label": "x"}]


def test_lines_of_a_text_file_are_texts_whatever_the_settings_say(write):
    found = read_table(write("a.txt", "a\n"), ColumnsConfig(text="sentence"), labels="ignored")
    assert found["text"].to_pylist() == ["a"]


@pytest.mark.parametrize("form", ["a.tsv", "a.parquet"])
@pytest.mark.parametrize(
    ("setting", "labels"),
    [("text", "ignored"), ("text_pair", "ignored"), ("label", "required"), ("label", "optional")],
)
def test_no_other_column_stands_in_for_one_that_is_named(write, form, setting, labels):
    row = {"text": "a", "text_pair": "b", "label": "x"}
    source = write(form, [row] if form == "a.parquet" else "text\ttext_pair\tlabel\na\tb\tx\n")
    said = failure(source, ColumnsConfig(**{setting: "mistyped"}), labels=labels)
    assert form in said
    assert (
        "no column 'mistyped'; there is 'text', 'text_pair', 'label': name yours with --data.columns."
        in said
    )


def test_text_is_kept_byte_for_byte(write):
    text = "  Two  spaces,\u2028a separator and cafe\u0301 "
    assert read_table(write("a.tsv", f"text\tlabel\n{text}\tx\n"), ColumnsConfig())[
        "text"
    ].to_pylist() == [text]


def test_a_written_transfer_set_keeps_its_origin(tmp_path):
    write_table(
        pa.table({"text": ["a"], "label": ["x"], "origin": ["original"]}), tmp_path / "own.parquet"
    )
    assert read_table(str(tmp_path / "own.parquet"), ColumnsConfig())["origin"].to_pylist() == [
        "original"
    ]


def test_users_own_column_called_origin_does_no_harm(write):
    source = write("a.jsonl", [{"text": "a", "label": "x", "origin": 3}])
    assert read_table(source, ColumnsConfig())["text"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    ("value", "name"),
    [(1, "1"), (1.0, "1"), ("good", "good"), (True, "True"), ("1.0.2", "1.0.2"), ("v1.5", "v1.5")],
)
def test_label_becomes_a_name(write, value, name):
    assert read_table(write("a.jsonl", [{"text": "a", "label": value}]), ColumnsConfig())[
        "label"
    ].to_pylist() == [name]


def test_same_label_has_the_same_name_in_every_form(write):
    sources = [
        write("a.tsv", "text\tlabel\na\t1\n"),
        write("a.csv", "text,label\na,1\n"),
        write("a.jsonl", [{"text": "a", "label": 1}]),
        write("a.parquet", [{"text": "a", "label": 1.0}]),
    ]
    assert [read_table(source, ColumnsConfig()).to_pylist() for source in sources] == [
        [{"text": "a", "label": "1"}]
    ] * 4


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"sentence": "b", "label": "x"},
            "a.jsonl:2: no column 'text'; there is 'sentence', 'label': name yours with",
        ),
        (
            {"text": "b", "gold": "x"},
            "a.jsonl:2: no column 'label'; there is 'text', 'gold': name yours with",
        ),
        ({"text": "", "label": "x"}, "a.jsonl:2: column 'text' is empty"),
        ({"text": " \t\u3000", "label": "x"}, "a.jsonl:2: column 'text' is empty"),
        ({"text": None, "label": "x"}, "a.jsonl:2: column 'text' is empty (null or NaN)"),
        ({"text": math.nan, "label": "x"}, "a.jsonl:2: column 'text' is empty (null or NaN)"),
        ({"text": 7, "label": "x"}, "a.jsonl:2: column 'text' is 7; expected text"),
        (
            {"text": "b", "label": ""},
            "a.jsonl:2: column 'label' is empty; every row here needs a label",
        ),
        (
            {"text": "b", "label": None},
            "a.jsonl:2: column 'label' is empty; every row here needs a label",
        ),
        (
            {"text": "b", "label": math.nan},
            "a.jsonl:2: column 'label' is NaN; every row here needs a label",
        ),
        ({"text": "b", "label": "nan"}, "a.jsonl:2: column 'label' is NaN"),
        (
            {"text": "b", "label": 0.5},
            "a.jsonl:2: column 'label' is 0.5, a number with a fraction; expected a class",
        ),
        (
            {"text": "b", "label": "2.5"},
            "a.jsonl:2: column 'label' is 2.5, a number with a fraction",
        ),
        (
            {"text": "b", "label": 1e-05},
            "a.jsonl:2: column 'label' is 1e-05, a number with a fraction",
        ),
        (
            {"text": "b", "label": "z"},
            "a.jsonl:2: label 'z' was never seen in training; known: 'x', 'y'",
        ),
        ({"text": "b\ud800", "label": "x"}, "a.jsonl:2: "),
    ],
)
def test_row_that_does_not_fit_is_said_with_its_line_and_what_is_wrong(write, row, message):
    source = write("a.jsonl", [{"text": "a", "label": "x"}, row])
    assert message in failure(source, known=["x", "y"])


def test_column_that_the_user_named_is_the_one_that_is_missed(write):
    source = write("a.tsv", "a\tb\n1\t2\n")
    assert "a.tsv:2: no column 'sentence'; there is 'a', 'b'" in failure(
        source, ColumnsConfig(text="sentence")
    )
    columns = ColumnsConfig(text="a", label="gold")
    assert "a.tsv:2: no column 'gold'; there is 'a', 'b'" in failure(source, columns)


def test_column_that_a_header_names_twice_is_refused(write):
    assert "'text'" in failure(write("a.tsv", "text\ttext\tlabel\na\tb\tx\n"))


def test_dev_label_that_training_never_saw_is_said_with_its_line(write):
    train = read_table(write("train.tsv", "text\tlabel\na\tx\nb\ty\n"), ColumnsConfig())
    dev = write("dev.tsv", "text\tlabel\nc\tx\n\nd\tz\n")
    assert "dev.tsv:4: label 'z' was never seen in training; known: 'x', 'y'." in failure(
        dev, known=label_names(train)
    )


@pytest.mark.parametrize("content", ["", "text\tlabel\n", "text\tlabel\n\n\n"])
def test_source_without_rows_is_refused(write, content):
    assert failure(write("a.tsv", content)).endswith("a.tsv: no rows")


@pytest.mark.parametrize(
    "row", [{"text": "a"}, {"text": "a", "label": None}, {"text": "a", "label": ""}]
)
def test_optional_label_may_be_missing(write, row):
    table = read_table(write("a.jsonl", [row]), ColumnsConfig(), labels="optional")
    assert table.to_pylist() == [{"text": "a", "label": None}]


def test_ignored_label_is_not_even_looked_at(write):
    source = write("a.tsv", "text\tlabel\na\tnan\n")
    assert read_table(source, ColumnsConfig(), labels="ignored").to_pylist() == [{"text": "a"}]


# A table that a stage wrote, and a foreign one of the same rows, are the same source.
@pytest.mark.parametrize("labels", ["required", "optional", "ignored"])
def test_written_table_reads_back(tmp_path, write, labels):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    write_table(pa.Table.from_pylist(rows), tmp_path / "own.parquet")
    own = read_table(str(tmp_path / "own.parquet"), ColumnsConfig(), labels=labels)
    assert (
        own.to_pylist()
        == read_table(write("foreign.parquet", rows), ColumnsConfig(), labels=labels).to_pylist()
    )


@pytest.mark.parametrize("labels", ["optional", "ignored"])
def test_written_table_without_labels_reads_back(tmp_path, write, labels):
    write_table(pa.table({"text": ["a"]}), tmp_path / "own.parquet")
    own = read_table(str(tmp_path / "own.parquet"), ColumnsConfig(), labels=labels)
    assert (
        own.to_pylist()
        == read_table(write("foreign.tsv", "text\na\n"), ColumnsConfig(), labels=labels).to_pylist()
    )


@pytest.mark.parametrize(
    "columns", [{"text": ["a"]}, {"text": ["a"], "label": pa.array([None], pa.string())}]
)
def test_written_table_without_labels_is_refused_where_they_are_needed(tmp_path, columns):
    write_table(pa.table(columns), tmp_path / "own.parquet")
    assert "own.parquet" in failure(str(tmp_path / "own.parquet"))


def test_written_table_of_single_texts_is_refused_where_pairs_are_asked_for(tmp_path):
    write_table(pa.table({"text": ["a"], "label": ["x"]}), tmp_path / "own.parquet")
    assert "text_pair" in failure(
        str(tmp_path / "own.parquet"), ColumnsConfig(text_pair="text_pair")
    )


def test_mask_word_is_kept_on_disk(tmp_path):
    write_table(
        with_mask(pa.table({"text": ["a"], "label": ["x"]}), "[MÄSK]"), tmp_path / "a.parquet"
    )
    assert mask_of(read_table(str(tmp_path / "a.parquet"), ColumnsConfig())) == "[MÄSK]"


def test_tables_of_different_mask_words_are_not_read_as_one(tmp_path):
    table = pa.table({"text": ["a [MASK]"], "label": ["x"]})
    for name, mask in (("a", "[MASK]"), ("b", "")):
        write_table(with_mask(table, mask) if mask else table, tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match="different columns or mask words"):
        read_table(str(tmp_path), ColumnsConfig())


def test_table_without_a_mask_word_has_an_empty_one():
    assert mask_of(pa.table({"text": ["a"]})) == ""


def test_label_names_are_sorted_integers_by_value():
    assert label_names(pa.table({"label": ["10", "9", None, "-1", "9"]})) == ["-1", "9", "10"]
    assert label_names(pa.table({"label": ["b", "10", "a", "9"]})) == ["10", "9", "a", "b"]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["x", "x", None], r"^train\.tsv: one class only \('x'\); a classifier needs at least two"),
        ([None, None], r"^train\.tsv: no row has a label"),
    ],
)
def test_less_than_two_classes_are_refused(labels, said):
    with pytest.raises(InputError, match=said):
        label_names(pa.table({"label": pa.array(labels, pa.string())}), "train.tsv")


def test_label_ids_are_places_in_the_names_and_minus_100_where_there_is_none():
    assert label_ids(pa.table({"label": ["b", None, "a"]}), ["a", "b"]) == [1, -100, 0]


def test_unknown_label_of_a_table_is_said_with_its_row():
    table = pa.table({"label": ["a", None, "z"]})
    with pytest.raises(
        InputError, match=r"^dev row 3: label 'z' was never seen in training; known: 'a', 'b'\."
    ):
        check_labels_known(table, ["a", "b"], "dev")


def test_known_labels_pass():
    check_labels_known(pa.table({"label": ["a", None, "b"]}), ["a", "b"], "dev")


def test_classes_are_counted_most_frequent_first_and_equal_ones_by_name():
    counts = class_counts(pa.table({"label": ["b", "a", "c", "c", None]}))
    assert list(counts.items()) == [("c", 2), ("a", 1), ("b", 1)]


def test_split_takes_the_share_of_each_label_and_loses_no_row():
    table = labelled({"x": 40, "y": 10})
    train, dev = split_dev(table, 0.2, seed=1)
    assert class_counts(dev) == {"x": 8, "y": 2}
    assert sorted(train["text"].to_pylist() + dev["text"].to_pylist()) == sorted(
        table["text"].to_pylist()
    )


def test_split_keeps_the_order_of_the_rows():
    table = labelled({"x": 40, "y": 40})
    place = {text: i for i, text in enumerate(table["text"].to_pylist())}
    for part in split_dev(table, 0.2, seed=1):
        found = [place[text] for text in part["text"].to_pylist()]
        assert found == sorted(found)


def test_split_keeps_equal_texts_on_one_side():
    table = pa.concat_tables([labelled({"x": 20, "y": 20})] * 3)
    train, dev = split_dev(table, 0.25, seed=1)
    assert not set(train["text"].to_pylist()) & set(dev["text"].to_pylist())
    assert len(dev) == 3 * 10


def test_split_keeps_equal_texts_on_one_side_even_with_two_labels():
    table = pa.table(
        {"text": [f"t {i}" for i in range(20)] * 2, "label": ["x"] * 10 + ["y"] * 20 + ["x"] * 10}
    )
    train, dev = split_dev(table, 0.3, seed=1)
    assert not set(train["text"].to_pylist()) & set(dev["text"].to_pylist())


def test_split_tells_pairs_apart_by_both_texts():
    table = pa.table(
        {
            "text": ["same"] * 40,
            "text_pair": [f"t {i}" for i in range(40)],
            "label": ["x", "y"] * 20,
        }
    )
    assert len(split_dev(table, 0.25, seed=1)[1]) == 10


def test_split_is_the_same_each_time_and_in_any_order_and_follows_the_seed():
    table = labelled({"x": 30, "y": 30})
    dev = set(split_dev(table, 0.2, seed=1)[1]["text"].to_pylist())
    assert set(split_dev(table, 0.2, seed=1)[1]["text"].to_pylist()) == dev
    assert (
        set(split_dev(table.take(list(range(59, -1, -1))), 0.2, seed=1)[1]["text"].to_pylist())
        == dev
    )
    assert set(split_dev(table, 0.2, seed=2)[1]["text"].to_pylist()) != dev


@pytest.mark.parametrize("count", [30, 32])
def test_split_moves_at_most_one_row_when_another_is_added(count):
    table = labelled({"x": count, "y": count})
    before = set(split_dev(table, 0.2, seed=1)[1]["text"].to_pylist())
    for i in range(20):
        added = f"new {i}"
        more = pa.concat_tables([table, pa.table({"text": [added], "label": ["x"]})])
        after = set(split_dev(more, 0.2, seed=1)[1]["text"].to_pylist())
        assert len((before ^ after) - {added}) <= 1


def test_the_only_text_of_a_label_stays_in_training():
    train, dev = split_dev(labelled({"x": 20, "y": 1, "z": 2}), 0.1, seed=1)
    assert sorted(dev["label"].to_pylist()) == ["x", "x", "z"]
    assert sorted(train["label"].to_pylist()) == ["x"] * 18 + ["y", "z"]
    texts = [f"t {i}" for i in range(40)]
    twice = pa.table({"text": [*texts, "t 3"], "label": ["x", "y"] * 20 + ["b"]})
    for seed in range(40):
        assert "b" in split_dev(twice, 0.25, seed)[0]["label"].to_pylist()
    names = [f"n{i}" for i in range(30)]  # not labels, but ids
    with pytest.raises(InputError, match=r"31 labels of 42 texts: too few of each"):
        split_dev(labelled({"x": 12} | dict.fromkeys(names, 1)), 0.1, seed=1)


def test_keys_are_sixteen_bytes_and_equal_only_where_the_content_is():
    keys = content_keys(["a", "b", "a", "a "])
    assert [len(key) for key in keys] == [16] * 4
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    "other", [("a", "bc"), ("abc", ""), ("", "abc"), ("c", "ab"), ("ab", "c ")]
)
def test_key_of_a_pair_knows_where_the_first_text_ends(other):
    assert content_keys(["ab"], ["c"]) != content_keys([other[0]], [other[1]])


@given(st.lists(st.tuples(st.text("01\0ab"), st.text("01\0ab")), unique=True))
def test_distinct_pairs_have_distinct_keys(rows):
    assert len(set(content_keys([a for a, _ in rows], [b for _, b in rows]))) == len(rows)


# Stores on disk are joined by these bytes: a change of the formula orphans them.
def test_keys_are_the_documented_hash():
    assert content_keys(["é"])[0].hex() == "d4b1b0202b21bb84e60a3d272ecab0db"
    assert content_keys(["é"], ["b"])[0].hex() == "ad2751efbedff4374de9eb2bb50972cb"


def test_texts_and_pairs_of_a_table():
    assert texts_of(pa.table({"text": ["a"]})) == (["a"], None)
    assert texts_of(pa.table({"text": ["a"], "text_pair": ["b"]})) == (["a"], ["b"])
    assert paired(["a", "b"], None) == [("a", None), ("b", None)]
    assert paired(["a"], ["b"]) == [("a", "b")]


def test_write_leaves_nothing_behind_when_it_cannot(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(InputError, match=r"a\.parquet: cannot be written"):
        write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


# ---- block by block


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("form", ["tsv", "own"])
def test_a_source_is_read_in_blocks_of_so_many_rows(tmp_path, write, form, rows):
    table = pa.table({"text": [f"t {i}" for i in range(5)], "label": list("xyxyx")})
    if form == "own":
        source = str(tmp_path / "own.parquet")
        with table_writer(tmp_path / "own.parquet", table.schema) as writer:
            for part in (table.slice(0, 1), table.slice(1, 3), table.slice(4)):
                writer.write_table(part)
    else:
        source = write(
            "a.tsv", "text\tlabel\n" + "".join(f"t {i}\t{'xyxyx'[i]}\n" for i in range(5))
        )
    blocks = list(read_blocks(source, ColumnsConfig(), rows=rows))
    assert [len(block) for block in blocks] == [rows] * (5 // rows) + (
        [5 % rows] if 5 % rows else []
    )
    assert pa.concat_tables(blocks).to_pylist() == table.to_pylist()


def test_blocks_of_a_transfer_set_keep_mask_origin_and_the_order_of_the_columns(tmp_path):
    table = pa.table(
        {
            "origin": ["original", "augmented"],
            "label": ["x", None],
            "text": ["a", "b"],
            "rules": ["", "mask"],
        }
    )
    write_table(with_mask(table, "<m>"), tmp_path / "own.parquet")
    for block in read_blocks(
        str(tmp_path / "own.parquet"), ColumnsConfig(), labels="optional", rows=1
    ):
        assert block.column_names == ["text", "label", "origin", "rules"]
        assert mask_of(block) == "<m>"


def test_blocks_before_a_bad_row_are_read_and_the_row_is_said_with_its_line(write):
    source = write("a.tsv", "text\tlabel\na\tx\nb\tx\nc\t\n")
    blocks = read_blocks(source, ColumnsConfig(), rows=1)
    assert [next(blocks)["text"].to_pylist() for _ in range(2)] == [["a"], ["b"]]
    with pytest.raises(InputError, match=r"a\.tsv:4: column 'label' is empty"):
        next(blocks)


def test_a_source_that_fills_its_last_block_has_rows(write):
    blocks = list(read_blocks(write("a.txt", "a\nb\n"), ColumnsConfig(), labels="ignored", rows=2))
    assert [len(block) for block in blocks] == [2]


def test_a_folder_of_files_is_one_table(write, tmp_path):
    (tmp_path / "parts").mkdir()
    write("parts/1.tsv", "text\tlabel\na\tx\n")
    write("parts/2.tsv", "label\ttext\ny\tb\n")
    table = read_table(str(tmp_path / "parts"), ColumnsConfig())
    assert table.to_pylist() == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


@given(st.lists(st.integers(0, 7), max_size=8), st.integers(1, 10))
def test_resized_tables_have_the_same_rows_so_many_at_a_time(sizes, rows):
    table = pa.table({"n": list(range(sum(sizes)))})
    starts = np.cumsum([0, *sizes])
    found = list(
        resized(
            (
                table.slice(a, b - a)
                for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
            ),
            rows,
        )
    )
    assert [row["n"] for part in found for row in part.to_pylist()] == list(range(sum(sizes)))
    assert all(len(part) == rows for part in found[:-1])
    assert not found or 0 < len(found[-1]) <= rows


def test_resized_holds_no_more_than_it_must():
    given = []

    def blocks():
        for i in range(10):
            given.append(i)
            yield pa.table({"n": [i, i]})

    stream = resized(blocks(), 4)
    assert len(next(stream)) == 4
    assert given == [0, 1]


def test_what_is_written_row_group_by_row_group_is_one_table(tmp_path):
    schema = pa.schema([("text", pa.string()), ("label", pa.string())])
    with table_writer(
        tmp_path / "a.parquet", with_mask(schema.empty_table(), "<m>").schema
    ) as writer:
        for text in "abc":
            writer.write_table(pa.table({"text": [text], "label": ["x"]}, schema=schema))
        assert not (tmp_path / "a.parquet").exists()
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 3
    table = read_table(str(tmp_path / "a.parquet"), ColumnsConfig())
    assert table["text"].to_pylist() == ["a", "b", "c"]
    assert mask_of(table) == "<m>"


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    write_table(pa.table({"text": ["old"]}), tmp_path / "a.parquet")

    def fail():
        with table_writer(tmp_path / "a.parquet", pa.schema([("text", pa.string())])) as writer:
            writer.write_table(pa.table({"text": ["new"]}))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert pq.read_table(tmp_path / "a.parquet")["text"].to_pylist() == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.text("01\0é"))))
def test_hashes_are_the_keys_as_two_numbers(rows):
    texts, pairs = [a for a, _ in rows], [b for _, b in rows]
    for second in (None, pairs):
        hashes = content_hashes(
            pa.array(texts, pa.string()), None if second is None else pa.array(second, pa.string())
        )
        assert hashes.dtype == HASH
        joined = [
            int(h["high"]).to_bytes(8, "big") + int(h["low"]).to_bytes(8, "big") for h in hashes
        ]
        assert joined == content_keys(texts, second)


def test_hashes_of_a_slice_are_its_rows():
    texts = pa.array(["a", "b", "c", "d"])
    assert content_hashes(texts.slice(1, 2)).tolist() == content_hashes(texts)[1:3].tolist()


GAPS = "text,label\nfine,pos\n,neg\nbad,\nworse,neg\nx,nan\n"


def test_all_rows_that_lack_a_value_are_in_one_message(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(GAPS)
    with pytest.raises(InputError) as caught:
        read_table(str(path), ColumnsConfig())
    assert str(caught.value) == (
        f"{path}: 3 rows lack a value, by line: column 'text' is empty (3); column 'label' is empty (4); "
        "column 'label' is NaN (6); fill or drop them"
    )
    with pytest.raises(InputError, match=r"fill or drop them; --data\.missing drop leaves"):
        read_table(str(path), ColumnsConfig(), missing="refuse")


def test_rows_that_lack_a_value_are_dropped_when_told_and_counted(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text(GAPS)
    table = read_table(str(path), ColumnsConfig(), missing="drop")
    assert table.to_pydict() == {"text": ["fine", "worse"], "label": ["pos", "neg"]}
    (said,) = capsys.readouterr().err.splitlines()
    assert "3 rows lack a value" in said
    assert said.endswith("they are dropped")
    path.write_text("text,label\n,pos\n")
    with pytest.raises(InputError, match="no rows with a text and a label"):
        read_table(str(path), ColumnsConfig(), missing="drop")


@pytest.mark.parametrize(
    ("task", "rows", "kept"),
    [
        ("classification", "a,x\nb, \nc,y\n", ["x", "y"]),
        ("regression", "a,1\nb, \nc,nan\nd,2\n", [1.0, 2.0]),
    ],
)
def test_a_label_of_blanks_or_nan_is_missing(tmp_path, task, rows, kept):
    path = tmp_path / "a.csv"
    path.write_text(f"text,label\n{rows}")
    with pytest.raises(InputError, match=r"lack a value|is empty"):
        read_table(str(path), ColumnsConfig(), task=task)
    table = read_table(str(path), ColumnsConfig(), task=task, missing="drop")
    assert table["label"].to_pylist() == kept


def test_dropping_is_a_setting_of_the_data_alone_and_old_runs_keep_theirs():
    assert "missing" not in DataConfig(train="a").settings()
    assert DataConfig(train="a", missing="drop").settings()["missing"] == "drop"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text": ["a", None], "label": ["x", "y"]}, "row 2: column 'text' is empty"),
        ({"text": ["a", " "], "label": ["x", "y"]}, "row 2: column 'text' is empty"),
        ({"text": ["a", "b"], "text_pair": ["a", ""]}, "row 2: column 'text_pair' is empty"),
        ({"text": [1, 2], "label": ["x", "y"]}, "row 1: column 'text' is 1; expected text"),
        ({"text": ["a"], "label": [{"a": 1}]}, "row 1: column 'label' is {'a': 1}"),
        ({"text": ["a"], "label": ["nan"]}, "rows 1 to 1: column 'label' is NaN"),
        ({"text": ["a"], "label": [["nan"]]}, "rows 1 to 1: column 'label' is NaN"),
        ({"text": ["a"], "label": [["x", None]]}, "rows 1 to 1: column 'label' is empty"),
        ({"text": ["a"], "label": [math.inf]}, "rows 1 to 1: column 'label' is inf"),
    ],
)
def test_a_foreign_table_with_our_stamp_is_checked_all_the_same(tmp_path, columns, said):
    write_table(pa.table(columns), tmp_path / "t.parquet")
    found = pa.table(columns).schema
    task = "classification"
    if "label" in found.names and found.field("label").type in LABEL_TYPES.values():
        task = task_of_labels(found.field("label").type)
    assert said in failure(str(tmp_path / "t.parquet"), task=task, labels="optional")


def test_a_stamp_over_labels_of_another_type_is_no_promise(tmp_path):
    write_table(pa.table({"text": ["a", "b"], "label": [1, 2]}), tmp_path / "t.parquet")
    found = read_table(str(tmp_path / "t.parquet"), ColumnsConfig())
    assert found["label"].to_pylist() == ["1", "2"]


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_no_class(write, value):
    source = write("a.jsonl", f'{{"text": "a", "label": {value}}}\n')
    assert "column 'label' is " in failure(source)


def test_bytes_are_no_class(tmp_path):
    pq.write_table(pa.table({"text": ["a"], "label": [b"\xff"]}), tmp_path / "a.parquet")
    assert "row 1: column 'label' is b'\\xff'" in failure(str(tmp_path / "a.parquet"))


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), max_size=5), st.data())
def test_rows_are_taken_as_arrow_takes_them_whatever_the_chunks(sizes, data):
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [
        pa.table({"a": pa.array(range(*pair)), "b": pa.array(map(str, range(*pair)), pa.string())})
        for pair in itertools.pairwise(ends)
    ]
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())], metadata={"key": "kept"})
    table = pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])
    chosen = data.draw(st.lists(st.sampled_from(range(ends[-1])), max_size=9)) if ends[-1] else []
    for rows in (np.array(sorted(chosen), np.int64), np.array(chosen, np.int64)):
        assert take_rows(table, rows).equals(table.take(rows), check_metadata=True)


def test_rows_are_taken_from_more_text_than_one_array_can_hold(vast_table):
    assert vast_table.nbytes > 2**31
    found = take_rows(vast_table, np.array([0, 33]))["text"]
    assert pc.utf8_length(found).to_pylist() == [2**26, 2**26 - 33]
    found = spread_rows(vast_table, 3)["text"]
    assert pc.utf8_length(found).to_pylist() == [2**26, 2**26 - 16, 2**26 - 33]

"""What a label is in each kind of task, from any source, and how a model says which kind it is for."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import BertConfig

from distillkit.data.gold import (
    check_labels_known,
    class_counts,
    gold_of,
    label_names,
    label_summary,
)
from distillkit.data.labels import LABEL_TYPES, parse_label, task_of_labels, task_of_model
from distillkit.data.splits import split_dev
from distillkit.data.tables import read_table, write_table
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig


def table_of(labels, task):
    return pa.table(
        {
            "text": [f"t{i}" for i in range(len(labels))],
            "label": pa.array(labels, LABEL_TYPES[task]),
        }
    )


@pytest.fixture
def read(tmp_path):
    """Read rows of one label each, from JSON lines, as a task has them."""

    def run(values, task, labels="required", known=(), separator=","):
        rows = [{"text": "a"} | ({} if value is ... else {"label": value}) for value in values]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        columns = ColumnsConfig(label_separator=separator)
        return read_table(
            str(tmp_path / "a.jsonl"), columns, task=task, labels=labels, known=known
        )["label"].to_pylist()

    return run


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (["b", "a"], ["a", "b"]),
        (["b", "a", "b"], ["a", "b"]),
        ([], []),
        ("b, a", ["a", "b"]),
        (" a ", ["a"]),
        ("a,,b,", ["a", "b"]),
        ("", []),
        ([2, 1.0], ["1", "2"]),
        (3, ["3"]),
    ],
)
def test_a_rows_labels_are_distinct_and_in_order_however_they_are_given(read, value, labels):
    assert read([value], "multi-label") == [labels]


def test_labels_are_split_where_the_user_says(read):
    assert read(["a, b|c"], "multi-label", separator="|") == [["a, b", "c"]]


@pytest.mark.parametrize(
    ("value", "score"), [(1, 1.0), (-2.5, -2.5), ("3.25", 3.25), ("1e-3", 0.001)]
)
def test_a_score_is_a_number_however_it_is_written(read, value, score):
    assert read([value], "regression") == [score]


def test_an_integer_that_pandas_wrote_as_a_fraction_is_the_integer():
    rows = ({"label": label} for label in ("1.0", "1", 1, 1.0))
    names = {
        parse_label(r, ColumnsConfig(), "a:1", "classification", (), required=True) for r in rows
    }
    assert names == {"1"}


@pytest.mark.parametrize("task", ["classification", "multi-label", "regression"])
def test_a_missing_label_is_null_where_it_may_be(read, task):
    given = {"classification": "x", "multi-label": ["x"], "regression": 1.0}[task]
    assert read([given, None, ...], task, labels="optional") == [given, None, None]
    with pytest.raises(InputError, match=r"a\.jsonl:2: column 'label' is empty"):
        read([given, None], task)


@pytest.mark.parametrize(
    ("task", "value", "message"),
    [
        ("regression", "good", r"is 'good'; expected a finite number.*--data\.task classification"),
        ("regression", math.inf, "is inf; expected a finite number"),
        ("regression", math.nan, "is NaN; every row here needs a label"),
        ("regression", "1,5", "is '1,5'; expected a finite number"),
        ("regression", [1.0], r"is \[1.0\]; expected a finite number"),
        ("regression", True, "is True; expected a finite number"),
        ("regression", 10**400, "expected a finite number"),
        (
            "classification",
            0.5,
            r"is 0.5, a number with a fraction; expected a class.*--data\.task regression",
        ),
        ("classification", ["a"], r"is \['a'\]; expected a class.*--data\.task multi-label"),
        ("multi-label", [0.5], r"is 0.5, a number with a fraction; .*--data\.task regression"),
        ("multi-label", [["a"]], "expected a class"),
        (
            "multi-label",
            [1.0, 0.0, 1.0],
            r"is \[1.0, 0.0, 1.0\], zeros and ones; expected the names",
        ),
        ("multi-label", [0, 0], r"is \[0, 0\], zeros and ones; expected the names"),
        ("multi-label", ["a", None], "is NaN"),
    ],
)
def test_what_is_no_label_of_the_task_is_refused_with_the_mend(read, task, value, message):
    with pytest.raises(InputError, match=f"a.jsonl:1: column 'label' .*{message}"):
        read([value], task)


def test_a_label_that_training_never_saw_is_named(read):
    assert read([["a"], []], "multi-label", known=["a", "b"]) == [["a"], []]
    with pytest.raises(
        InputError, match=r"a\.jsonl:2: label 'c' was never seen in training; known: 'a', 'b'"
    ):
        read([["a"], ["a", "c"]], "multi-label", known=["a", "b"])
    assert read([7.5], "regression", known=["score"]) == [7.5]
    with pytest.raises(InputError, match="dev row 2: label 'c' was never seen"):
        check_labels_known(table_of([["a"], ["b", "c"]], "multi-label"), ["a", "b"], "dev")
    check_labels_known(table_of([7.5], "regression"), ["score"], "dev")


def test_an_empty_separator_is_refused():
    with pytest.raises(InputError, match=r"data\.columns\.label_separator is empty"):
        ColumnsConfig(label_separator="")


@pytest.mark.parametrize(
    ("task", "labels"), [("multi-label", [["a", "b"], [], None]), ("regression", [0.1, -2.0, None])]
)
def test_a_written_table_keeps_its_kind_of_label(tmp_path, task, labels):
    source = str(tmp_path / "t.parquet")
    write_table(table_of(labels, task), tmp_path / "t.parquet")
    found = read_table(source, ColumnsConfig(), task=task, labels="optional")
    assert found["label"].to_pylist() == labels
    assert found["label"].type == LABEL_TYPES[task]
    assert task_of_labels(pq.read_schema(source).field("label").type) == task
    with pytest.raises(
        InputError, match=rf"t\.parquet: its labels are of a {task} task, expected classification"
    ):
        read_table(source, ColumnsConfig(), labels="optional")


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_a_table_without_any_label_is_of_every_task(tmp_path, task):
    write_table(table_of([None, None], "classification"), tmp_path / "t.parquet")
    found = read_table(str(tmp_path / "t.parquet"), ColumnsConfig(), task=task, labels="optional")
    assert found.schema.field("label").type == LABEL_TYPES[task]
    assert found["label"].null_count == 2


def test_names_are_those_of_any_row_and_of_scores_one():
    assert label_names(table_of([["10", "2"], [], ["1"], None], "multi-label")) == ["1", "2", "10"]
    assert label_names(table_of([["x"], ["x"]], "multi-label")) == ["x"]
    both = [label_names(table_of(rows, "classification")) for rows in (["1", "01"], ["01", "1"])]
    assert both == [["01", "1"]] * 2  # two names of one number have one order
    assert label_names(table_of([0.5, 1.5, None], "regression")) == ["score"]
    with pytest.raises(
        InputError, match=r"here: one score only \(2\.5\); a regression needs at least two"
    ):
        label_names(table_of([2.5, 2.5], "regression"), "here")
    with pytest.raises(InputError, match="here: no row has a label"):
        label_names(table_of([[], None], "multi-label"), "here")


def test_gold_is_what_a_loss_takes():
    gold = gold_of(
        table_of([["b"], [], None, ["a", "b"]], "multi-label"), ["b", "a"], "multi-label"
    )
    np.testing.assert_array_equal(
        gold, np.array([[1, 0], [0, 0], [np.nan, np.nan], [1, 1]], np.float32)
    )
    scores = gold_of(table_of([0.5, None], "regression"), ["score"], "regression")
    np.testing.assert_array_equal(scores, np.array([0.5, np.nan], np.float32))
    assert gold_of(
        table_of(["y", None], "classification"), ["x", "y"], "classification"
    ).tolist() == [1, -100]
    with pytest.raises(
        InputError, match="labels are of a regression task, the model is for classification"
    ):
        gold_of(table_of([0.5], "regression"), ["x", "y"], "classification")


def test_counts_and_scores_are_summed_up():
    assert class_counts(table_of([["a", "b"], [], ["b"], None], "multi-label")) == {"b": 2, "a": 1}
    assert label_summary(table_of([1.0, 4.0, None], "regression")) == {
        "least": 1,
        "mean": 2.5,
        "most": 4,
    }
    assert label_summary(table_of(["x", "y", "x"], "classification")) == {"x": 2, "y": 1}


def test_a_text_and_itself_in_capitals_are_on_one_side():
    texts = [f"a film {i // 2}" if i % 2 else f"A  Film {i // 2}" for i in range(80)]
    train, dev = split_dev(
        table_of(["x", "y"] * 40, "classification").set_column(0, "text", [texts]), 0.2, 1
    )
    sides = [
        {text.lower().replace("  ", " ") for text in part["text"].to_pylist()}
        for part in (train, dev)
    ]
    assert not sides[0] & sides[1]
    assert len(dev) == 16


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_dev_is_a_share_of_all_rows_with_equal_texts_on_one_side(task):
    labels = (
        [i / 7 for i in range(60)] if task == "regression" else [["a"] * (i % 2) for i in range(60)]
    )
    table = pa.table(
        {"text": [f"t{i % 40}" for i in range(60)], "label": pa.array(labels, LABEL_TYPES[task])}
    )
    train, dev = split_dev(table, 0.25, 1)
    assert len(set(dev["text"].to_pylist())) == 10
    assert not set(dev["text"].to_pylist()) & set(train["text"].to_pylist())
    assert len(train) + len(dev) == 60
    assert split_dev(table, 0.25, 1)[1].equals(dev)
    assert not split_dev(table, 0.25, 2)[1].equals(dev)
    with pytest.raises(InputError, match="1 labels of 1 texts"):
        split_dev(table.slice(0, 1), 0.25, 1)


def test_a_row_whose_label_no_other_row_has_is_not_set_aside():
    labels = [["a", f"b{i}"] if i < 10 else ["a"] for i in range(40)]
    column = pa.array(labels, LABEL_TYPES["multi-label"])
    table = pa.table({"text": [f"t{i}" for i in range(40)], "label": column})
    train, dev = split_dev(table, 0.25, 1)
    assert 0 < len(dev) <= 10
    assert len(train) + len(dev) == 40
    assert {name for names in dev["label"].to_pylist() for name in names} == {"a"}
    with pytest.raises(
        InputError, match=r"none of 10 texts can be set aside as dev.*give --data\.dev"
    ):
        split_dev(table.slice(0, 10), 0.25, 1)


def test_a_model_says_its_task_or_transformers_would():
    for task, name in [("multi-label", "multi_label_classification"), ("regression", "regression")]:
        assert task_of_model(BertConfig(num_labels=3, problem_type=name)) == task
    assert (
        task_of_model(BertConfig(num_labels=2, problem_type="single_label_classification"))
        == "classification"
    )
    assert task_of_model(BertConfig(num_labels=1)) == "regression"
    assert task_of_model(BertConfig(num_labels=2)) == "classification"

"""Logits from anywhere: joined by content, named, and refused by the row where they are wrong."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit import pipeline
from distillkit.cli import main
from distillkit.data.logits import join_logits, read_store
from distillkit.data.tables import write_table
from distillkit.errors import InputError
from distillkit.recipe import (
    ColumnsConfig,
    EmbeddingConfig,
    LabelConfig,
    LossConfig,
    StudentConfig,
    TrainingConfig,
)

FULL = LabelConfig(shard_rows=20, storage="fp32")


@pytest.fixture
def source(train_table, tmp_path):
    write_table(train_table, tmp_path / "train.parquet")
    return str(tmp_path / "train.parquet")


def logits_of(table):
    """Two numbers a row that say its label, and differ from row to row."""
    sign = np.where(np.array(table["label"].to_pylist()) == "positive", 1.0, -1.0)
    value = sign * (1 + np.arange(len(table)) / 100)
    return np.stack([-value, value], axis=1).round(3)


def rows_of(table):
    names = [name for name in ("text", "text_pair") if name in table.column_names]
    return [
        row | {"logits": z}
        for row, z in zip(table.select(names).to_pylist(), logits_of(table).tolist(), strict=True)
    ]


@pytest.fixture
def write(tmp_path):
    def build(rows, name="api.jsonl"):
        path = tmp_path / name
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    return build


@pytest.mark.parametrize("name", ["api.jsonl", "api.parquet"])
def test_logits_follow_their_text_and_know_their_labels(source, train_table, write, tmp_path, name):
    rows = [*rows_of(train_table)[::-1], {"text": "nobody asks for this", "logits": [1, 2]}]
    summary = pipeline.label(
        source, tmp_path / "s", config=FULL, logits=write(rows, name), name="api"
    )
    assert summary["labelled_now"] == 96
    assert summary["labels"] == ["negative", "positive"]
    assert summary["accuracy_on_labelled"] == 1
    np.testing.assert_allclose(
        join_logits(train_table, tmp_path / "s"), logits_of(train_table), atol=1e-6
    )
    manifest = read_store(tmp_path / "s")["api"]
    assert (manifest["tokenizer"], manifest["precision"], manifest["storage"]) == (
        None,
        None,
        "fp32",
    )
    assert (
        pipeline.label(source, tmp_path / "s", config=FULL, logits=write(rows, name), name="api")[
            "labelled_now"
        ]
        == 0
    )


def test_pairs_are_joined_by_both_texts(pair_table, write, tmp_path):
    write_table(pair_table, tmp_path / "pairs.parquet")
    rows = [
        row | {"logits": [float(row["text"] < "the film is c"), float(len(row["text_pair"]))]}
        for row in pair_table.drop_columns("label").to_pylist()
    ]
    table = pair_table.drop_columns("label")
    write_table(table, tmp_path / "bare.parquet")
    columns = ColumnsConfig(text_pair="text_pair")
    pipeline.label(
        str(tmp_path / "bare.parquet"),
        tmp_path / "s",
        "",
        FULL,
        columns,
        logits=write(rows),
        labels=["a", "b"],
    )
    assert join_logits(table, tmp_path / "s").tolist() == [row["logits"] for row in rows]


def test_names_of_the_sources_columns_are_those_of_the_file_too(write, tmp_path):
    rows = [{"sentence": "a", "logits": [1, 2]}, {"sentence": "b", "logits": [3, 4]}]
    source, columns = (
        write([{"sentence": "b"}, {"sentence": "a"}], "source.jsonl"),
        ColumnsConfig(text="sentence"),
    )
    pipeline.label(source, tmp_path / "s", "", FULL, columns, logits=write(rows), labels=["x", "y"])
    assert join_logits(pa.table({"text": ["a", "b"]}), tmp_path / "s").tolist() == [[1, 2], [3, 4]]


def test_a_shard_of_a_store_is_such_a_file_and_names_its_own_labels(
    source, train_table, write, tmp_path
):
    reversed_logits = [row | {"logits": row["logits"][::-1]} for row in rows_of(train_table)]
    whole = LabelConfig(storage="fp32")
    pipeline.label(
        source,
        tmp_path / "s",
        config=whole,
        logits=write(reversed_logits),
        labels=["positive", "negative"],
    )
    (shard,) = (tmp_path / "s" / "teacher").glob("shard-*")
    summary = pipeline.label(source, tmp_path / "again", config=whole, logits=str(shard))
    assert summary["labels"] == ["positive", "negative"]  # and not the source's order
    assert summary["accuracy_on_labelled"] == 1


def test_rows_that_the_file_has_not_are_counted_and_the_first_is_quoted(
    source, train_table, write, tmp_path
):
    first = train_table["text"][40].as_py()
    with pytest.raises(
        InputError, match=rf"api\.jsonl: 56 of 96 rows have no logits there, the first is '{first}'"
    ):
        pipeline.label(source, tmp_path / "s", logits=write(rows_of(train_table)[:40]))
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["api.jsonl", "api.parquet"])
@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([1.0, 2.0, 3.0], "3 logits, but the first row has 2"),
        ([1.0, float("nan")], "expected finite numbers"),
        ([1.0, float("inf")], "expected finite numbers"),
        ([], "expected a list of numbers"),
        (None, "expected a list of numbers"),
        ([1.0, None], "expected a list of numbers"),
    ],
)
def test_wrong_logits_are_said_with_their_row(
    source, train_table, write, tmp_path, name, logits, message
):
    rows = rows_of(train_table)
    rows[6]["logits"] = logits
    place = "api.jsonl:7" if name == "api.jsonl" else "api.parquet row 7"
    with pytest.raises(InputError, match=rf"{place}: .*{message}"):
        pipeline.label(source, tmp_path / "s", logits=write(rows, name))


def test_text_is_no_list_of_numbers(write, source, tmp_path):
    with pytest.raises(
        InputError, match=r"api\.jsonl:1: logits are '12'; expected a list of numbers"
    ):
        pipeline.label(source, tmp_path / "s", logits=write([{"text": "a", "logits": "12"}]))
    with pytest.raises(InputError, match=r"api\.jsonl:1: no column 'logits'; there is 'text'"):
        pipeline.label(source, tmp_path / "s", logits=write([{"text": "a"}]))


def test_the_same_text_twice_needs_the_same_logits(source, train_table, write, tmp_path):
    rows = rows_of(train_table)
    pipeline.label(source, tmp_path / "s", logits=write([*rows, rows[3]]))
    with pytest.raises(
        InputError, match=r"api\.jsonl:97: the text of .*api\.jsonl:4 with other logits"
    ):
        pipeline.label(source, tmp_path / "s2", logits=write([*rows, rows[3] | {"logits": [9, 9]}]))


def test_labels_that_nobody_names_or_that_are_not_as_many_are_refused(
    source, train_table, write, tmp_path
):
    api = write(rows_of(train_table))
    bare = write([{"text": text} for text in train_table["text"].to_pylist()], "bare.jsonl")
    with pytest.raises(
        InputError, match=r"2 logits a row, but no labels; name 2 different ones, .* --labels"
    ):
        pipeline.label(bare, tmp_path / "s", logits=api)
    for labels in (["a", "b", "c"], ["a", "a"]):
        with pytest.raises(InputError, match=rf"but {len(labels)} labels \({', '.join(labels)}\)"):
            pipeline.label(bare, tmp_path / "s", logits=api, labels=labels)
    assert pipeline.label(bare, tmp_path / "s", logits=api, labels=["x", "y"])["labels"] == [
        "x",
        "y",
    ]


def test_logits_at_chance_or_of_other_labels_are_refused(source, train_table, write, tmp_path):
    constant = [row | {"logits": [1, 0]} for row in rows_of(train_table)]
    with pytest.raises(
        InputError, match=r"api\.jsonl: the teacher is at chance on the labelled rows"
    ):
        pipeline.label(source, tmp_path / "s", logits=write(constant))
    with pytest.raises(InputError, match="label 'negative' was never seen"):
        pipeline.label(
            source, tmp_path / "s", logits=write(rows_of(train_table)), labels=["bad", "good"]
        )
    assert not (tmp_path / "s").exists()


def test_another_file_is_another_teacher(source, train_table, write, tmp_path):
    pipeline.label(source, tmp_path / "s", logits=write(rows_of(train_table)))
    with pytest.raises(
        InputError, match=r"manifest\.json: made with weights .*choose another --name"
    ):
        pipeline.label(
            source,
            tmp_path / "s",
            logits=write([{"text": "more", "logits": [1, 2]}, *rows_of(train_table)]),
        )


def test_either_a_teacher_or_a_file(
    source, train_table, write, tmp_path, classifier_folder, capsys
):
    api = write(rows_of(train_table))
    for options in ([], ["--teacher", classifier_folder, "--logits", api]):
        assert main(["label", source, str(tmp_path / "s"), *options]) == 1
        assert (
            "expected either --teacher, a checkpoint, or --logits, a file of logits"
            in capsys.readouterr().err
        )
    assert (
        main(
            [
                "label",
                source,
                str(tmp_path / "s"),
                "--teacher",
                classifier_folder,
                "--labels",
                "a",
                "b",
            ]
        )
        == 1
    )
    assert "a --teacher has its own labels" in capsys.readouterr().err
    assert (
        main(
            [
                "label",
                source,
                str(tmp_path / "s"),
                "--logits",
                api,
                "--labels",
                "negative",
                "positive",
                "--name",
                "api",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["labelled_now"] == 96
    assert list(read_store(tmp_path / "s")) == ["api"]


@pytest.mark.slow
def test_the_student_learns_from_the_teachers_that_are_chosen(source, train_table, write, tmp_path):
    right = rows_of(train_table)
    wrong = [row | {"logits": row["logits"][::-1]} for row in right]
    bare = write([{"text": row["text"]} for row in right], "bare.jsonl")
    for name, rows in (("right", right), ("wrong", wrong)):
        api = write(rows, f"{name}.jsonl")
        pipeline.label(bare, tmp_path / "s", logits=api, labels=["negative", "positive"], name=name)
    student = StudentConfig(
        hidden_size=8, head_size=8, dropout=0, embeddings=EmbeddingConfig("random", 8)
    )
    training = TrainingConfig(epochs=10, batch_size=16, learning_rate=0.02, precision="fp32")

    def score(teachers):
        loss = LossConfig(teachers=teachers)
        output = tmp_path / "-".join(teachers)
        summary = pipeline.train_student(
            pipeline.StudentJob(
                bare, source, output, student, logits=tmp_path / "s", loss=loss, training=training
            )
        )
        return summary["history"][-1]

    assert score(("right",))["dev"] > 0.9
    assert score(("wrong",))["dev"] < 0.1
    assert score(("wrong=1", "right=9"))["dev"] > 0.9
    with pytest.raises(InputError, match="no teacher 'large'; there is right, wrong"):
        score(("large",))

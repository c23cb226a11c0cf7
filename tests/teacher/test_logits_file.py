"""Logits from anywhere: joined by content, named, and refused by the row where they are wrong."""

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from distillkit import pipeline
from distillkit.cli import main
from distillkit.data import keys, scratch
from distillkit.data.logits import join_logits, read_store
from distillkit.data.tables import with_mask, write_table
from distillkit.errors import InputError
from distillkit.recipe import (
    ColumnsConfig,
    EmbeddingConfig,
    LabelConfig,
    LossConfig,
    StudentConfig,
    TrainingConfig,
)
from distillkit.teacher import logits_file
from distillkit.teacher.label import label_from_file
from distillkit.teacher.logits_file import LogitsFile

FULL = LabelConfig(shard_rows=20, storage="fp32")


@pytest.fixture
def source(train_table, tmp_path):
    write_table(train_table, tmp_path / "train.parquet")
    return str(tmp_path / "train.parquet")


@pytest.fixture
def store(tmp_path):
    return tmp_path / "s"


@pytest.fixture
def unlabelled(write, train_table):
    return write([{"text": text} for text in train_table["text"].to_pylist()], "bare.jsonl")


def logits_of(table):
    """Two numbers a row that say its label, and differ from row to row."""
    sign = np.where(np.array(table["label"].to_pylist()) == "positive", 1.0, -1.0)
    value = sign * (1 + np.arange(len(table)) / 100)
    return np.stack([-value, value], axis=1).round(3)


def rows_of(table):
    names = [name for name in ("text", "text_pair") if name in table.column_names]
    rows = zip(table.select(names).to_pylist(), logits_of(table).tolist(), strict=True)
    return [row | {"logits": logits} for row, logits in rows]


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
def test_logits_follow_their_text_and_know_their_labels(source, train_table, write, store, name):
    rows = [*rows_of(train_table)[::-1], {"text": "nobody asks for this", "logits": [1, 2]}]
    options = {"config": FULL, "logits": write(rows, name), "name": "api"}
    summary = pipeline.label(source, store, **options)
    assert summary["labelled_now"] == 96
    assert summary["labels"] == ["negative", "positive"]
    assert summary["accuracy_on_labelled"] == 1
    np.testing.assert_allclose(join_logits(train_table, store), logits_of(train_table), atol=1e-6)
    manifest = read_store(store)["api"]
    assert manifest["tokenizer"] is manifest["precision"] is None
    assert manifest["storage"] == "fp32"
    assert pipeline.label(source, store, **options)["labelled_now"] == 0


def test_pairs_are_joined_by_both_texts(pair_table, write, store, tmp_path):
    table = pair_table.drop_columns("label")
    rows = [
        row | {"logits": [float(row["text"] < "the film is c"), float(len(row["text_pair"]))]}
        for row in table.to_pylist()
    ]
    write_table(table, tmp_path / "bare.parquet")
    columns = ColumnsConfig(text_pair="text_pair")
    source, options = str(tmp_path / "bare.parquet"), {"logits": write(rows), "labels": ["a", "b"]}
    pipeline.label(source, store, "", FULL, columns, **options)
    assert join_logits(table, store).tolist() == [row["logits"] for row in rows]


def test_names_of_the_sources_columns_are_those_of_the_file_too(write, store):
    rows = [{"sentence": "a", "logits": [1, 2]}, {"sentence": "b", "logits": [3, 4]}]
    source = write([{"sentence": "b"}, {"sentence": "a"}], "source.jsonl")
    columns, options = ColumnsConfig(text="sentence"), {"logits": write(rows), "labels": ["x", "y"]}
    pipeline.label(source, store, "", FULL, columns, **options)
    assert join_logits(pa.table({"text": ["a", "b"]}), store).tolist() == [[1, 2], [3, 4]]


def test_a_shard_of_a_store_is_such_a_file_and_names_its_own_labels(
    source, train_table, write, store, tmp_path
):
    api = write([row | {"logits": row["logits"][::-1]} for row in rows_of(train_table)])
    whole, labels = LabelConfig(storage="fp32"), ["positive", "negative"]
    pipeline.label(source, store, config=whole, logits=api, labels=labels)
    (shard,) = (store / "teacher").glob("shard-*")
    summary = pipeline.label(source, tmp_path / "again", config=whole, logits=str(shard))
    assert summary["labels"] == labels  # and not the source's order
    assert summary["accuracy_on_labelled"] == 1
    said = "its logits are of positive, negative, and negative, positive are given; leave out"
    with pytest.raises(InputError, match=said):
        pipeline.label(source, tmp_path / "x", logits=str(shard), labels=labels[::-1])


def test_labelled_rows_of_one_class_are_enough_to_label(
    source, train_table, write, store, tmp_path
):
    one = train_table.filter(pc.equal(train_table["label"], "negative"))
    write_table(one, tmp_path / "one.parquet")
    options = {"logits": write(rows_of(train_table)), "labels": ["negative", "positive"]}
    summary = pipeline.label(str(tmp_path / "one.parquet"), store, **options)
    assert summary["accuracy_on_labelled"] == 1


def test_rows_that_the_file_has_not_are_counted_and_the_first_is_quoted(
    source, train_table, write, store
):
    first = train_table["text"][40].as_py()
    said = rf"api\.jsonl: 56 of 96 rows have no logits there, the first is '{first}'"
    with pytest.raises(InputError, match=said):
        pipeline.label(source, store, logits=write(rows_of(train_table)[:40]))
    assert not store.exists()


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
    source, train_table, write, store, name, logits, message
):
    rows = rows_of(train_table)
    rows[6]["logits"] = logits
    place = "api.jsonl:7" if name == "api.jsonl" else "api.parquet row 7"
    with pytest.raises(InputError, match=rf"{place}: .*{message}"):
        pipeline.label(source, store, logits=write(rows, name))


def test_text_is_no_list_of_numbers(write, source, store):
    for row, said in (
        ({"text": "a", "logits": "12"}, "logits are '12'; expected a list of numbers"),
        ({"text": "a"}, "no column 'logits'; there is 'text': rename yours"),
    ):
        with pytest.raises(InputError, match=rf"api\.jsonl:1: {said}"):
            pipeline.label(source, store, logits=write([row]))


def test_the_same_text_twice_needs_the_same_logits(source, train_table, write, store, tmp_path):
    rows = rows_of(train_table)
    pipeline.label(source, store, logits=write([*rows, rows[3]]))
    other = write([*rows, rows[3] | {"logits": [9, 9]}])
    said = r"api\.jsonl:97: the text of .*api\.jsonl:4 with other logits"
    with pytest.raises(InputError, match=said):
        pipeline.label(source, tmp_path / "s2", logits=other)


def test_a_file_that_is_read_and_joined_in_parts_gives_the_same(
    source, train_table, write, store, tmp_path, monkeypatch
):
    rows = rows_of(train_table)
    command = {"config": FULL, "logits": write([*rows[::-1], *rows[:9]])}
    whole = pipeline.label(source, store, **command)
    monkeypatch.setattr(keys, "PART_KEYS", 7)
    monkeypatch.setattr(keys, "_CUT_KEYS", 5)
    monkeypatch.setattr(scratch, "MAPPED_BYTES", 100)
    monkeypatch.setattr(logits_file, "BLOCK_ROWS", 11)
    found = pipeline.label(source, tmp_path / "parts", **command)
    assert dict(found) == dict(whole) | {"output": str(tmp_path / "parts")}
    shards = [sorted((tmp_path / name).glob("*/shard-*")) for name in ("s", "parts")]
    bytes_of = [{path.name: path.read_bytes() for path in paths} for paths in shards]
    assert bytes_of[0] == bytes_of[1]
    twice = [*rows, *(rows[i] | {"logits": [9, 9]} for i in (50, 3))]
    said = r"jsonl:97: the text of .*jsonl:51 with other logits"
    with pytest.raises(InputError, match=said):
        pipeline.label(source, tmp_path / "s3", logits=write(twice))
    lacking = [row for i, row in enumerate(rows) if i not in (40, 70)]
    said = f"2 of 96 rows have no logits there, the first is {rows[40]['text']!r}"
    with pytest.raises(InputError, match=re.escape(said)):
        pipeline.label(source, tmp_path / "s3", logits=write(lacking))


def test_labels_that_nobody_names_or_that_are_not_as_many_are_refused(
    unlabelled, train_table, write, store
):
    api = write(rows_of(train_table))
    for labels, said in (
        ([], r"2 logits a row, but no labels; name 2 different ones, .* --labels"),
        (["a", "b", "c"], r"but 3 labels \(a, b, c\)"),
        (["a", "a"], r"but 2 labels \(a, a\)"),
    ):
        with pytest.raises(InputError, match=said):
            pipeline.label(unlabelled, store, logits=api, labels=labels)
    summary = pipeline.label(unlabelled, store, logits=api, labels=["x", "y"])
    assert summary["labels"] == ["x", "y"]


def test_logits_at_chance_or_of_other_labels_are_refused(source, train_table, write, store):
    rows = rows_of(train_table)
    constant = [row | {"logits": [1, 0]} for row in rows]
    with pytest.raises(InputError, match=r"api\.jsonl: the teacher is at chance on the labelled"):
        pipeline.label(source, store, logits=write(constant))
    with pytest.raises(InputError, match="label 'negative' was never seen"):
        pipeline.label(source, store, logits=write(rows), labels=["bad", "good"])
    assert not store.exists()


def test_another_file_is_another_teacher(source, train_table, write, store):
    rows = rows_of(train_table)
    pipeline.label(source, store, logits=write(rows))
    other = write([{"text": "more", "logits": [1, 2]}, *rows])
    with pytest.raises(InputError, match=r"manifest\.json: made with weights .*another --name"):
        pipeline.label(source, store, logits=other)


def test_either_a_teacher_or_a_file(source, train_table, write, store, classifier_folder, capsys):
    command = ["label", source, str(store)]
    teacher, api = ["--teacher", classifier_folder], ["--logits", write(rows_of(train_table))]
    either = "expected either --teacher, a checkpoint, or --logits, a file of logits"
    for options, said in (
        ([], either),
        ([*teacher, *api], either),
        ([*teacher, "--labels", "a", "b"], "its own labels want no --labels"),
    ):
        assert main([*command, *options]) == 1
        assert said in capsys.readouterr().err
    assert main([*command, *api, "--labels", "negative", "positive", "--name", "api"]) == 0
    assert json.loads(capsys.readouterr().out)["labelled_now"] == 96
    assert list(read_store(store)) == ["api"]


@pytest.mark.slow
def test_the_student_learns_from_the_teachers_that_are_chosen(
    source, unlabelled, train_table, write, store, tmp_path
):
    right = rows_of(train_table)
    wrong = [row | {"logits": row["logits"][::-1]} for row in right]
    for name, rows in (("right", right), ("wrong", wrong)):
        options = {"logits": write(rows, f"{name}.jsonl"), "labels": ["negative", "positive"]}
        pipeline.label(unlabelled, store, name=name, **options)
    embeddings = EmbeddingConfig("random", 8)
    student = StudentConfig(hidden_size=8, head_size=8, dropout=0, embeddings=embeddings)
    how = TrainingConfig(epochs=10, batch_size=16, learning_rate=0.02, precision="fp32")

    def score(*teachers):
        options = {"logits": store, "loss": LossConfig(teachers=teachers), "training": how}
        output = tmp_path / "-".join(teachers)
        job = pipeline.StudentJob(unlabelled, source, output, student, **options)
        return pipeline.train_student(job)["history"][-1]["dev"]

    assert score("right") > 0.9
    assert score("wrong") < 0.1
    assert score("wrong=1", "right=9") > 0.9
    with pytest.raises(InputError, match="no teacher 'large'; there is right, wrong"):
        score("large")
    how = replace(how, sampling_weights=("original=2",))
    with pytest.raises(InputError, match="no column 'origin', by which"):
        score("right")


@pytest.mark.parametrize("number", ["9" * 400, '"a"', "[1]", "null", '{"1": 2}', "1e300"])
def test_what_is_no_number_among_logits_is_said_with_its_line(tmp_path, number):
    path = tmp_path / "api.jsonl"
    path.write_text(f'{{"text": "a", "logits": [{number}, 1]}}\n')
    with pytest.raises(InputError, match=r"api.jsonl:1: logits are ") as caught:
        LogitsFile(str(path), ColumnsConfig())
    assert len(str(caught.value)) <= 2_000


@pytest.mark.parametrize("labels", ["[", "3", "[1, 2]", '{"a": 1, "b": 2}', b"\xff"])
def test_names_in_a_shards_metadata_are_names_or_refused(tmp_path, labels):
    table = pa.table({"text": ["a"], "logits": [[1.0, 2.0]]})
    path = tmp_path / "api.parquet"
    pq.write_table(table.replace_schema_metadata({"distillkit.labels": labels}), path)
    with pytest.raises(InputError, match=r"api.parquet: distillkit.labels in its metadata"):
        LogitsFile(str(path), ColumnsConfig()).name_labels([], ["x", "y"])


def test_dev_rows_are_added_to_a_store_that_a_transfer_set_began(train_table, store, tmp_path):
    transfer, dev = train_table.slice(0, 20), train_table.slice(20)
    (tmp_path / "api.jsonl").write_text(
        "".join(map("{}\n".format, map(json.dumps, rows_of(train_table))))
    )
    file = LogitsFile(str(tmp_path / "api.jsonl"), ColumnsConfig())
    label_from_file(with_mask(transfer, "[MASK]"), store, file, FULL)
    assert label_from_file(dev, store, file, FULL)["labelled_now"] == len(dev)
    assert join_logits(train_table, store).shape == (len(train_table), 2)
    assert read_store(store)["teacher"]["mask"] == "[MASK]"


def test_labels_named_in_another_order_are_refused_with_the_right_one(source, store, train_table):
    rows = rows_of(train_table)
    given = (pa.array([row["text"] for row in rows]), pa.array([row["logits"] for row in rows]))
    logits = pa.table(given, ["text", "logits"])
    with pytest.raises(
        InputError,
        match=r"rather of negative, positive; name their labels .* with --labels or",
    ):
        pipeline.label(source, store, logits=logits, labels=["positive", "negative"])
    assert not store.exists()
    pipeline.label(source, store, logits=logits, labels=["negative", "positive"])


def test_scores_are_kept_to_the_digit_however_large(store):
    scores = [2005.26, 105_000.5, -3.0]
    table = pa.table({"text": ["a", "b", "c"], "logits": [[score] for score in scores]})
    pipeline.label(table.select(["text"]), store, logits=table, task="regression")
    stored = join_logits(pa.table({"text": ["a", "b", "c"]}), store)[:, 0]
    assert stored.tolist() == np.float32(scores).tolist()

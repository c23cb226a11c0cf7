"""`doctor --labels`: wrong labels are found, and the file goes back into the data row by row."""

import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from distillkit import pipeline
from distillkit.cli import main
from distillkit.data.corrections import check_corrections, read_corrections
from distillkit.data.tables import write_table
from distillkit.doctor.examine import doctor
from distillkit.doctor.labels import suspect_labels
from distillkit.errors import InputError
from distillkit.measure.suspects import cross_fitted, unlikely
from distillkit.recipe import ColumnsConfig, DataConfig, Recipe, TeacherConfig
from distillkit.runs import at_work, teach

WRONG = {("train", 1), ("train", 50), ("train", 90), ("dev", 3)}


def _turned(table, rows):
    labels = table["label"].to_pylist()
    for row in rows:
        labels[row - 1] = {"negative": "positive", "positive": "negative"}[labels[row - 1]]
    return table.set_column(1, "label", pa.array(labels))


def _file(path, table):
    write_table(table, path)
    return str(path)


@pytest.fixture
def recipe(tmp_path, encoder_folder, train_table, dev_table):
    """A task whose labels follow from one word, four of them turned."""
    tables = {"train": train_table, "dev": dev_table}
    sources = {
        split: _file(
            tmp_path / f"{split}.parquet", _turned(table, [row for s, row in WRONG if s == split])
        )
        for split, table in tables.items()
    }
    return Recipe(data=DataConfig(**sources), teacher=TeacherConfig(encoder_folder, 16))


@pytest.fixture
def written(recipe, tmp_path):
    target = tmp_path / "labels.csv"
    suspect_labels(recipe, target, "")
    return target


def _rows(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def _save(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=";")  # as many spreadsheets do
        writer.writeheader()
        writer.writerows(rows)


def _with(recipe, file):
    return replace(recipe, data=replace(recipe.data, corrections=str(file)))


def test_the_wrong_labels_come_first(written, recipe):
    rows = _rows(written)
    assert {(row["split"], int(row["row"])) for row in rows[:4]} == WRONG
    first = rows[0]
    assert list(first) == [
        *("split", "row", "text", "label", "suggested", "probability", "reason", "correction")
    ]
    assert {first["label"], first["suggested"]} == {"negative", "positive"}
    assert float(first["probability"]) < 0.5
    assert (first["reason"], first["correction"]) == ("unlikely", "")
    assert written.read_bytes().startswith(b"\xef\xbb\xbf")  # or Excel reads it as Latin-1


def test_the_command_writes_the_file_and_says_so(recipe, tmp_path, capsys):
    target = tmp_path / "found.csv"
    data = recipe.data
    options = ["--data.train", data.train, "--data.dev", data.dev, "--teacher.model"]
    command = ["doctor", "trec-bilstm", *options, recipe.teacher.model]
    columns = ["--data.columns.text", "text", "--labels", str(target)]
    assert main([*command, *columns]) == 0
    out, err = capsys.readouterr()
    found = {one["check"]: one for one in json.loads(out)["findings"]}["labels"]
    assert found["metrics"]["file"] == str(target)
    assert f"data.corrections: {target}" in " ".join(err.split())
    assert {(row["split"], int(row["row"])) for row in _rows(target)[:4]} == WRONG
    assert main([*command, *columns]) == 1
    assert f"--labels {target}: is there already" in capsys.readouterr().err


def test_corrections_change_the_data_and_are_counted(recipe, written, tmp_path, tiny_recipe):
    rows = _rows(written)
    for row in rows:
        row["correction"] = row["suggested"]
    removed = next(row for row in rows if row["row"] == "50")
    removed["correction"] = "remove"
    _save(written, rows)
    before, after = (pipeline.read_data(one.data) for one in (recipe, _with(recipe, written)))
    left = {split: [] for split in before}
    for split, table in before.items():
        for number, row in enumerate(table.to_pylist(), start=1):
            own = next((r for r in rows if (r["split"], r["row"]) == (split, str(number))), {})
            if own.get("correction") != "remove":
                left[split].append(row | {"label": own.get("correction") or row["label"]})
    assert {split: table.to_pylist() for split, table in after.items()} == left
    teacher = replace(tiny_recipe.teacher, training=replace(tiny_recipe.teacher.training, epochs=1))
    tiny = replace(_with(recipe, written), teacher=teacher, student=tiny_recipe.student)
    with at_work(tmp_path / "run") as home:
        counts = teach(tiny, home, tmp_path / "recipe.yaml").data["corrections"]
    assert counts == {
        "train": {"corrected": 2, "removed": 1},
        "dev": {"corrected": 1, "removed": 0},
    }


def test_a_second_file_keeps_what_was_decided(recipe, written, tmp_path):
    rows = _rows(written)
    rows[0]["correction"], rows[1]["correction"] = rows[0]["suggested"], "remove"
    _save(written, rows)
    again = tmp_path / "again.csv"
    suspect_labels(_with(recipe, written), again, "")
    found = _rows(again)
    assert [row["correction"] for row in found[:3]] == [rows[0]["suggested"], "remove", ""]
    assert [row["text"] for row in found[:2]] == [row["text"] for row in rows[:2]]
    assert {(row["split"], int(row["row"])) for row in found[:4]} == WRONG
    first, second = (pipeline.read_data(_with(recipe, one).data) for one in (written, again))
    assert first["train"].equals(second["train"])


def test_dev_that_is_cut_from_train_is_corrected_before(recipe, tmp_path):
    alone = replace(recipe, data=replace(recipe.data, dev="", dev_fraction=0.2))
    target = tmp_path / "alone.csv"
    suspect_labels(alone, target, "")
    rows = _rows(target)
    assert {row["split"] for row in rows} == {"train"}
    for row in rows:
        row["correction"] = row["suggested"] if ("train", int(row["row"])) in WRONG else ""
    _save(target, rows)
    for seed in (1, 2):  # other rows are dev
        tables = pipeline.read_data(_with(alone, target).data, seed)
        for row in [row for split in ("train", "dev") for row in tables[split].to_pylist()]:
            good = any(word in row["text"] for word in ("good", "great", "fine", "bright"))
            assert row["label"] == ("positive" if good else "negative")


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("text", "another text", "text is 'another text', expected"),
        ("label", "neutral", "label is 'neutral', expected"),
        ("row", "4000", "row 4000 of train, which has 96 rows; write the file again"),
        ("row", "", "row ''; expected train or dev, and a row's number"),
        ("split", "test", "split 'test', row"),
        ("correction", "postive", "label 'postive' was never seen in training"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_its_line(recipe, written, column, value, expected):
    rows = _rows(written)
    rows[0] |= {"split": "train", "row": "1"} | {
        name: recipe_value
        for name, recipe_value in pipeline.read_data(recipe.data)["train"].to_pylist()[0].items()
    }
    rows = [rows[0], *[row for row in rows[1:] if (row["split"], row["row"]) != ("train", "1")]]
    rows[0][column] = value
    _save(written, rows)
    with pytest.raises(InputError) as error:
        pipeline.read_data(_with(recipe, written).data)
    assert str(error.value).startswith(f"{written}:2: ")
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_labels_that_a_spreadsheet_has_put_in_capitals_are_known(recipe, written, tmp_path, capsys):
    rows = _rows(written)
    rows[0]["correction"] = rows[0]["suggested"]
    rows[1]["correction"] = rows[1]["label"]  # confirmed, not corrected
    loud = tmp_path / "loud.csv"
    _save(written, rows)
    _save(
        loud, [row | {name: row[name].upper() for name in ("label", "correction")} for row in rows]
    )
    quiet, found = (pipeline.read_data(_with(recipe, one).data) for one in (written, loud))
    assert found == quiet
    assert capsys.readouterr().err.count(f"of {rows[0]['split']} 1 labels are corrected") == 2


def test_a_label_that_is_called_remove_is_no_row_to_remove(recipe, written, train_table):
    one = read_corrections(str(written))[:1]
    with pytest.raises(InputError, match=r"a label is called 'remove', which .* leaves a row out"):
        check_corrections(one, {"train": train_table}, ["add", "remove"])


def test_a_row_twice_and_a_file_of_another_kind_are_refused(recipe, written, tmp_path):
    rows = _rows(written)
    _save(written, [*rows, rows[0]])
    with pytest.raises(InputError, match=f"stands at {written}:2 already; drop one"):
        pipeline.read_data(_with(recipe, written).data)
    other = tmp_path / "other.csv"
    other.write_text("text,label\ngood,positive\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column 'split'; expected the columns that"):
        pipeline.read_data(_with(recipe, other).data)


def test_only_a_classification_has_labels_to_rank(recipe, tmp_path):
    for task in ("multi-label", "regression"):
        other = replace(recipe, data=replace(recipe.data, task=task))
        with pytest.raises(InputError, match=f"but data.task is {task}; leave it out"):
            doctor(other, labels=tmp_path / "labels.csv")
        with pytest.raises(InputError, match=f"but data.task is {task}; leave it out"):
            DataConfig(task=task, corrections="labels.csv")
    with pytest.raises(InputError, match="expected a file to write whose name ends in"):
        doctor(recipe, labels=tmp_path / "labels.xlsx")


def test_rows_of_the_same_words_stand_together(recipe, tmp_path, train_table):
    table = train_table.slice(0, 40)
    more = pa.table({"text": ["=The film is GOOD!", "two\nlines"], "label": ["negative"] * 2})
    assert "the film is good ." in table["text"].to_pylist()
    train = _file(tmp_path / "twins.parquet", pa.concat_tables([table, more]))
    target = tmp_path / "twins.csv"
    suspect_labels(replace(recipe, data=replace(recipe.data, train=train)), target, "")
    rows = _rows(target)
    place = next(i for i, row in enumerate(rows) if row["row"] == "41")
    own, others = rows[place], [rows[i] for i in (place - 1, place + 1) if 0 <= i < len(rows)]
    assert "same words: train " in own["reason"]
    assert own["text"] == " =The film is GOOD!"  # a spreadsheet would compute it
    assert any(row["text"] == "the film is good ." for row in others)
    rows = [row | {"correction": "positive" if row is own else ""} for row in rows]
    _save(target, rows)
    data = replace(recipe.data, train=train, corrections=str(target))
    assert pipeline.read_data(data)["train"]["label"][40].as_py() == "positive"


def test_pairs_are_ranked_with_the_encoders_vectors(tmp_path, encoder_folder, pair_table):
    labels = pair_table["label"].to_pylist()
    names = sorted(set(labels))
    labels[0] = next(name for name in names if name != labels[0])
    place = pair_table.column_names.index("label")
    source = _file(
        tmp_path / "pairs.parquet", pair_table.set_column(place, "label", pa.array(labels))
    )
    data = DataConfig(train=source, columns=ColumnsConfig(text_pair="text_pair"))
    target = tmp_path / "labels.csv"
    recipe = Recipe(data=data, teacher=TeacherConfig(encoder_folder, 16))
    found = suspect_labels(recipe, target, encoder_folder)
    assert found.metrics["rows"] == len(labels)
    rows = _rows(target)
    assert "text_pair" in rows[0]
    assert len(read_corrections(str(target))) == len(rows)


def test_a_row_is_judged_by_models_that_never_saw_it_nor_its_copies():
    gold = np.array([0, 1] * 10 + [2])
    groups = np.array([*range(19), 18, 20])  # rows 18 and 19 are copies
    seen = []

    def fit(learn, answer):
        seen.append((set(learn.tolist()), set(answer.tolist())))
        out = np.log(np.full((len(answer), 3), 0.1))
        out[np.arange(len(answer)), gold[answer]] = np.log(0.8)
        return out

    found = cross_fitted([fit], gold, 3, groups, 1)
    assert all(not learn & answer for learn, answer in seen)
    assert all(({18, 19} <= learn) or not ({18, 19} & learn) for learn, _ in seen)
    assert np.isnan(found[20]).all()  # the only one of its class
    assert not np.isnan(found[:20]).any()
    assert found[:20].sum(axis=1) == pytest.approx(1)


def test_a_label_is_unlikely_where_another_is_surer_than_usual():
    found = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.2, 0.8], [0.05, 0.95], [np.nan] * 2])
    gold = np.array([0, 0, 1, 1, 0, 1])
    # Class 1 has 0.75 on average where it is the label; class 0 has 0.58.
    assert unlikely(found, gold).tolist() == [False, False, False, False, True, False]

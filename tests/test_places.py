"""Commands on a run's folder: the model in it, its columns, its finished work."""

import io
import json
import shutil
import sys
from dataclasses import replace

import pytest

from distillkit import pipeline
from distillkit.cli import main, parse
from distillkit.cli.places import BUNDLE, STUDENT, TEACHER, columns_of, model_in
from distillkit.data.tables import write_table
from distillkit.errors import InputError
from distillkit.pipeline.export import change_manifest
from distillkit.recipe import ColumnsConfig
from distillkit.runtime.bundle import read_bundle

ROWS = "review,stars\na good one,positive\na bad one,negative\n"


@pytest.fixture
def run(tmp_path, classifier_folder):
    """A run's folder with a student, and a file with the run's columns."""
    for place in (STUDENT, TEACHER):
        shutil.copytree(classifier_folder, tmp_path / "run" / place)
    columns = "{text: review, label: stars}"
    (tmp_path / "run" / "data").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text(f"data: {{columns: {columns}}}\n")
    (tmp_path / "new.csv").write_text(ROWS)
    return tmp_path / "run"


def result(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_folder_of_a_run_means_the_first_place_that_is_there(run, tmp_path, capsys):
    assert model_in(str(run), BUNDLE, STUDENT) == str(run / STUDENT)
    assert f"using {run / STUDENT}" in capsys.readouterr().err
    (run / BUNDLE).touch()
    assert model_in(str(run), BUNDLE, STUDENT) == str(run / BUNDLE)
    assert model_in(str(run), TEACHER) == str(run / TEACHER)
    for other in (run / STUDENT, tmp_path, tmp_path / "none"):
        assert model_in(str(other), BUNDLE, STUDENT) == str(other)
    assert model_in("", TEACHER) == ""
    shutil.rmtree(run / "student")
    with pytest.raises(
        InputError, match=r"the run has no student/model yet; finish it: distillkit"
    ):
        model_in(str(run), STUDENT)


def test_compress_takes_the_student_of_a_run(run, tmp_path, capsys):
    (run / STUDENT / "config.json").unlink()
    asked = ["compress", str(run), str(tmp_path / "small"), "--dev", str(tmp_path / "new.csv")]
    assert main([*asked, "--compress.embeddings", "int8"]) == 1
    said = capsys.readouterr().err
    assert f"using {run / STUDENT}" in said
    assert f"{run / STUDENT}: no checkpoint" in said


def test_augment_takes_the_teacher_of_a_run(run, tmp_path, capsys):
    asked = ["augment", str(tmp_path / "new.csv"), str(tmp_path / "transfer.parquet")]
    columns = ["--data.columns.text", "review", "--data.columns.label", "stars"]
    assert main([*asked, *columns, "--teacher", str(run), "--augment.n-iter", "0"]) == 0
    assert f"using {run / TEACHER}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_is_evaluated_by_its_student_or_bundle_with_the_columns_it_knows(run, capsys):
    asked = ["evaluate", str(run), str(run.parent / "new.csv"), "--teacher", str(run)]
    assert main(asked) == 0
    assert "calibration_error_scaled 0." in capsys.readouterr().err
    assert main(asked) == 0
    student = result(capsys)
    assert 0 <= student["calibration_error_scaled"] <= 1
    assert (student["rows"], student["agreement"]) == (2, 1.0)
    pipeline.export(str(run / STUDENT), run / BUNDLE, one_file=True)
    assert main(asked) == 0
    assert result(capsys)["accuracy"] == student["accuracy"]


def test_a_bundle_is_evaluated_at_its_temperature(run, dev_table):
    pipeline.export(str(run / STUDENT), run / BUNDLE, one_file=True)
    logits, names = pipeline.classify(str(run / STUDENT), dev_table, "dev")
    change_manifest(run / BUNDLE, temperature=2.0)
    found, labels = pipeline.classify(str(run / BUNDLE), dev_table, "dev", names)
    assert labels == names
    assert abs(found - logits / 2).max() < 1e-4


@pytest.mark.slow
def test_rows_that_are_answered_in_blocks_are_scored_as_those_answered_at_once(
    run, dev_table, monkeypatch, tmp_path
):
    write_table(dev_table, tmp_path / "dev.parquet")
    pipeline.export(str(run / STUDENT), run / BUNDLE, one_file=True)

    def scores():
        for model in (STUDENT, BUNDLE):
            found = pipeline.evaluate(
                str(run / model), tmp_path / "dev.parquet", teacher=str(run / STUDENT)
            )
            yield {name: value for name, value in found.items() if isinstance(value, float)}

    whole = list(scores())
    monkeypatch.setattr("distillkit.data.tables.BLOCK_ROWS", 7)
    monkeypatch.setattr("distillkit.data.scratch.MAPPED_BYTES", 50)
    for blocks, once in zip(scores(), whole, strict=True):
        assert blocks == pytest.approx(once, abs=1e-5)


def test_predict_takes_a_run(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a good one\n")))
    assert main(["predict", str(run)]) == 0
    assert result(capsys)["label"] == "positive"


def test_columns_that_are_given_or_that_a_source_lacks_are_not_the_runs(run, capsys):
    known, model = ColumnsConfig(text="review", label="stars"), str(run / STUDENT)
    source = str(run.parent / "new.csv")
    assert columns_of(model, source, ColumnsConfig()) == known
    assert "using the columns of" in capsys.readouterr().err
    given = ColumnsConfig(text="other")
    assert columns_of(model, source, given) == given
    assert columns_of(model, "embedded:reviews/dev", ColumnsConfig()) == ColumnsConfig()
    assert columns_of("elsewhere/model", source, ColumnsConfig()) == ColumnsConfig()


def test_without_a_model_the_working_folder_is_no_run(run, monkeypatch):
    monkeypatch.chdir(run)
    for name in ("", "bert-base-uncased"):
        assert columns_of(name, str(run.parent / "new.csv"), ColumnsConfig()) == ColumnsConfig()


@pytest.mark.slow
def test_a_finished_bundle_is_replaced_only_by_the_same_or_when_told(run, capsys):
    model, target = str(run / STUDENT), run / "bundle"
    assert main(["export", str(run), str(target)]) == 0
    before, _ = read_bundle(target)
    capsys.readouterr()
    change_manifest(target, temperature=2.0)
    assert main(["export", model, str(target)]) == 1
    assert "--overwrite" in capsys.readouterr().err.splitlines()[-1]
    assert read_bundle(target)[0] == replace(before, temperature=2.0)
    assert main(["export", model, str(target), "--int8", "--overwrite"]) == 0
    assert read_bundle(target)[0].made_from["arithmetic"] == "int8"
    dev = ["--dev", "embedded:reviews/dev"]
    assert main(["export", model, str(target), *dev]) == 1
    assert main(["export", model, str(target), *dev, "--overwrite"]) == 0
    assert read_bundle(target)[0].temperature != 1
    assert main(["export", model, str(target), *dev]) == 0


def test_a_relative_path_counts_from_the_recipe_where_the_working_folder_lacks_it(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "sub").mkdir()
    places = ("sub/train.tsv", "sub/dev.tsv", "dev.tsv", "sub/raw.txt", "sub/glove.txt")
    for place in (*places, "sub/teacher", "sub/random", "sub/wordnet"):
        (tmp_path / place).touch()
    data = "{train: train.tsv, dev: dev.tsv, test: none.tsv, unlabelled: [raw.txt]}"
    more = "augment: {neighbours: {vectors: glove.txt}}"
    (tmp_path / "sub" / "r.yaml").write_text(f"data: {data}\n{more}\n")
    monkeypatch.chdir(tmp_path)
    recipe = parse("run", ["sub/r.yaml"]).settings
    data = recipe.data
    assert (data.train, data.dev, data.test) == ("sub/train.tsv", "dev.tsv", "none.tsv")
    assert data.unlabelled == ("sub/raw.txt",)
    assert recipe.augment.neighbours.vectors == "sub/glove.txt"
    assert recipe.student.embeddings.source == "teacher"  # a word, no file
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "sub/r.yaml: using sub/train.tsv for train.tsv, from the recipe's folder",
        "sub/r.yaml: using sub/raw.txt for raw.txt, from the recipe's folder",
        "sub/r.yaml: using sub/glove.txt for glove.txt, from the recipe's folder",
    ]

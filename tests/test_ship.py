"""The end of `distillkit run`: a bundle, its figures, and what is said of them."""

import base64
import json
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest

from distillkit import pipeline, runs
from distillkit.api import run_recipe
from distillkit.compress.run import compress
from distillkit.data.tables import read_table, write_table
from distillkit.errors import InputError
from distillkit.measure import rejection
from distillkit.measure.closing import collapsed, interval, verdict
from distillkit.pipeline.export import change_manifest
from distillkit.push import push
from distillkit.recipe import ColumnsConfig, CompressConfig, ShipConfig, dump, load_recipe
from distillkit.report import write_report
from distillkit.runs import ship
from distillkit.runs.ship import manifest_fields
from distillkit.runs.stages import Taught
from distillkit.runtime import Predictor
from distillkit.runtime.bundle import read_bundle
from distillkit.teacher.checkpoint import load_classifier


@pytest.fixture(scope="module")
def shipped(finished_run, tiny_recipe, tmp_path_factory):
    """A run that ends with a bundle of at most 0.02 MB, and what it says on stderr."""
    folder = tmp_path_factory.mktemp("shipped") / "run"
    shutil.copytree(finished_run, folder)
    settings = ShipConfig(max_mb=0.05, max_drop=50.0, cascade=True)
    with redirect_stderr(StringIO()) as said, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rejection, "REFUSED", 0.05)  # 1 % takes 99 dev rows
        run_recipe(replace(tiny_recipe, ship=settings), folder)
    return folder, said.getvalue()


def test_a_run_ends_with_a_calibrated_bundle_of_its_compressed_student(shipped, dev_table):
    folder, _ = shipped
    bundle = folder / "bundle.zip"
    assert bundle.stat().st_size <= 50_000
    predictor = Predictor(bundle)
    texts = dev_table["text"].to_pylist()
    result = json.loads((folder / "result.json").read_text())
    models, found = result["models"], result["shipped"]
    assert predictor.manifest.temperature == found["temperature"] != 1
    assert predictor.manifest.cascade == found["cascade"]
    assert "0.95" in predictor.manifest.coverage
    assert "weights" not in found["rejection"]
    assert found["rejection"]["own_refused"] <= 0.05
    foreign = ["Wer hat die Fenster offen gelassen?", "zq8 xx"]
    assert [row["rejected"] for row in predictor.predict(foreign, reject=True)] == [True, True]
    assert sum(row["rejected"] for row in predictor.predict(texts, reject=True)) <= 2
    assert "milliseconds" not in json.dumps(result)  # the same run has the same bytes
    assert models["shipped"]["megabytes"] == bundle.stat().st_size / 1e6
    answers = [answer["label"] for answer in predictor.predict(texts)]
    right = sum(a == b for a, b in zip(answers, dev_table["label"].to_pylist(), strict=True))
    assert models["shipped"]["dev"]["accuracy"] == pytest.approx(right / len(texts))
    network, _ = load_classifier(str(folder / "ship" / "compressed" / "model"))
    assert network.config.model_type == "distillkit-bilstm"


def test_the_folder_says_what_to_ship_and_holds_what_it_lists(shipped):
    folder, said = shipped
    lines = (folder / "README.md").read_text().splitlines()
    assert "* `bundle.zip`: **ship this**: the student, compressed;" in " ".join(lines)
    named = [line.split("`")[1] for line in lines if line.startswith("* ")]
    held = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert held == {*named, "README.md"}
    assert re.search(r"^ship: done in 0:\d\d:\d\d \(7 of 8\)$", said, re.MULTILINE)


def test_push_takes_along_what_the_run_ships(shipped, dev_table, tmp_path):
    folder, _ = shipped
    push(folder, "me/tiny", to=tmp_path / "out")
    texts = dev_table["text"].to_pylist()
    ours, theirs = (
        Predictor(place).predict(texts)
        for place in (tmp_path / "out/bundle", folder / "bundle.zip")
    )
    assert ours == theirs
    found = json.loads((folder / "result.json").read_text())["models"]["shipped"]["dev"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "It is what the run ships" in card
    assert f"Its dev accuracy is {100 * found['accuracy']:.1f}" in card
    given = shutil.copytree(folder, tmp_path / "given")
    change_manifest(given / "bundle.zip", cascade={"temperature": 2.0, "threshold": 0.5})
    push(given, "me/tiny", to=tmp_path / "cascade")
    assert read_bundle(tmp_path / "cascade/bundle")[0].cascade["threshold"] == 0.5
    stamp = folder / "ship" / "stage.json"
    stamp.rename(tmp_path / "stage.json")
    with pytest.raises(InputError, match="not finished: its stage ship is missing"):
        push(folder, "me/tiny", to=tmp_path / "none")
    (tmp_path / "stage.json").rename(stamp)


def test_the_last_lines_say_what_was_made_how_good_it_is_and_what_is_next(shipped):
    folder, said = shipped
    lines = said.strip().splitlines()[-10:]
    assert re.fullmatch(
        rf"{folder}/bundle.zip: 0.0\d MB, [\d.,]+ times smaller than the teacher; "
        r"\d+\.\d\d ms a row on one thread, [\d.,]+ times faster",
        lines[0],
    )
    assert lines[1].split() == ["accuracy", "dev,", "48", "rows"]
    assert [line[:7] for line in lines[2:5]] == ["student", "teacher", "student"]
    assert lines[-2] == f"all of it: {folder}/report.html"
    assert (folder / "report.html").is_file()
    assert f"distillkit predict {folder}/bundle.zip" in lines[-1]


def test_a_bundle_that_was_deleted_is_put_back_and_nothing_is_made_again(
    shipped, tiny_recipe, capsys
):
    folder, _ = shipped
    before = (folder / "bundle.zip").read_bytes()
    (folder / "bundle.zip").unlink()
    runs.run(load_recipe(str(folder / "recipe.yaml")), folder)
    assert (folder / "bundle.zip").read_bytes() == before
    assert "ship: nothing has changed, kept" in capsys.readouterr().err


@pytest.mark.slow
def test_where_no_small_bundle_will_do_a_larger_one_is_made_and_it_is_said(
    finished_run, tiny_recipe, tmp_path, capsys, monkeypatch
):
    jobs = []
    monkeypatch.setattr(ship, "compress", lambda job: jobs.append(job) or compress(job))
    folder = shutil.copytree(finished_run, tmp_path / "run")
    result = runs.run(replace(tiny_recipe, ship=ShipConfig(max_mb=0.001)), folder)
    said = capsys.readouterr().err
    assert "--max-mb 0.0009: the smallest" in said
    assert re.search(r"ship: the bundle has 0\.\d+ MB, above ship\.max_mb", said)
    assert "rejection" not in result["shipped"]  # dev has 48 rows
    assert result["shipped"]["steps"][-1]["step"] == "embeddings int8, weights int8"
    assert (folder / "bundle.zip").stat().st_size > 1000
    assert jobs[0].max_drop == pytest.approx(100 * 2 / 48)  # two dev rows, as 0.5 points are fewer


@pytest.mark.slow
def test_where_int8_loses_too_much_fp16_is_shipped(
    finished_run, tiny_recipe, tmp_path, monkeypatch
):
    def worse(job):
        found = compress(job)
        if job.settings.weights == "int8":
            found["steps"][-1]["accuracy"] -= 0.5
        return found

    monkeypatch.setattr(ship, "compress", worse)
    folder = shutil.copytree(finished_run, tmp_path / "run")
    result = runs.run(replace(tiny_recipe, ship=ShipConfig(max_mb=0.001)), folder)
    assert result["shipped"]["steps"][-1]["step"] == "embeddings fp16, weights fp16"


@pytest.mark.slow
def test_a_recipe_may_say_itself_what_the_student_loses(finished_run, tiny_recipe, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("ship: {compress: {embeddings: int4, units: 0.5}}\n")
    recipe.write_text(dump(load_recipe(str(recipe))))
    settings = load_recipe(str(recipe)).ship
    assert settings == ShipConfig(compress=CompressConfig(embeddings="int4", units=0.5))
    folder = shutil.copytree(finished_run, tmp_path / "run")
    shipped = runs.run(replace(tiny_recipe, ship=settings), folder)["shipped"]
    names = [step["step"] for step in shipped["steps"]]
    assert names[:3] == ["as it was", "50 % of units gone", "embeddings int4, weights fp32"]


@pytest.mark.slow
def test_pairs_have_a_rule_on_the_words_of_both_texts(classifier_folder, pair_table, tmp_path):
    bundle, source = tmp_path / "bundle.zip", str(tmp_path / "pairs.parquet")
    pipeline.export(classifier_folder, bundle, one_file=True)
    write_table(pa.concat_tables([pair_table, pair_table]), Path(source))  # 128 rows
    columns = ColumnsConfig(text_pair="text_pair")
    task = Taught(columns, {"train": source, "dev": source}, {}, {}, {}, classifier_folder, None)
    change_manifest(bundle, **manifest_fields(load_recipe("quickstart-pair"), task, bundle))
    text, second = (pair_table[name][0].as_py() for name in ("text", "text_pair"))
    asked = ([text] * 2, [second, "zq8 xx Verspätung 42"])
    own, foreign = Predictor(bundle).predict(*asked, reject=True)
    assert (own["rejected"], foreign["rejected"]) == (False, True)


def test_none_in_a_recipe_leaves_the_bundle_out(tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("ship: none\n")
    assert load_recipe(str(recipe)).ship == ShipConfig("none")
    recipe.write_text("ship: {max_mb: 2, cascade: true}\n")
    assert load_recipe(str(recipe)).ship == ShipConfig(max_mb=2.0, cascade=True)
    recipe.write_text(dump(load_recipe(str(recipe))))
    assert load_recipe(str(recipe)).ship.max_mb == 2
    recipe.write_text("ship: {cascade: true}\ndata: {task: regression}\n")
    with pytest.raises(InputError, match=r"is for classification, and data\.task is regression"):
        load_recipe(str(recipe))
    recipe.write_text("ship: zip\n")
    with pytest.raises(InputError, match=r"mine.yaml:1: ship.form is 'zip'"):
        load_recipe(str(recipe))


def test_a_run_without_the_packages_of_bundles_says_so_first(tiny_recipe, tmp_path, monkeypatch):
    # `pipeline.export` is the function.
    monkeypatch.setattr(sys.modules["distillkit.pipeline.export"], "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"run needs onnx.*--ship\.form none"):
        runs.run(replace(tiny_recipe, ship=ShipConfig()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def _models(rows=100, **scores):
    return {name: {"dev": {"accuracy": value, "rows": rows}} for name, value in scores.items()}


def test_the_verdict_names_what_is_better_than_the_student():
    own = {"majority": 0.5, "tfidf": 0.7, "frozen": 0.72, "student": 0.8, "teacher": 0.9}
    assert verdict(_models(**own), "accuracy") == (
        "what is shipped is 10.0 points below the teacher on dev and 8.0 points above a linear "
        "model over the frozen teacher"
    )
    level = verdict(_models(**own | {"teacher": 0.8004}), "accuracy")
    assert level.startswith("what is shipped is level with the teacher on dev")
    assert "gold labels scores 2.0 points more on dev, within the noise" in verdict(
        _models(**own, student_gold=0.82), "accuracy"
    )
    assert "beyond noise" in verdict(_models(**own, student_gold=0.95), "accuracy")
    # 28 and 30 of 30 rows; 174 and 178 of 180
    for rows, student, gold in ((30, 28, 30), (180, 174, 178)):
        scores = {name: 0.5 for name in own} | {"student": student / rows}
        few = verdict(_models(rows, **scores, student_gold=gold / rows), "accuracy")
        assert "within the noise" in few
    f1 = {name: {"dev": {"micro_f1": value, "rows": 100}} for name, value in own.items()}
    f1["student_gold"] = {"dev": {"micro_f1": 0.9, "rows": 100}}
    assert "10.0 points more on dev: compare" in verdict(f1, "micro_f1")  # it has no interval
    assert verdict(_models(**own | {"student": 0.5}), "accuracy").startswith("COLLAPSED")
    nothing = {"majority": {"dev": {"pearson": float("nan"), "rows": 20}}}
    assert collapsed(nothing | {"student": {"dev": {"pearson": -0.1, "rows": 20}}}, "pearson")


def test_a_student_that_is_always_right_on_a_dev_of_one_label_has_not_collapsed():
    assert not collapsed(_models(30, majority=1.0, student=1.0, teacher=1.0), "accuracy")


def test_a_student_on_a_dev_of_one_score_has_not_collapsed():
    assert not collapsed(
        {
            name: {"dev": {"rows": 40, "pearson": 0.0}}
            for name in ("majority", "student", "teacher")
        },
        "pearson",
    )


def test_a_few_rows_of_dev_prove_nothing():
    half = _models(2, majority=0.5, tfidf=0.5, student=0.5, teacher=1.0)
    assert not collapsed(half, "accuracy")
    assert verdict(half, "accuracy").startswith("dev has 2 rows, too few to say")


def test_intervals_are_wilsons_and_fishers():
    low, high = interval("accuracy", {"accuracy": 0.8, "rows": 100})
    assert (low, high) == pytest.approx((0.711, 0.867), abs=1e-3)
    low, high = interval("pearson", {"pearson": 0.5, "rows": 103})
    assert (low, high) == pytest.approx((0.339, 0.632), abs=1e-3)
    assert interval("micro_f1", {"micro_f1": 0.5, "rows": 9}) is None


def test_the_report_is_of_the_bundle(shipped):
    folder, _ = shipped
    page = write_report(folder).read_text(encoding="utf-8")
    assert "The compressed student scores" in page
    bundle = re.search(r'id="bundle">([^<]+)<', page)[1]
    assert base64.b64decode(bundle) == (folder / "bundle.zip").read_bytes()
    found = json.loads((folder / "result.json").read_text())["shipped"]
    assert f"dividing the logits by {found['temperature']:.2f}" in page
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page)[1])
    accuracy = found["cascade"]["accuracy"]
    assert max(point["cascade"] for point in figures["coverage"]) >= accuracy - 1e-9


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_the_shipped_student_answers_in_the_report(shipped, tmp_path):
    folder, _ = shipped
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--dump-dom",
    ]
    flags += ["--virtual-time-budget=10000", f"--user-data-dir={tmp_path}/u"]
    page = (folder / "report.html").as_uri()
    done = subprocess.run(["chromium", *flags, page], capture_output=True, text=True, check=True)
    assert "CONSOLE" not in done.stderr
    text = read_table(str(folder / "data" / "dev.parquet"), ColumnsConfig())["text"][0].as_py()
    wanted = Predictor(folder / "bundle.zip").predict([text])[0]
    sure = 100 * max(wanted["probabilities"].values())
    assert f"{wanted['label']}, confidence {sure:.1f} %" in done.stdout
    assert 'class="words"><span' in done.stdout

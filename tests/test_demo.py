"""`distillkit demo`: the page with three answers, and the service behind it."""

import base64
import html
import os
import re
import shutil
import signal
import subprocess
import sys

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from distillkit import pipeline
from distillkit.cli import main
from distillkit.data.gold import gold_of
from distillkit.data.tables import read_table, write_table
from distillkit.demo import demo_service
from distillkit.measure.deferral import teachers_accuracy
from distillkit.pipeline.export import change_manifest
from distillkit.recipe import ColumnsConfig
from distillkit.runtime import Predictor


@pytest.fixture(scope="module")
def run(finished_run, tmp_path_factory):
    """A run with a bundle that has a temperature, and no threshold."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    shutil.copytree(finished_run, folder)
    pipeline.export(str(folder / "student" / "model"), folder / "bundle.zip", one_file=True)
    change_manifest(folder / "bundle.zip", temperature=1.5)
    return folder


@pytest.fixture
def copy(run, tmp_path):
    """A run that a test may change."""
    return shutil.copytree(run, tmp_path / "run")


def _dev(run):
    return read_table(str(run / "data" / "dev.parquet"), ColumnsConfig())


def _page(run):
    with TestClient(demo_service(run)) as client:
        return client.get("/").text


def _rule(page):
    return float(re.search(r'data-temperature="([^"]+)"', page)[1]), float(
        re.search(r'type="range" .* value="([^"]+)"', page)[1]
    )


def test_the_page_holds_the_student_and_the_threshold_that_dev_gives(run):
    page, dev = _page(run), _dev(run)
    bundle = re.search(r'id="bundle">([^<]+)<', page)[1]
    assert base64.b64decode(bundle) == (run / "bundle.zip").read_bytes()
    student, teacher = Predictor(run / "bundle.zip"), run / "teacher" / "model"
    ours = student.logits(dev["text"].to_pylist())
    theirs, _ = pipeline.classify(str(teacher), dev, "dev", student.labels)
    gold = gold_of(dev, student.labels, "classification")
    wanted = teachers_accuracy(ours, theirs, gold, 1.5)
    assert _rule(page) == pytest.approx((1.5, wanted["threshold"]))
    assert f"accuracy on {len(dev)} dev rows" in page


def test_a_threshold_that_the_bundle_keeps_is_taken(copy):
    change_manifest(copy / "bundle.zip", cascade={"temperature": 3.0, "threshold": 0.625})
    page = _page(copy)
    assert _rule(page) == (3.0, 0.625)
    assert "kept in bundle.zip" in page


def test_the_service_answers_as_the_teacher_a_row_a_request(run):
    text = "the film was great ."
    wanted = pipeline.Classifier(str(run / "teacher" / "model")).predict([text])[0]
    with TestClient(demo_service(run)) as client:
        (answer,) = client.post("/predict", json={"texts": [text]}).json()["answers"]
        assert list(answer) == ["teacher"]
        assert answer["teacher"].pop("ms") > 0
        assert answer["teacher"] == {
            **wanted,
            "probabilities": pytest.approx(wanted["probabilities"]),
        }
        assert client.post("/predict", json={"texts": [text, text]}).status_code == 413
        pairs = {"texts": [text], "text_pairs": [text]}
        assert client.post("/predict", json=pairs).status_code == 422


@pytest.mark.slow
def test_a_student_that_no_page_can_be_answers_in_the_service(copy):
    text, bundle = "the film was great .", copy / "bundle.zip"
    pipeline.export(str(copy / "teacher" / "model"), bundle, one_file=True, overwrite=True)
    change_manifest(bundle, cascade={"temperature": 4.0, "threshold": 0.5})
    with TestClient(demo_service(copy)) as client:
        assert 'id="bundle"' not in client.get("/").text
        (answer,) = client.post("/predict", json={"texts": [text]}).json()["answers"]
    predictor = Predictor(bundle)
    change_manifest(bundle, temperature=4.0)
    wanted, warmer = predictor.predict([text])[0], Predictor(bundle).predict([text])[0]
    assert answer["teacher"]["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
    assert answer["student"]["probabilities"] == pytest.approx(warmer["probabilities"], abs=1e-5)


def test_a_text_in_the_page_is_text(copy):
    dev = _dev(copy)
    text = "</textarea></script><script>boom()</script>"
    texts = pa.array([text, *dev["text"].to_pylist()[1:]])
    write_table(dev.set_column(0, "text", texts), copy / "data" / "dev.parquet")
    page = _page(copy)
    assert text not in page
    assert html.escape(text) in page


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        (
            "bundle.zip",
            r"it has no bundle.zip; distillkit export \S+ \S+/bundle.zip --one-file makes it",
        ),
        ("teacher", r"it has no teacher/model; without it .*: distillkit serve \S+"),
        ("recipe.yaml", "it has no recipe.yaml; distillkit run RECIPE makes a run"),
    ],
)
def test_what_a_run_lacks_is_said_in_a_line(lacks, said, copy, capsys):
    (copy / lacks).rename(copy / "moved")
    assert main(["demo", str(copy), "--no-browser"]) == 1
    assert re.fullmatch(rf"distillkit: {copy}: {said}\n", capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_the_browser_opens_and_shows_three_answers(run, tmp_path):
    script, seen = tmp_path / "browser", tmp_path / "seen.html"
    flags = f"--headless=new --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir={tmp_path}/u"
    chromium = f"chromium {flags} --virtual-time-budget=10000 --dump-dom"
    script.write_text(
        f'#!/bin/sh\n{chromium} "$1" >{seen}.part 2>{tmp_path}/log; mv {seen}.part {seen}\n'
    )
    script.chmod(0o755)
    command = [sys.executable, "-m", "distillkit", "demo", str(run)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"BROWSER": f"{script} %s"}
    ) as process:
        line = process.stderr.readline()
        assert re.search(r"answers at http://127.0.0.1:\d+; Ctrl-C stops it", line), line
        for _ in range(600):
            if seen.exists():
                break
            signal.sigtimedwait([], 0.1)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert "CONSOLE" not in (tmp_path / "log").read_text()
    page, text = seen.read_text(), _dev(run)["text"][0].as_py()
    shown = dict(re.findall(r'<output class="(\w+)"[^>]*>([^<]*)</output>', page))
    wanted = Predictor(run / "bundle.zip").predict([text])[0]
    for who, answer in (
        ("student", wanted),
        ("teacher", pipeline.Classifier(str(run / "teacher" / "model")).predict([text])[0]),
    ):
        sure = 100 * answer["probabilities"][answer["label"]]
        assert shown[who].startswith(f"{answer['label']}, confidence {sure:.1f} %\nin ")
    alone = wanted["probabilities"][wanted["label"]] >= _rule(page)[1]
    assert ("by the student alone" if alone else "by the teacher") in shown["cascade"]
    assert 'class="words"><span' in page

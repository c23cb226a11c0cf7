"""`distillkit bench`: every form answers alike, takes its turns, and is measured."""

import json

import numpy as np
import pytest

from distillkit import pipeline
from distillkit.bench.forms import FORMS, Form, load, prepare
from distillkit.bench.measure import speed, start
from distillkit.bench.run import _name
from distillkit.cli import main
from distillkit.errors import InputError
from distillkit.measure import cost
from distillkit.measure.cost import times

pytestmark = pytest.mark.slow

ROWS = [
    (f"the film was {word} .", None)
    for word in ("good", "bad", "dull", "great", "fine", "weak", "awful")
]


@pytest.fixture(autouse=True)
def once(monkeypatch):
    """A form starts once, which is enough to tell torch from the rest."""
    monkeypatch.setattr("distillkit.bench.measure._STARTS", 1)


@pytest.fixture(scope="module")
def forms(classifier_folder, tmp_path_factory):
    return prepare("teacher", classifier_folder, FORMS, tmp_path_factory.mktemp("forms"))


def test_every_form_answers_alike(forms, classifier_folder):
    assert [form.name for form in forms] == [f"teacher, {kind}" for kind in FORMS]
    texts = [text for text, _ in ROWS]
    answers = {form.kind: load(form, 1)(texts, None) for form in forms}
    wanted = answers["torch-fp32"]
    assert wanted.shape == (7, 2)
    assert np.abs(answers["onnx-fp32"] - wanted).max() < 1e-5
    for kind in ("torch-bf16", "onnx-int8"):
        assert 0 < np.abs(answers[kind] - wanted).max() < 0.1 * np.ptp(wanted), kind


def test_forms_take_turns_in_blocks_and_see_the_same_calls(monkeypatch):
    monkeypatch.setattr(cost, "_WARM", 1)
    seen = []

    def answer(name):
        return lambda texts, pairs: seen.append((name, tuple(texts)))

    taken = times({"a": answer("a"), "b": answer("b")}, ROWS, 2)
    assert {name: len(found) for name, found in taken.items()} == {
        "a": 5,
        "b": 5,
    }  # 4 would do, 5 at least
    # a call to warm up, and one that counts
    runs = [seen[i : i + 2] for i in range(0, len(seen), 2)]
    assert sorted(name for _, (name, _) in runs[:2]) == ["a", "b"]
    # from the first again where they end
    wanted = [(ROWS[2 * i % 7][0], ROWS[(2 * i + 1) % 7][0]) for i in range(5)]
    for name in "ab":
        own = [(warm, counted) for (before, warm), (who, counted) in runs if before == who == name]
        assert own == [(wanted[i - 1], wanted[i]) for i in range(5)]


def test_a_model_beside_itself_has_two_names():
    paths = ["/runs/a/model", "/runs/b/model"]
    assert [_name(paths, i) for i in (0, 1)] == ["a/model", "b/model"]
    assert [_name(paths[:1] * 2, i) for i in (0, 1)] == ["model (1)", "model (2)"]


def test_speed_of_a_hand_calculation():
    found = speed(np.array([0.001, 0.001, 0.002, 0.004]), 8)
    assert found["rows_per_second"] == pytest.approx(32 / 0.008)
    assert found["p50"] == pytest.approx(1.5)
    assert found["p99"] == pytest.approx(3.94)


def test_a_bundle_starts_in_less_memory_than_torch(forms):
    by_kind = {
        form.kind: start(form, ROWS[0])
        for form in forms
        if form.kind in ("torch-fp32", "onnx-fp32")
    }
    assert 10 < by_kind["onnx-fp32"]["peak_megabytes"] < by_kind["torch-fp32"]["peak_megabytes"]
    assert 0 < by_kind["onnx-fp32"]["start_seconds"] < by_kind["torch-fp32"]["start_seconds"]


def test_a_form_that_does_not_start_is_named(tmp_path):
    with pytest.raises(
        InputError,
        match=r"broken: a process of its own ended with 1 before it had answered: .*no such folder",
    ):
        start(Form("broken", "onnx-fp32", str(tmp_path / "nothing"), ""), ROWS[0])


def test_the_command_reports_every_form_of_every_model(classifier_folder, tmp_path, capsys):
    bundle = tmp_path / "bundle"
    pipeline.export(classifier_folder, bundle)
    source = tmp_path / "texts.txt"
    source.write_text("".join(f"{text}\n" for text, _ in ROWS))
    command = [
        "bench",
        str(bundle),
        classifier_folder,
        "--source",
        str(source),
        "--output",
        str(tmp_path / "out"),
        "--rows",
        "9" * 20,  # more than Arrow can count
    ]
    assert (
        main([*command, "--forms", "torch-fp32", "--batch-sizes", "1", "4", "--threads", "1"]) == 0
    )
    said = json.loads(capsys.readouterr().out)
    result = json.loads((tmp_path / "out" / "bench.json").read_text())
    ours, teacher = result["forms"]
    assert (ours["kind"], teacher["kind"]) == ("bundle", "torch-fp32")
    assert (ours["parameters"], teacher["parameters"]["total"] > 0) == (None, True)
    assert ours["megabytes"] == sum(file.stat().st_size for file in bundle.iterdir()) / 1e6
    for form in result["forms"]:
        assert set(form["speed"]) == {"1 x 1", "1 x 4"}
        assert form["speed"]["1 x 1"]["p50"] <= form["speed"]["1 x 1"]["p99"]
    assert said["rows_per_second"][ours["name"]] == round(
        ours["speed"]["1 x 1"]["rows_per_second"], 1
    )
    table = (tmp_path / "out" / "bench.md").read_text()
    ratio = ours["speed"]["1 x 1"]["rows_per_second"] / teacher["speed"]["1 x 1"]["rows_per_second"]
    assert f"({ratio:,.1f})" in table
    assert "rows a call, 1 thread" in (tmp_path / "out" / "bench.svg").read_text()


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (
            ["--forms", "tensorrt"],
            "--forms tensorrt: expected some of torch-fp32, torch-bf16, onnx-fp32, onnx-int8",
        ),
        (["--batch-sizes", "0"], "expected numbers of at least 1"),
        (["--threads", "0"], "expected numbers of at least 1"),
    ],
)
def test_mistakes_are_answered_at_once(classifier_folder, tmp_path, capsys, option, reason):
    (tmp_path / "texts.txt").write_text("good\n")
    assert main(["bench", classifier_folder, "--source", str(tmp_path / "texts.txt"), *option]) == 1
    assert reason in capsys.readouterr().err


def test_a_call_without_a_model_is_refused(capsys):
    assert main(["bench", "--source", "embedded:reviews/dev"]) == 1
    assert "name one model or more" in capsys.readouterr().err


def test_a_source_without_rows_is_refused(classifier_folder, tmp_path, capsys):
    (tmp_path / "none.tsv").write_text("text\n")
    assert main(["bench", classifier_folder, "--source", str(tmp_path / "none.tsv")]) == 1
    assert "none.tsv" in capsys.readouterr().err

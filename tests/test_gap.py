"""What a student misses of its teacher, and the advice that follows."""

import numpy as np
import pyarrow as pa
import pytest

from distillkit import pipeline
from distillkit.data.tables import with_mask, write_table
from distillkit.doctor.examine import doctor
from distillkit.doctor.gap import gap_finding
from distillkit.recipe import AugmentConfig, ColumnsConfig
from distillkit.runs.gap import texts_for, unexplained


def test_the_share_is_0_for_a_copy_1_for_the_mean_and_blind_to_a_constant_a_row():
    teacher = np.random.default_rng(0).normal(size=(200, 3))
    shifted = teacher + np.arange(200)[:, None]
    assert unexplained(shifted, teacher, "classification") == pytest.approx(0)
    assert unexplained(shifted, teacher, "multi-label") > 1000  # each logit counts by itself
    centred = teacher - teacher.mean(1, keepdims=True)
    mean = np.broadcast_to(centred.mean(0), teacher.shape)
    assert unexplained(mean, teacher, "classification") == pytest.approx(1)
    # By hand, a regression: errors 1 and 1, deviations 2 and 2.
    scores = np.array([[0.0], [4.0]])
    assert unexplained(scores + 1, scores, "regression") == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("found", "steps", "advice"),
    [
        ({"train": 0.01, "variants": 0.02, "dev": 0.04}, 100, ""),
        ({"train": 0.04, "variants": 0.09, "dev": 0.37}, 600, "--training.steps 3000"),
        ({"train": 0.20, "variants": 0.25, "dev": 0.30}, 4000, "a larger student"),
        ({"train": 0.01, "variants": 0.12, "dev": 0.10}, 4000, "--augment.n-iter"),
        ({"train": 0.01, "variants": 0.08, "dev": 0.30}, 4000, "--data.unlabelled wordnet"),
    ],
)
def test_the_advice_follows_from_where_the_student_errs(found, steps, advice):
    finding = gap_finding(found, steps)
    assert finding.severity == ("warning" if advice else "fine")
    assert advice in finding.do
    assert finding.metrics["unexplained_dev"] == found["dev"]


def test_a_finished_run_is_examined(tiny_recipe, finished_run):
    (found,) = (
        one
        for one in doctor(tiny_recipe, folder=finished_run)["findings"]
        if one["check"] == "student-gap"
    )
    metrics = found["metrics"]
    assert 0 < metrics["unexplained_train"] < metrics["unexplained_dev"] < 1
    assert metrics["steps"] > 0
    assert "--training.steps 3000" in found["do"]


def test_variants_are_made_with_the_recipes_own_mask_and_tagger(tmp_path, monkeypatch, capsys):
    (tmp_path / "gap_tags.py").write_text(
        "def tag(texts):\n    return [[(word, 'X') for word in text.split()] for text in texts]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    train = pa.table({"text": ["the [MASK] is good .", "a plot is bad ."], "label": ["a", "b"]})
    write_table(train, tmp_path / "transfer.parquet")
    config = AugmentConfig(mask="<M>", tagger="gap_tags:tag", p_mask=0.9)
    found = texts_for(
        train, train, str(tmp_path / "transfer.parquet"), ColumnsConfig(), config, seed=1
    )
    assert "no row has a label" not in capsys.readouterr().err
    assert any("<M>" in text for text in found["variants"]["text"].to_pylist())


def test_a_models_own_mask_stands_for_the_mask_of_variants(classifier_folder):
    masked = with_mask(pa.table({"text": ["the [MASK] is good ."]}), "[MASK]")
    own = pa.table({"text": ["the <mask> is good ."]})
    found, wanted = (pipeline.classify(classifier_folder, t, "here")[0] for t in (masked, own))
    np.testing.assert_array_equal(found, wanted)


def test_a_finished_run_with_a_teacher_of_other_labels_keeps_the_other_findings(
    tiny_recipe, finished_run, build_classifier
):
    report = doctor(tiny_recipe, build_classifier(["spam", "ham"]), folder=finished_run)
    assert any("what a student misses" in line for line in report["not_checked"])
    assert any(one["check"] == "rows" for one in report["findings"])

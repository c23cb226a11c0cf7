"""A cascade of a student and its teacher: the curve by hand, the threshold that is chosen, and what a bundle makes of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from distillkit import pipeline
from distillkit.cascade import cascade
from distillkit.cascade.run import _held_out
from distillkit.cli import main
from distillkit.errors import InputError
from distillkit.measure.deferral import asks, best_within, cascade_curve, first_reaching
from distillkit.recipe import ColumnsConfig
from distillkit.runs import _is_shipped
from distillkit.runs.folder import BUNDLE
from distillkit.runtime import Predictor
from distillkit.runtime.answers import confidence, softmax
from distillkit.runtime.bundle import read_bundle, write_bundle

KEPT = ("temperature", "threshold", "accuracy", "deferral_rate")


def _logits(chances):
    """Logits of two classes whose second has these probabilities."""
    p = np.array(chances)
    return np.log(np.stack([1 - p, p], axis=1))


STUDENT = _logits([0.9, 0.6, 0.45, 0.8, 0.3])  # sure of its answer by 0.9, 0.6, 0.55, 0.8, 0.7
TEACHER = _logits([0.9, 0.1, 0.9, 0.1, 0.1])
# The student is right in the first, fourth and fifth, the teacher in all but the fourth.
GOLD = np.array([1, 0, 1, 1, 0])


def test_curve_of_a_hand_calculation():
    curve = cascade_curve(STUDENT, TEACHER, GOLD, 1.0)
    assert curve.deferral_rates.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert curve.accuracies.tolist() == pytest.approx([0.6, 0.8, 1, 1, 0.8, 0.8])
    assert curve.thresholds.tolist() == pytest.approx([0, 0.575, 0.65, 0.75, 0.85, 2])
    for point, threshold in enumerate(curve.thresholds):
        asked = asks(STUDENT, 1.0, threshold)
        found = np.where(asked, TEACHER.argmax(1), STUDENT.argmax(1))
        assert asked.mean() == pytest.approx(curve.deferral_rates[point])
        assert (found == GOLD).mean() == pytest.approx(curve.accuracies[point])


def test_rows_that_are_equally_sure_go_together():
    curve = cascade_curve(_logits([0.6, 0.4, 0.6]), _logits([0.1] * 3), np.zeros(3, int), 1.0)
    assert curve.deferral_rates.tolist() == [0, 1]


def test_the_first_reaching_and_the_best_accuracy_are_chosen():
    curve = cascade_curve(STUDENT, TEACHER, GOLD, 1.0)
    assert curve.deferral_rates[first_reaching(curve, 0.8)] == pytest.approx(0.2)
    assert curve.deferral_rates[first_reaching(curve, 0.6)] == 0
    assert first_reaching(curve, 1.01) is None
    assert curve.deferral_rates[best_within(curve, 1)] == pytest.approx(0.4)
    assert curve.deferral_rates[best_within(curve, 0.39)] == pytest.approx(0.2)
    assert curve.deferral_rates[best_within(curve, 0)] == 0


def test_held_out_thresholds_are_chosen_on_other_rows(monkeypatch):
    """On one half the student is always right, on the other its teacher: the other half misleads."""
    monkeypatch.setattr("distillkit.cascade.run._FOLDS", 2)
    gold, rng = np.zeros(40, int), np.random.default_rng(1)
    first = np.random.default_rng(0).permutation(40) % 2 == 0
    right, wrong = (_logits(rng.uniform(*ends, 40)) for ends in ((0.1, 0.4), (0.6, 0.9)))
    student, teacher = (np.where(best[:, None], right, wrong) for best in (first, ~first))

    def best(curve, theirs):
        assert theirs in (0, 1)  # of the rows that it is chosen on
        return int(curve.accuracies.argmax())

    curve = cascade_curve(student[first], teacher[first], gold[first], 1.0)
    assert curve.accuracies[best(curve, 0)] == 1
    assert _held_out(student, teacher, gold, best) == {"accuracy": 0, "deferral_rate": 0.5}


@pytest.fixture(scope="module")
def models(train_table, dev_table, write_tsv, tmp_path_factory):
    """A teacher and a weaker student, as checkpoints and as bundles, and dev as a file."""
    folder = tmp_path_factory.mktemp("cascade")
    train, dev = (
        write_tsv(folder / "train.tsv", train_table),
        write_tsv(folder / "dev.tsv", dev_table),
    )
    sizes = "--student.embeddings.source random --student.embeddings.dimension 8"
    for name, epochs, source in (("teacher", "30", dev), ("student", "3", train)):
        command = ["train-student", "bilstm", "--transfer-set", source, "--dev", dev]
        command += ["--output", str(folder / name), "--loss.alpha", "1", *sizes.split()]
        command += ["--student.hidden-size", "8", "--training.epochs", epochs]
        command += ["--training.batch-size", "8", "--training.learning-rate", "1e-2"]
        assert main(command) == 0
        pipeline.export(str(folder / name), folder / f"{name}-bundle")
    return folder


@pytest.fixture
def paths(models):
    """The student, the teacher and dev, as `cascade` takes them."""
    return [str(models / name) for name in ("student", "teacher", "dev.tsv")]


def test_a_bundle_keeps_the_threshold_and_the_predictor_uses_it(models, tmp_path, capsys):
    student, teacher, dev = (
        str(models / name) for name in ("student-bundle", "teacher-bundle", "dev.tsv")
    )
    before = read_bundle(models / "student-bundle")[1]
    (models / "student-bundle" / "notes.txt").write_text("mine")
    # By the option's name of an earlier version.
    command = ["cascade", student, teacher, dev, "--share", "0.5"]
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert "--share is now --deferral-rate" in shown.err
    said = json.loads(shown.out)
    manifest, files = read_bundle(models / "student-bundle")
    assert files == before
    assert (models / "student-bundle" / "notes.txt").read_text() == "mine"
    assert manifest.cascade == {key: said[key] for key in KEPT}
    assert said["student_accuracy"] < said["accuracy"]
    assert 0 < said["deferral_rate"] <= 0.5
    assert said["milliseconds"]["cascade"] == pytest.approx(
        said["milliseconds"]["student"] + said["deferral_rate"] * said["milliseconds"]["teacher"]
    )
    rows = [line.split("\t") for line in (models / "dev.tsv").read_text().splitlines()[1:]]
    texts, gold = [text for text, _ in rows], [label for _, label in rows]
    ours, theirs = Predictor(student), Predictor(teacher)
    found = Predictor(student, teacher=theirs).predict(texts)
    asked = [answer["by"] == "teacher" for answer in found]
    assert np.mean(asked) == pytest.approx(said["deferral_rate"])
    labels = [answer["label"] for answer in found]
    assert np.mean(np.array(labels) == gold) == pytest.approx(said["accuracy"])
    alone, above = (
        [answer["label"] for answer in model.predict(texts)] for model in (ours, theirs)
    )
    assert labels == np.where(asked, above, alone).tolist()
    assert "by" not in ours.predict(texts[:1])[0]
    assert "rows that go to the teacher" in (tmp_path / "out" / "cascade.svg").read_text()


def test_a_run_keeps_the_threshold_of_a_bundle_that_it_would_ship_again(models, tmp_path):
    manifest, files = read_bundle(models / "student-bundle")
    (tmp_path / "ship").mkdir()
    shipped, own = tmp_path / "ship" / BUNDLE, tmp_path / BUNDLE
    assert not _is_shipped(tmp_path)
    write_bundle(shipped, replace(manifest, cascade=None, temperature=1.5), files, one_file=True)
    assert not _is_shipped(tmp_path)
    write_bundle(own, replace(manifest, cascade=dict.fromkeys(KEPT, 0.5)), files, one_file=True)
    assert _is_shipped(tmp_path)
    write_bundle(own, replace(manifest, max_tokens=1), files, one_file=True)
    assert not _is_shipped(tmp_path)


def test_a_bundle_in_one_file_is_rewritten_with_the_threshold_alone(models, tmp_path):
    student, dev = tmp_path / "student.zip", str(models / "dev.tsv")
    before, files = read_bundle(models / "student-bundle")
    write_bundle(student, replace(before, cascade=None), files, one_file=True)
    found = cascade(
        str(student), str(models / "teacher-bundle"), dev, tmp_path / "out", ColumnsConfig()
    )
    after, left = read_bundle(student)
    assert left == files
    assert after == replace(before, cascade={key: found[key] for key in KEPT})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "student.zip"]


def test_the_predictor_divides_by_the_temperature_and_takes_the_teachers_labels_in_order(
    models, tmp_path
):
    texts = [line.split("\t")[0] for line in (models / "dev.tsv").read_text().splitlines()[1:]]
    manifest, files = read_bundle(models / "student-bundle")
    ours = Predictor(models / "student-bundle").logits(texts) / 5
    sure = confidence(ours)
    rule = {"temperature": 5.0, "threshold": float(np.median(sure))}
    write_bundle(tmp_path / "student", replace(manifest, cascade=rule), files, one_file=True)
    teacher, weights = read_bundle(models / "teacher-bundle")
    other = replace(teacher, labels=teacher.labels[::-1], temperature=3.0)
    write_bundle(tmp_path / "teacher", other, weights, one_file=True)
    theirs = Predictor(tmp_path / "teacher")
    found = Predictor(tmp_path / "student", teacher=theirs).predict(texts)
    asked = sure < rule["threshold"]
    assert 0 < asked.sum() < len(texts)
    assert [answer["by"] for answer in found] == np.where(asked, "teacher", "student").tolist()
    alone = [dict(zip(manifest.labels, row, strict=True)) for row in softmax(ours)]
    for answer, who, mine, answered in zip(found, asked, alone, theirs.predict(texts), strict=True):
        wanted = answered["probabilities"] if who else mine
        assert answer["probabilities"] == pytest.approx(wanted, abs=1e-6)
    for changes, reason in (
        ({"labels": ["a", "b"]}, r"its labels \(.*\) are not the teacher's \(a, b\); give its own"),
        (
            {"task": "multi-label"},
            "its task is classification, the teacher's multi-label; give its",
        ),
    ):
        write_bundle(tmp_path / "stranger", replace(teacher, **changes), weights, one_file=True)
        with pytest.raises(InputError, match=reason):
            Predictor(tmp_path / "student", teacher=Predictor(tmp_path / "stranger"))
    stranger = Predictor(tmp_path / "teacher")
    stranger.manifest = replace(stranger.manifest, pairs=True)
    with pytest.raises(InputError, match="the teacher answers pairs, the other single texts"):
        Predictor(tmp_path / "student", teacher=stranger)


def test_models_of_another_task_or_with_other_labels_are_refused(models, paths, tmp_path):
    student, _, dev = paths
    manifest, files = read_bundle(models / "student-bundle")
    for name, changes, reason in (
        ("task", {"task": "multi-label"}, "its task is multi-label; a cascade is for"),
        ("labels", {"labels": ["negative", "x"]}, r"its labels \(negative, x\) are not the"),
    ):
        place = tmp_path / name
        write_bundle(place, replace(manifest, **changes), files, one_file=True)
        with pytest.raises(InputError, match=reason):
            # The task is looked at before rows that may be of it, too.
            cascade(
                student,
                str(place),
                dev if name == "labels" else "no.tsv",
                tmp_path,
                ColumnsConfig(),
            )


def test_rows_that_no_threshold_can_be_found_on_are_refused_by_name(models, tmp_path):
    bundles = [str(models / f"{name}-bundle") for name in ("student", "teacher")]
    rows = ["text\tlabel", *["the film is good .\tpositive"] * 9, "so so\tneutral"]
    for number, reason in (
        (11, r"dev.tsv row 10: label 'neutral'"),
        (2, "dev.tsv: labelled rows: 1"),
    ):
        (tmp_path / "dev.tsv").write_text("\n".join(rows[:number]) + "\n")
        with pytest.raises(InputError, match=reason):
            cascade(*bundles, str(tmp_path / "dev.tsv"), tmp_path / "out", ColumnsConfig())


def test_the_accuracy_that_is_wanted_is_met_or_refused(paths, tmp_path):
    found = cascade(*paths, tmp_path / "out", ColumnsConfig())
    curve = json.loads((tmp_path / "out" / "cascade.json").read_text())["curve"]
    point = curve["thresholds"].index(found["threshold"])
    assert curve["deferral_rates"][point] == found["deferral_rate"]
    assert found["accuracy"] >= found["teacher_accuracy"]
    asked = 100 * (found["student_accuracy"] + found["teacher_accuracy"]) / 2
    less = cascade(*paths, tmp_path / "out", ColumnsConfig(), accuracy=asked)
    assert 100 * less["accuracy"] >= asked
    assert less["deferral_rate"] <= found["deferral_rate"]
    student, _, dev = paths
    said = r"--accuracy 100.00 is not reached on .*dev.tsv: the best is"
    with pytest.raises(InputError, match=said):
        cascade(student, student, dev, tmp_path / "out", ColumnsConfig(), accuracy=100)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accuracy": 0.8}, r"--accuracy 0.8: expected percent, .*; did you mean 80\?"),
        ({"accuracy": 90, "deferral_rate": 0.1}, "give one of the two"),
        ({"deferral_rate": 1.5}, "a --deferral-rate from 0 to 1"),
    ],
)
def test_impossible_wishes_are_refused(options, said, tmp_path):
    with pytest.raises(InputError, match=said):
        cascade("a", "b", "c", tmp_path, ColumnsConfig(), **options)


def test_swapped_models_are_noticed(paths, tmp_path, capsys):
    student, teacher, dev = paths
    cascade(*paths, tmp_path, ColumnsConfig())
    assert "STUDENT comes first" not in capsys.readouterr().err
    found = cascade(teacher, student, dev, tmp_path, ColumnsConfig())
    assert found["threshold"] == 0
    own, other = (100 * found[f"{who}_accuracy"] for who in ("student", "teacher"))
    said = f"the student alone scores {own:.1f}, the teacher {other:.1f}, and is never asked"
    assert said in capsys.readouterr().err


def test_a_teacher_without_a_threshold_is_refused(models, paths, capsys):
    with pytest.raises(InputError, match="no threshold says when to ask a teacher"):
        Predictor(models / "teacher-bundle", teacher=Predictor(models / "teacher-bundle"))
    student, _, dev = paths
    assert main(["predict", student, dev, "--teacher", "x"]) == 1
    assert "is not a bundle" in capsys.readouterr().err

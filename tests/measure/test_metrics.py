import json

import numpy as np
import pytest

from distillkit.measure.metrics import (
    classification_metrics,
    expected_calibration_error,
    metrics,
    multi_label_metrics,
    regression_metrics,
)

# Gold 0 0 0 1 1 2, found 0 0 1 1 0 1.
GOLD = np.array([0, 0, 0, 1, 1, 2])
LOGITS = np.eye(3)[[0, 0, 1, 1, 0, 1]] * 4.0
NAMES = ["a", "b", "c"]


def test_metrics_of_classes_are_those_of_a_hand_calculation():
    report = classification_metrics(LOGITS, GOLD, NAMES)
    assert (report["rows"], report["accuracy"]) == (6, pytest.approx(3 / 6))
    # a: precision 2/3, recall 2/3; b: precision 1/3, recall 1/2; c: never found.
    assert report["macro_f1"] == pytest.approx((2 / 3 + 2 / 5 + 0) / 3)
    # Rows right 3 of 6; of gold 3, 2, 1 a class, found 3, 3, 0.
    by_hand = (3 * 6 - (3 * 3 + 2 * 3)) / np.sqrt((36 - 9 - 9) * (36 - 9 - 4 - 1))
    assert report["matthews"] == pytest.approx(by_hand)
    assert not report.keys() & {"f1", "agreement"}
    assert list(report["classes"]) == NAMES
    a, b = (list(report["classes"][name].values()) for name in "ab")
    assert a == pytest.approx([2 / 3, 2 / 3, 2 / 3, 3])
    assert b == pytest.approx([1 / 3, 1 / 2, 2 / 5, 2])
    assert report["classes"]["c"] == {"precision": 0, "recall": 0, "f1": 0, "rows": 1}
    assert report["confusion"] == [[2, 1, 0], [1, 1, 0], [0, 1, 0]]  # gold in rows


def test_f1_of_two_classes_is_that_of_the_second_label():
    logits = np.eye(2)[[1, 1, 0, 0, 1]]
    report = classification_metrics(logits, np.array([1, 0, 1, 0, 1]), ["no", "yes"])
    assert report["f1"] == pytest.approx(2 / 3)  # precision 2/3, recall 2/3
    assert report["macro_f1"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    # Gold yes 3, found yes 3, both 2: (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2).
    assert report["matthews"] == pytest.approx(1 / 6)
    # A class that no row has counts in the macro-F1.
    report = classification_metrics(np.eye(3)[[0, 1]], np.array([0, 1]), NAMES)
    assert (report["macro_f1"], report["accuracy"]) == (pytest.approx(2 / 3), 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("found", [[0, 0], [1, 1], [0, 1]])
def test_matthews_correlation_of_a_constant_is_0(found):
    assert classification_metrics(np.eye(2)[found], np.zeros(2, int), NAMES[:2])["matthews"] == 0


def test_agreement_is_with_the_teachers_answers_and_not_with_gold():
    teacher = np.eye(3)[[0, 0, 1, 1, 2, 2]] * 0.1
    assert classification_metrics(LOGITS, GOLD, NAMES, teacher)["agreement"] == pytest.approx(4 / 6)


def test_calibration_error_is_that_of_a_hand_calculation():
    # Bins of width 1/5: [0.6, 0.8) has 0.6 right and 0.7 wrong, [0.8, 1] has 0.9 and 1.0, both
    # right.
    probabilities = np.array([[0.6, 0.4], [0.3, 0.7], [0.9, 0.1], [0.0, 1.0]])
    by_hand = 2 / 4 * abs(0.5 - 0.65) + 2 / 4 * abs(1 - 0.95)
    gold = np.array([0, 0, 0, 1])
    assert expected_calibration_error(probabilities, gold, bins=5) == pytest.approx(by_hand)


def test_calibration_has_15_bins():
    # [9/15, 10/15) has 0.61 wrong and 0.66 right, [10/15, 11/15) has 0.68 and 0.72, both right.
    sure = np.array([0.61, 0.66, 0.68, 0.72])
    logits = np.log(np.stack([sure, 1 - sure], axis=1))
    report = classification_metrics(logits, np.array([1, 0, 0, 0]), ["a", "b"])
    by_hand = (abs(1 - 0.61 - 0.66) + abs(2 - 0.68 - 0.72)) / 4
    assert report["calibration_error"] == pytest.approx(by_hand)


def test_calibration_at_full_confidence_and_of_softmax():
    for gold, expected in (([0, 0], 0.0), ([1, 1], 1.0), ([0, 1], 0.5)):
        found = expected_calibration_error(np.array([[1.0, 0.0]] * 2), np.array(gold))
        assert found == pytest.approx(expected)
    # A constant added to a row changes nothing.
    logits = np.log(np.array([[0.75, 0.25]] * 4, dtype=np.float32)) + 7
    report = classification_metrics(logits, np.array([0, 0, 0, 1]), ["a", "b"])
    assert report["calibration_error"] == pytest.approx(0, abs=1e-6)


# ---- several labels

# Gold ab, a, -, b; found ab, -, -, ab.
LABELS = np.array([[1.0, 1], [1, 0], [0, 0], [0, 1]])
FOUND = np.array([[2.0, 1], [-1, -3], [-1, -2], [4, 1]])


def test_several_labels_by_hand():
    teacher = np.array([[0.1, 0.2], [1, -1], [-1, -2], [1, -1]])
    report = multi_label_metrics(FOUND, LABELS, ["a", "b"])
    assert report["rows"] == 4
    assert report["micro_f1"] == pytest.approx(2 * 3 / (4 + 4))  # 3 right, 4 found, 4 gold
    a = {"precision": 1 / 2, "recall": 1 / 2, "f1": 1 / 2, "rows": 2}
    b = {"precision": 1, "recall": 1, "f1": 1, "rows": 2}
    assert report["classes"]["a"] == pytest.approx(a)
    assert report["classes"]["b"] == pytest.approx(b)
    assert report["macro_f1"] == pytest.approx(3 / 4)
    assert report["exact_match"] == pytest.approx(2 / 4)
    assert "agreement" not in report
    # Agreement is of whole rows.
    report = multi_label_metrics(FOUND, LABELS, ["a", "b"], teacher)
    assert report["agreement"] == pytest.approx(2 / 4)


def test_correlation_of_two_classes_is_that_of_their_differences():
    rng = np.random.default_rng(1)
    teacher = rng.normal(size=(40, 2))
    student = teacher + rng.normal(size=(40, 2))
    expected = np.corrcoef(student[:, 1] - student[:, 0], teacher[:, 1] - teacher[:, 0])[0, 1]
    gold = rng.integers(0, 2, size=40)

    def found(logits):
        return classification_metrics(logits, gold, ["no", "yes"], teacher)["logit_correlation"]

    assert found(student) == pytest.approx(expected)
    # How sure a model is, its bias for a class, and what is added to a whole row are not what it
    # knows of the texts.
    assert found(3 * student + [5, -1] + rng.normal(size=(40, 1))) == pytest.approx(expected)
    assert found(np.tile([0.3, 0.7], (40, 1))) == 0
    assert found(-teacher) == pytest.approx(-1)


def test_correlation_of_several_labels_is_about_each_labels_mean():
    teacher = np.array([[1.0, 10.0], [3.0, 10.0], [1.0, 12.0], [3.0, 12.0]])
    labels = (teacher > 2).astype(float)

    def found(student):
        return multi_label_metrics(student, labels, ["a", "b"], teacher)["logit_correlation"]

    # Right of the first label, wrong of the second.
    student = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, -1.0], [1.0, -1.0]])
    assert found(student) == pytest.approx(0)
    assert found(student * [1, -1]) == pytest.approx(1)


def test_one_label_alone_is_measured_as_said_and_not_as_unsaid():
    report = multi_label_metrics(np.array([[1.0], [-1], [-1]]), np.array([[1.0], [1], [0]]), ["no"])
    wanted = {"precision": 1, "recall": 1 / 2, "f1": 2 / 3, "rows": 2}
    assert report["classes"]["no"] == pytest.approx(wanted)
    assert report["macro_f1"] == report["micro_f1"] == pytest.approx(2 / 3)


def test_calibration_of_several_labels_is_of_each_answer():
    # Every answer is 3 to 1; of the eight, six are right.
    logits = np.log(3) * np.array([[1.0, 1], [1, -1], [-1, -1], [1, 1]])
    gold = np.array([[1.0, 1], [1, 0], [0, 1], [1, 0]])
    for scale, error in ((1, 0), (9, 0.25)):
        report = multi_label_metrics(scale * logits, gold, ["a", "b"])
        assert report["calibration_error"] == pytest.approx(error, abs=1e-3)


# ---- scores


def test_scores_by_hand():
    found, gold, teacher = [1, 2, 3, 10], [1, 3, 2, 8], [0, 0, 0, 1]
    columns = (np.array(values, float)[:, None] for values in (found, teacher))
    report = regression_metrics(next(columns), np.array(gold, float), next(columns))
    assert (report["rows"], report["mse"], report["mae"]) == (4, (0 + 1 + 1 + 4) / 4, 4 / 4)
    assert report["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert report["pearson"] == pytest.approx(np.corrcoef(found, gold)[0, 1])
    assert report["agreement"] == pytest.approx(np.corrcoef(found, teacher)[0, 1])
    # One score for all correlates with nothing.
    report = regression_metrics(np.full((3, 1), 0.3), np.array([1.0, 2, 3]))
    assert (report["pearson"], report["spearman"]) == (0, 0)
    assert "agreement" not in report


@pytest.mark.parametrize(
    ("task", "gold", "columns", "metric"),
    [
        ("classification", np.array([0, 0, 1, 1]), 2, "accuracy"),
        ("multi-label", LABELS.astype(np.float32), 2, "micro_f1"),
        ("regression", LABELS[:, 0].astype(np.float32), 1, "pearson"),
    ],
)
def test_the_task_says_what_is_measured_and_json_takes_it_all(task, gold, columns, metric):
    logits = FOUND.astype(np.float32)[:, :columns]
    report = metrics(task, logits, gold, ["a", "b"], logits)
    assert metric in report
    assert report["agreement"] == pytest.approx(1)
    assert json.loads(json.dumps(report)) == report

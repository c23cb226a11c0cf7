"""The ladder's metrics by hand: four dev rows, four test rows, two seeds; every kind of task."""

from functools import partial

import numpy as np
import pytest

from distillkit.measure.ablation import (
    Answers,
    ablations_in,
    draw_ladder,
    ladder_metrics,
    ladder_tables,
)
from distillkit.measure.results import write_picture

DEV, TEST = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])


def _answers(dev, test, **cost):
    return Answers(
        {"dev": np.eye(2)[dev] * 3.0, "test": np.eye(2)[test] * 3.0}, {"rows": 10, **cost}
    )


@pytest.fixture
def ablations():
    return {
        "majority": {None: _answers([0, 0, 0, 0], [0, 0, 0, 0])},
        "gold": {
            1: _answers([0, 1, 1, 0], [0, 1, 0, 0], steps=4),
            2: _answers([0, 0, 1, 0], [0, 0, 0, 0], steps=8),
        },
        "full": {1: _answers([0, 0, 1, 1], [0, 1, 1, 1]), 2: _answers([0, 1, 1, 1], [0, 1, 1, 0])},
        "teacher": {None: _answers([0, 0, 1, 1], [0, 1, 1, 1])},
    }


@pytest.fixture
def metrics(ablations):
    return ladder_metrics(ablations, {"dev": DEV, "test": TEST}, ["no", "yes"])


def test_means_and_spread_are_over_seeds(metrics):
    gold = metrics["gold"]["dev"]
    assert gold["accuracy_by_seed"] == {"1": 0.5, "2": 0.75}
    assert (gold["accuracy"], gold["accuracy_sd"]) == (0.625, pytest.approx(0.25 / 2**0.5))
    assert gold["agreement"] == 0.625
    # Of four rows two are yes to the teacher: seed 1 has one of them and one of the others, seed 2
    # one alone.
    assert gold["logit_correlation"] == pytest.approx((0 + 1 / 3**0.5) / 2)
    assert metrics["teacher"]["dev"]["logit_correlation"] == pytest.approx(1)
    assert metrics["majority"]["dev"]["logit_correlation"] == 0
    assert metrics["gold"]["cost"] == {"rows": 10, "steps": 6}
    assert metrics["teacher"]["dev"]["accuracy_sd"] is None
    assert metrics["teacher"]["seeds"] == []


def test_costs_that_an_earlier_cell_did_not_note_are_left_out(ablations):
    ablations["full"][2] = _answers([0, 1, 1, 1], [0, 1, 1, 0], unexplained_dev=0.25)
    both = ladder_metrics(ablations, {"dev": DEV, "test": TEST}, ["no", "yes"])
    assert both["full"]["cost"] == {"rows": 10}
    assert "missed" not in ladder_tables(both, ["dev"])
    del ablations["full"][1]
    one = ladder_metrics(ablations, {"dev": DEV, "test": TEST}, ["no", "yes"])
    assert "missed: dev" in ladder_tables(one, ["dev"])


def test_differences_are_to_the_gold_student_of_the_same_seed(metrics):
    assert "difference" not in metrics["gold"]["dev"]
    assert metrics["full"]["dev"]["difference"]["mean"] == pytest.approx(0.875 - 0.625)
    assert metrics["teacher"]["test"]["difference"]["mean"] == pytest.approx(1 - 0.375)
    found = metrics["full"]["test"]["difference"]
    assert found["mean"] == pytest.approx(0.875 - 0.375)
    # Right wherever gold of the same seed is: no resample can turn that round.
    assert 0 <= found["low"] < found["mean"] < found["high"] <= 1


def test_only_seeds_that_both_have_are_compared(ablations):
    ablations["full"] = {2: ablations["full"][2], 3: ablations["full"][1]}
    metrics = ladder_metrics(ablations, {"dev": DEV, "test": TEST}, ["no", "yes"])
    assert metrics["full"]["dev"]["difference"]["mean"] == 0
    ablations["full"] = {3: ablations["full"][2]}
    metrics = ladder_metrics(ablations, {"dev": DEV, "test": TEST}, ["no", "yes"])
    assert "difference" not in metrics["full"]["dev"]
    assert metrics["full"]["dev"]["accuracy"] == 0.75


def test_mcnemar_is_between_the_models_that_are_in_the_middle_on_dev(metrics):
    # Of gold the lower of two is seed 1, of full seed 2; on test full alone has the third row
    # right, gold alone none.
    assert metrics["full"]["test"]["mcnemar_p"] == 1
    # Gold's seed 1 has two test rows, the teacher four.
    assert metrics["teacher"]["test"]["mcnemar_p"] == pytest.approx(2 * 0.25)


def test_calibration_on_test_is_scaled_by_the_temperature_of_dev(metrics):
    gold = metrics["gold"]["test"]
    assert gold["temperature"] == metrics["gold"]["dev"]["temperature"]
    sure = 1 / (1 + np.exp(-3))
    assert gold["calibration_error"] == pytest.approx((abs(sure - 0.5) + abs(sure - 0.25)) / 2)
    # On dev seed 1 is right in half the rows, so that all it should say is one half; seed 2 in
    # three quarters.
    assert gold["calibration_error_scaled"] == pytest.approx((0 + 0.5) / 2, abs=0.01)


def test_an_older_ladder_json_is_read(metrics):
    assert ablations_in({"rungs": metrics}) == ablations_in({"ablations": metrics}) == metrics


def test_tables_have_a_line_for_each_row(metrics):
    shown = ladder_tables(metrics, ["dev", "test"]).splitlines()
    (row,) = (line for line in shown[:6] if "full transfer set" in line)
    assert [cell.strip() for cell in row.split("|")[2:6]] == ["87.5", "17.7", "86.7", "+25.0"]
    assert sum("majority class" in line for line in shown) == 3


def _heads(text):
    return [cell.strip() for cell in text.splitlines()[0].split("|")[1:-1]]


def _drawn(metrics, splits, path):
    write_picture(path, (4, 4), partial(draw_ladder, metrics, splits))
    return path.read_text()


def test_picture_has_a_panel_for_each_split(metrics, tmp_path):
    drawn = _drawn(metrics, ["dev", "test"], tmp_path / "ladder.svg")
    assert "dev accuracy, %" in drawn
    assert "test accuracy, %" in drawn
    without = {name: row for name, row in metrics.items() if name != "gold"}
    assert "test" not in _drawn(without, ["dev"], tmp_path / "ladder.svg")


def test_metrics_of_several_labels():
    # Of 8 answers, 4 a label's: gold has 5 labels.
    gold = {"dev": np.array([[1, 0], [1, 1], [0, 0], [1, 1]], np.float32)}

    def answers(*rows):
        return Answers({"dev": np.array(rows) * 4.0 - 2}, {"rows": 4})

    ablations = {
        "majority": {None: answers([1, 0], [1, 0], [1, 0], [1, 0])},  # 3 of its 4 are right: 6 / 9
        "gold": {
            1: answers([1, 0], [0, 0], [0, 0], [0, 0]),  # 1 of 1: 2 / 6
            2: answers([1, 0], [1, 0], [0, 0], [1, 0]),  # 3 of 3: 6 / 8
        },
        "full": {
            1: answers([1, 0], [1, 1], [0, 0], [1, 1]),  # 5 of 5
            2: answers([1, 0], [1, 1], [0, 1], [1, 0]),  # 4 of 5: 8 / 10
        },
        "teacher": {None: answers([1, 0], [1, 1], [0, 0], [1, 0])},  # 4 of 4: 8 / 9
    }
    metrics = ladder_metrics(ablations, gold, ["new", "old"], "multi-label")
    assert metrics["majority"]["title"] == "commonest labels"
    assert metrics["majority"]["dev"]["micro_f1"] == pytest.approx(6 / 9)
    found = metrics["gold"]["dev"]
    assert found["micro_f1_by_seed"] == pytest.approx({"1": 1 / 3, "2": 3 / 4})
    assert found["micro_f1_sd"] == pytest.approx((3 / 4 - 1 / 3) / 2**0.5)
    assert found["exact_match"] == pytest.approx((2 + 2) / 8)
    assert found["macro_f1"] == pytest.approx(((1 / 2 + 0) / 2 + (1 + 0) / 2) / 2)
    assert found["agreement"] == pytest.approx((2 + 3) / 8)
    against = metrics["full"]["dev"]["difference"]
    assert against["mean"] == pytest.approx((1 + 4 / 5) / 2 - (1 / 3 + 3 / 4) / 2)
    assert against["low"] < against["mean"] < against["high"] <= 1
    # By micro-F1 on dev the lower of full's two is seed 2, of gold's seed 1: right are rows 1, 2
    # and 1, 3.
    assert metrics["full"]["dev"]["mcnemar_p"] == 1
    # The teacher has rows 1 to 3 right.
    assert metrics["teacher"]["dev"]["mcnemar_p"] == 1
    assert not [
        key for key in found if "accuracy" in key or "scaled" in key or key == "temperature"
    ]
    shown = ladder_tables(metrics, ["dev"])
    heads = "dev, micro-F1, sd, macro-F1, exact match, - gold, 95 % interval, McNemar p, agreement"
    assert _heads(shown) == [*heads.split(", "), "logits' correlation", "ECE"]
    row = shown.splitlines()[2].split("|")[1:4]
    assert [cell.strip() for cell in row] == ["commonest labels", "66.7", ""]


def test_mcnemar_of_several_labels_counts_rows_with_just_the_gold_labels():
    gold = {"dev": np.array([[1, 1]] * 6 + [[0, 0]] * 2, np.float32)}
    half = np.array([[1, 0]] * 6 + [[0, 0]] * 2)
    ablations = {
        "gold": {1: Answers({"dev": half * 2.0 - 1}, {"rows": 8})},
        "teacher": {None: Answers({"dev": gold["dev"] * 2.0 - 1}, {"rows": 8})},
    }
    metrics = ladder_metrics(ablations, gold, ["new", "old"], "multi-label")
    assert metrics["teacher"]["dev"]["mcnemar_p"] == pytest.approx(2 / 2**6)


@pytest.fixture
def scores():
    """Ablation rows of a regression on four texts, gold 0, 1, 2, 3, and their metrics."""

    def answers(*scores):
        return Answers({"dev": np.array(scores, np.float32)[:, None]}, {"rows": 4})

    ablations = {
        "majority": {None: answers(0.3, 0.3, 0.3, 0.3)},
        "tfidf": {None: answers(0, 0, 1, 0)},
        "gold": {1: answers(1, 0, 3, 2), 2: answers(1, 0, 2, 3)},  # correlations 3 / 5 and 4 / 5
        "full": {1: answers(10, 11, 12, 13), 2: answers(0, 1, 3, 2)},  # 1 and 4 / 5
        "teacher": {None: answers(0, 2, 4, 6)},
    }
    gold = {"dev": np.array([0, 1, 2, 3], np.float32)}
    return ladder_metrics(ablations, gold, ["score"], "regression")


def test_metrics_of_scores(scores, tmp_path):
    assert scores["majority"]["title"] == "mean score"
    assert scores["tfidf"]["title"] == "TF-IDF + ridge regression"
    found = scores["gold"]["dev"]
    assert found["pearson_by_seed"] == pytest.approx({"1": 0.6, "2": 0.8})
    assert (found["pearson"], found["spearman"]) == (pytest.approx(0.7), pytest.approx(0.7))
    assert found["pearson_sd"] == pytest.approx(0.2 / 2**0.5)
    assert found["agreement"] == pytest.approx(0.7)
    assert found["mse"] == pytest.approx((1 + 0.5) / 2)
    assert scores["full"]["dev"]["difference"]["mean"] == pytest.approx((1 - 0.6 + 0.8 - 0.8) / 2)
    # One answer to all has correlation 0, in every resample.
    assert scores["majority"]["dev"]["difference"]["mean"] == pytest.approx(-0.7)
    assert scores["majority"]["dev"]["difference"]["low"] >= -1
    assert "mcnemar_p" not in scores["full"]["dev"]
    heads = "dev, Pearson, sd, Spearman, - gold, 95 % interval, agreement"
    assert _heads(ladder_tables(scores, ["dev"])) == heads.split(", ")
    drawn = _drawn(scores, ["dev"], tmp_path / "ladder.svg")
    assert "dev 100 x Pearson" in drawn
    assert "mean score" in drawn

"""The ladder's figures by hand: four dev rows, four test rows, two seeds; classes, then labels and scores."""

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
def figures(ablations):
    return ladder_metrics(ablations, {"dev": DEV, "test": TEST}, ["no", "yes"])


def test_means_and_spread_are_over_seeds(figures):
    gold = figures["gold"]["dev"]
    assert gold["accuracy_by_seed"] == {"1": 0.5, "2": 0.75}
    assert (gold["accuracy"], gold["accuracy_sd"]) == (0.625, pytest.approx(0.25 / 2**0.5))
    assert gold["agreement"] == 0.625
    # Of four rows two are yes to the teacher: seed 1 has one of them and one of the others, seed 2
    # one alone.
    assert gold["logit_correlation"] == pytest.approx((0 + 1 / 3**0.5) / 2)
    assert figures["teacher"]["dev"]["logit_correlation"] == pytest.approx(1)
    assert figures["majority"]["dev"]["logit_correlation"] == 0
    assert figures["gold"]["cost"] == {"rows": 10, "steps": 6}
    assert figures["teacher"]["dev"]["accuracy_sd"] is None
    assert figures["teacher"]["seeds"] == []


def test_differences_are_to_the_gold_student_of_the_same_seed(figures):
    assert "difference" not in figures["gold"]["dev"]
    assert figures["full"]["dev"]["difference"]["mean"] == pytest.approx(0.875 - 0.625)
    assert figures["teacher"]["test"]["difference"]["mean"] == pytest.approx(1 - 0.375)
    found = figures["full"]["test"]["difference"]
    assert found["mean"] == pytest.approx(0.875 - 0.375)
    # Right wherever gold of the same seed is: no resample can turn that round.
    assert 0 <= found["low"] < found["mean"] < found["high"] <= 1


def test_only_seeds_that_both_have_are_compared(ablations):
    ablations["full"] = {2: ablations["full"][2], 3: ablations["full"][1]}
    figures = ladder_metrics(ablations, {"dev": DEV, "test": TEST}, ["no", "yes"])
    assert figures["full"]["dev"]["difference"]["mean"] == 0
    ablations["full"] = {3: ablations["full"][2]}
    figures = ladder_metrics(ablations, {"dev": DEV, "test": TEST}, ["no", "yes"])
    assert "difference" not in figures["full"]["dev"]
    assert figures["full"]["dev"]["accuracy"] == 0.75


def test_mcnemar_is_between_the_models_that_are_in_the_middle_on_dev(figures):
    # Of gold the lower of two is seed 1, of full seed 2; on test full alone has the third row
    # right, gold alone none.
    assert figures["full"]["test"]["mcnemar_p"] == 1
    # Gold's seed 1 has two test rows, the teacher four.
    assert figures["teacher"]["test"]["mcnemar_p"] == pytest.approx(2 * 0.25)


def test_calibration_on_test_is_scaled_by_the_temperature_of_dev(figures):
    gold = figures["gold"]["test"]
    assert gold["temperature"] == figures["gold"]["dev"]["temperature"]
    sure = 1 / (1 + np.exp(-3))
    assert gold["calibration_error"] == pytest.approx((abs(sure - 0.5) + abs(sure - 0.25)) / 2)
    # On dev seed 1 is right in half the rows, so that all it should say is one half; seed 2 in
    # three quarters.
    assert gold["calibration_error_scaled"] == pytest.approx((0 + 0.5) / 2, abs=0.01)


def test_an_older_ladder_json_is_read(figures):
    assert ablations_in({"rungs": figures}) == ablations_in({"ablations": figures}) == figures


def test_tables_have_a_line_for_each_row(figures):
    shown = ladder_tables(figures, ["dev", "test"]).splitlines()
    (row,) = (line for line in shown[:6] if "full transfer set" in line)
    assert [cell.strip() for cell in row.split("|")[2:6]] == ["87.5", "17.7", "86.7", "+25.0"]
    assert sum("majority class" in line for line in shown) == 3


def _draw(figures, splits, path):
    write_picture(path, (4, 4), partial(draw_ladder, figures, splits))


def test_picture_is_the_same_each_time(figures, tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "two.svg"):
        _draw(figures, ["dev", "test"], tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    assert "dev accuracy, %" in drawn
    assert "test accuracy, %" in drawn
    without = {name: ablation for name, ablation in figures.items() if name != "gold"}
    _draw(without, ["dev"], tmp_path / "one.svg")


def test_figures_of_several_labels():
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
    figures = ladder_metrics(ablations, gold, ["new", "old"], "multi-label")
    assert figures["majority"]["title"] == "commonest labels"
    assert figures["majority"]["dev"]["micro_f1"] == pytest.approx(6 / 9)
    found = figures["gold"]["dev"]
    assert found["micro_f1_by_seed"] == pytest.approx({"1": 1 / 3, "2": 3 / 4})
    assert found["micro_f1_sd"] == pytest.approx((3 / 4 - 1 / 3) / 2**0.5)
    assert found["exact_match"] == pytest.approx((2 + 2) / 8)
    assert found["macro_f1"] == pytest.approx(((1 / 2 + 0) / 2 + (1 + 0) / 2) / 2)
    assert found["agreement"] == pytest.approx((2 + 3) / 8)
    against = figures["full"]["dev"]["difference"]
    assert against["mean"] == pytest.approx((1 + 4 / 5) / 2 - (1 / 3 + 3 / 4) / 2)
    assert against["low"] < against["mean"] < against["high"] <= 1
    # By micro-F1 on dev the lower of full's two is seed 2, of gold's seed 1: right are rows 1, 2
    # and 1, 3.
    assert figures["full"]["dev"]["mcnemar_p"] == 1
    # The teacher has rows 1 to 3 right.
    assert figures["teacher"]["dev"]["mcnemar_p"] == 1
    assert not [
        key for key in found if "accuracy" in key or "scaled" in key or key == "temperature"
    ]
    (head, _, row) = ladder_tables(figures, ["dev"]).splitlines()[:3]
    assert [cell.strip() for cell in head.split("|")[1:-1]] == [
        "dev",
        "micro-F1",
        "sd",
        "macro-F1",
        "exact match",
        "- gold",
        "95 % interval",
        "McNemar p",
        "agreement",
        "logits' correlation",
        "ECE",
    ]
    assert [cell.strip() for cell in row.split("|")[1:4]] == ["commonest labels", "66.7", ""]


def test_mcnemar_of_several_labels_counts_rows_with_just_the_gold_labels():
    gold = {"dev": np.array([[1, 1]] * 6 + [[0, 0]] * 2, np.float32)}
    half = np.array([[1, 0]] * 6 + [[0, 0]] * 2)
    ablations = {
        "gold": {1: Answers({"dev": half * 2.0 - 1}, {"rows": 8})},
        "teacher": {None: Answers({"dev": gold["dev"] * 2.0 - 1}, {"rows": 8})},
    }
    figures = ladder_metrics(ablations, gold, ["new", "old"], "multi-label")
    assert figures["teacher"]["dev"]["mcnemar_p"] == pytest.approx(2 / 2**6)


@pytest.fixture
def scores():
    """Rungs of a regression on four rows, gold 0, 1, 2, 3."""

    def answers(*scores):
        return Answers({"dev": np.array(scores, np.float32)[:, None]}, {"rows": 4})

    return {
        "majority": {None: answers(0.3, 0.3, 0.3, 0.3)},
        "tfidf": {None: answers(0, 0, 1, 0)},
        "gold": {1: answers(1, 0, 3, 2), 2: answers(1, 0, 2, 3)},  # correlations 3 / 5 and 4 / 5
        "full": {1: answers(10, 11, 12, 13), 2: answers(0, 1, 3, 2)},  # 1 and 4 / 5
        "teacher": {None: answers(0, 2, 4, 6)},
    }


def test_figures_of_scores(scores):
    figures = ladder_metrics(
        scores, {"dev": np.array([0, 1, 2, 3], np.float32)}, ["score"], "regression"
    )
    assert [figures[name]["title"] for name in ("majority", "tfidf")] == [
        "mean score",
        "TF-IDF + ridge regression",
    ]
    found = figures["gold"]["dev"]
    assert found["pearson_by_seed"] == pytest.approx({"1": 0.6, "2": 0.8})
    assert (found["pearson"], found["spearman"]) == (pytest.approx(0.7), pytest.approx(0.7))
    assert found["pearson_sd"] == pytest.approx(0.2 / 2**0.5)
    assert found["agreement"] == pytest.approx(0.7)
    assert found["mse"] == pytest.approx((1 + 0.5) / 2)
    assert figures["full"]["dev"]["difference"]["mean"] == pytest.approx((1 - 0.6 + 0.8 - 0.8) / 2)
    # One answer to all has correlation 0, in every resample.
    assert figures["majority"]["dev"]["difference"]["mean"] == pytest.approx(-0.7)
    assert figures["majority"]["dev"]["difference"]["low"] >= -1
    assert "mcnemar_p" not in figures["full"]["dev"]
    head = ladder_tables(figures, ["dev"]).splitlines()[0]
    assert [cell.strip() for cell in head.split("|")[1:-1]] == [
        "dev",
        "Pearson",
        "sd",
        "Spearman",
        "- gold",
        "95 % interval",
        "agreement",
    ]


def test_picture_of_scores_is_of_their_correlation(scores, tmp_path):
    pytest.importorskip("matplotlib")
    figures = ladder_metrics(
        scores, {"dev": np.array([0, 1, 2, 3], np.float32)}, ["score"], "regression"
    )
    _draw(figures, ["dev"], tmp_path / "ladder.svg")
    drawn = (tmp_path / "ladder.svg").read_text()
    assert "dev 100 x Pearson" in drawn
    assert "mean score" in drawn

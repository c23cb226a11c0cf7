"""The ladder's figures by hand: four dev rows, four test rows, two seeds."""

import numpy as np
import pytest

from distillkit.measure.ladder import Answers, draw_ladder, ladder_figures, ladder_tables

DEV, TEST = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])


def _answers(dev, test, **cost):
    return Answers({"dev": np.eye(2)[dev] * 3.0, "test": np.eye(2)[test] * 3.0}, {"rows": 10, **cost})


@pytest.fixture
def rungs():
    return {
        "majority": {None: _answers([0, 0, 0, 0], [0, 0, 0, 0])},
        "gold": {1: _answers([0, 1, 1, 0], [0, 1, 0, 0], steps=4), 2: _answers([0, 0, 1, 0], [0, 0, 0, 0], steps=8)},
        "full": {1: _answers([0, 0, 1, 1], [0, 1, 1, 1]), 2: _answers([0, 1, 1, 1], [0, 1, 1, 0])},
        "teacher": {None: _answers([0, 0, 1, 1], [0, 1, 1, 1])},
    }


@pytest.fixture
def figures(rungs):
    return ladder_figures(rungs, {"dev": DEV, "test": TEST}, ["no", "yes"])


def test_means_and_spread_are_over_seeds(figures):
    gold = figures["gold"]["dev"]
    assert gold["accuracy_by_seed"] == {"1": 0.5, "2": 0.75}
    assert (gold["accuracy"], gold["accuracy_sd"]) == (0.625, pytest.approx(0.25 / 2**0.5))
    assert gold["agreement"] == 0.625
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


def test_only_seeds_that_both_have_are_compared(rungs):
    rungs["full"] = {2: rungs["full"][2], 3: rungs["full"][1]}
    figures = ladder_figures(rungs, {"dev": DEV, "test": TEST}, ["no", "yes"])
    assert figures["full"]["dev"]["difference"]["mean"] == 0
    rungs["full"] = {3: rungs["full"][2]}
    figures = ladder_figures(rungs, {"dev": DEV, "test": TEST}, ["no", "yes"])
    assert "difference" not in figures["full"]["dev"]
    assert figures["full"]["dev"]["accuracy"] == 0.75


def test_mcnemar_is_between_the_models_that_are_in_the_middle_on_dev(figures):
    # Of gold the lower of two is seed 1, of full seed 2; on test full alone has the third row right, gold alone none.
    assert figures["full"]["test"]["mcnemar_p"] == 1
    # Gold's seed 1 has two test rows, the teacher four.
    assert figures["teacher"]["test"]["mcnemar_p"] == pytest.approx(2 * 0.25)


def test_calibration_on_test_is_scaled_by_the_temperature_of_dev(figures):
    gold = figures["gold"]["test"]
    assert gold["temperature"] == figures["gold"]["dev"]["temperature"]
    sure = 1 / (1 + np.exp(-3))
    assert gold["calibration_error"] == pytest.approx((abs(sure - 0.5) + abs(sure - 0.25)) / 2)
    # On dev seed 1 is right in half the rows, so that all it should say is one half; seed 2 in three quarters.
    assert gold["calibration_error_scaled"] == pytest.approx((0 + 0.5) / 2, abs=0.01)


def test_tables_have_a_row_a_rung(figures):
    shown = ladder_tables(figures, ["dev", "test"]).splitlines()
    (row,) = (line for line in shown[:6] if "full transfer set" in line)
    assert [cell.strip() for cell in row.split("|")[2:6]] == ["87.5", "17.7", "86.7", "+25.0"]
    assert sum("majority class" in line for line in shown) == 3


def test_picture_is_the_same_each_time(figures, tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "two.svg"):
        draw_ladder(figures, ["dev", "test"], tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    assert "dev accuracy, %" in drawn
    assert "test accuracy, %" in drawn
    without = {name: rung for name, rung in figures.items() if name != "gold"}
    draw_ladder(without, ["dev"], tmp_path / "one.svg")

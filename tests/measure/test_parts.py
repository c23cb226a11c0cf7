"""A score from what its rows add up to is the score."""

import numpy as np
import pytest

from distillkit.data.scores import dev_score
from distillkit.measure.parts import SCORE_OF_PARTS, right_rows, row_parts

TASKS = ["classification", "multi-label", "regression"]


def _scored(task, logits, gold):
    parts, score = row_parts(task, logits, gold), SCORE_OF_PARTS[task]
    return parts.mean() if score is None else score(parts.mean(0))


def _answers(task, rng, rows=60):
    if task == "regression":
        gold = rng.normal(size=rows).astype(np.float32)
        return (gold + rng.normal(size=rows)).astype(np.float32)[:, None], gold
    gold = rng.integers(0, 3, rows)
    if task == "multi-label":
        gold = rng.integers(0, 2, (rows, 3)).astype(np.float32)
    return rng.normal(size=(rows, 3)).astype(np.float32), gold


@pytest.mark.parametrize("task", TASKS)
def test_parts_of_all_rows_give_the_dev_score(task):
    logits, gold = _answers(task, np.random.default_rng(0))
    assert _scored(task, logits, gold) == pytest.approx(dev_score(task, logits, gold))


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_parts_of_some_rows_give_the_score_of_these(task):
    rng = np.random.default_rng(1)
    logits, gold = _answers(task, rng)
    drawn = rng.integers(0, len(gold), (4, 2, len(gold)))
    found = SCORE_OF_PARTS[task](row_parts(task, logits, gold)[drawn].mean(2))
    wanted = [[dev_score(task, logits[rows], gold[rows]) for rows in pair] for pair in drawn]
    assert found == pytest.approx(np.array(wanted))


def test_parts_by_hand():
    logits = np.array([[1.0, -1.0], [1.0, 2.0], [-1.0, -1.0]])
    gold = np.array([[0, 1], [1, 1], [0, 0]], np.float32)
    assert row_parts("multi-label", logits, gold).tolist() == [[0, 2], [2, 4], [0, 0]]
    assert right_rows("multi-label", logits, gold).tolist() == [False, True, True]
    parts = row_parts("regression", np.array([[3.0], [5.0]]), np.array([-1.0, -2.0], np.float32))
    assert parts.tolist() == [[-1, 1, 1, 1, -1], [1, -1, 1, 1, -1]]
    # No label at all is right, as in the dev score.
    assert _scored("multi-label", np.full((3, 2), -1.0), np.zeros((3, 2))) == 1
    assert _scored("multi-label", np.full((3, 2), 1.0), np.zeros((3, 2))) == 0


@pytest.mark.parametrize("constant", [0.0, 0.3, 1e6 + 0.1])
def test_a_score_that_never_varies_correlates_with_nothing(constant):
    rng = np.random.default_rng(2)
    logits = np.full((7, 1), constant)
    assert not row_parts("regression", logits, rng.normal(size=7))[:, [0, 2, 4]].any()
    assert _scored("regression", logits, rng.normal(size=7)) == 0
    assert _scored("regression", rng.normal(size=(7, 1)), np.full(7, constant)) == 0
    # Nor do seven times the same row of scores that do vary.
    parts = row_parts("regression", rng.normal(size=(7, 1)), rng.normal(size=7))
    assert SCORE_OF_PARTS["regression"](parts[[3] * 7].mean(0)) == 0


def test_scores_far_from_nought_lose_no_digits():
    rng = np.random.default_rng(3)
    gold = rng.normal(size=200)
    found = gold + rng.normal(size=200)
    wanted = np.corrcoef(found, gold)[0, 1]
    assert _scored("regression", (1e8 + found)[:, None], 1e-8 * gold) == pytest.approx(wanted)

import numpy as np
import pytest

from distillkit.data.scores import dev_score, micro_f1, pearson, spearman


def test_classification_is_scored_by_accuracy():
    assert dev_score("classification", np.eye(3)[[0, 1, 1, 2]], np.array([0, 1, 2, 2])) == 0.75


def test_labels_are_scored_by_f1_over_all_answers():
    # Found: yes, yes, no / no, yes, no. Right: 2 of 3 found, 2 of 4 gold.
    logits = np.array([[1.0, 2.0, -1.0], [-3.0, 0.1, 0.0]])
    gold = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    assert dev_score("multi-label", logits, gold) == pytest.approx(2 * 2 / (3 + 4))
    assert micro_f1(np.zeros((2, 2), bool), np.zeros((2, 2), bool)) == 1


def test_scores_are_scored_by_correlation_whatever_their_scale():
    gold = np.array([1.0, 2.0, 3.0, 5.0], np.float32)
    assert dev_score("regression", (10 * gold + 3)[:, None], gold) == pytest.approx(1)
    assert dev_score("regression", -gold[:, None], gold) == pytest.approx(-1)
    assert pearson(np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(
        0
    )


# Not a number would never be the best epoch's, nor the worst's.
def test_a_model_that_always_says_the_same_correlates_with_nothing():
    assert pearson(np.full(3, 0.1, np.float32), np.array([1.0, 2.0, 3.0])) == 0
    assert pearson(np.array([1.0, 2.0]), np.array([5.0, 5.0])) == 0
    assert pearson(np.empty(0), np.empty(0)) == 0


def test_spearman_counts_ranks_alone():
    gold = np.array([1.0, 2.0, 3.0, 900.0])
    assert dev_score("regression", np.array([[1.0], [2.0], [3.0], [4.0]]), gold) < 0.8
    found = dev_score("regression", np.array([[1.0], [2.0], [3.0], [4.0]]), gold, "spearman")
    assert found == pytest.approx(1)
    assert spearman(np.array([1.0, 1.0, 2.0]), np.array([3.0, 3.0, 7.0])) == pytest.approx(1)
    assert spearman(np.full(3, 0.1), np.array([1.0, 2.0, 3.0])) == 0

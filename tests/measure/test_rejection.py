"""The rule that refuses text unlike the training text: what it refuses, and how much of its own."""

import numpy as np
import pytest

from distillkit.measure.rejection import fit_rejection
from distillkit.runtime.answers import own_scores

OWN, OTHER, NEVER = ([f"{kind}{i}" for i in range(60)] for kind in ("own", "other", "never"))


def _rows(rng, words, rows=600):
    return [list(rng.choice(words, rng.integers(4, 12))) for _ in range(rows)]


@pytest.fixture(scope="module")
def rule():
    rng = np.random.default_rng(0)
    return fit_rejection(_rows(rng, OWN), {"other": _rows(rng, OTHER)}, _rows(rng, OWN, 299))


def test_foreign_words_and_unknown_words_are_refused_and_own_ones_are_not(rule):
    rng = np.random.default_rng(1)
    for words in (OTHER, NEVER):
        assert (own_scores(_rows(rng, words), rule) < rule["threshold"]).all()
    assert rule["foreign_refused"] == {"other": 1.0}
    assert min(rule["weights"].values()) > rule["rare"]
    known = OWN[0]
    expected = (rule["weights"][known] + rule["rare"]) / 2**0.5
    assert own_scores([[known, NEVER[0]]], rule)[0] == pytest.approx(expected)


def test_at_most_one_in_a_hundred_own_rows_is_refused_on_the_average():
    refused = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        mixed = OWN + OTHER[:6]  # own text has some foreign words, so that scores differ
        fitted = fit_rejection(
            _rows(rng, mixed, 300), {"other": _rows(rng, OTHER, 300)}, _rows(rng, mixed, 199)
        )
        assert fitted["own_refused"] <= 0.01
        refused.append((own_scores(_rows(rng, mixed, 500), fitted) < fitted["threshold"]).mean())
    assert np.mean(refused) <= 0.015


def test_a_row_without_words_is_refused_and_too_few_dev_rows_give_no_rule(rule):
    assert own_scores([[]], rule)[0] < rule["threshold"]
    rng = np.random.default_rng(2)
    own, foreign = _rows(rng, OWN), {"other": _rows(rng, OTHER)}
    assert fit_rejection(own, foreign, _rows(rng, OWN, 98)) is None
    assert fit_rejection(own, foreign, [[]] * 99) is None
    assert fit_rejection([["once"], ["never"]], foreign, _rows(rng, OWN, 99)) is None

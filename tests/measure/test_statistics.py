import numpy as np
import pytest
from scipy.stats import bootstrap, chi2

from distillkit.measure.metrics import expected_calibration_error
from distillkit.measure.parts import SCORE_OF_PARTS, row_parts
from distillkit.measure.statistics import (
    TEMPERATURES,
    cross_scaled,
    fit_temperature,
    mcnemar,
    negative_log_likelihood,
    paired_bootstrap,
)


def _right(share, rows, seed):
    return np.random.default_rng(seed).random(rows) < share


def test_bootstrap_of_two_rows_is_the_distribution_that_can_be_written_down():
    # One row better by 1, one by 0: of two drawn the mean is 0, 1/2 or 1 with probability 1/4, 1/2,
    # 1/4. 30 % and 70 % lie in the middle half
    found = paired_bootstrap(np.array([[1, 1]]), np.array([[0, 1]]), level=0.4)
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
    # 20 % and 80 % do not
    found = paired_bootstrap(np.array([[1, 1]]), np.array([[0, 1]]), level=0.6)
    assert (found.low, found.high) == (0, 1)


def test_bootstrap_of_one_seed_is_scipys():
    first, second = _right(0.85, 500, 1), _right(0.8, 500, 2)
    found = paired_bootstrap(first[None], second[None], resamples=20_000)
    theirs = bootstrap(
        (first.astype(float) - second,),
        np.mean,
        n_resamples=20_000,
        method="percentile",
        vectorized=True,
        rng=0,
    ).confidence_interval
    assert found.mean == pytest.approx(first.mean() - second.mean())
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.003)


def _f1_difference(first, first_total, second, second_total, axis):
    ratios = [
        2 * a.sum(axis) / b.sum(axis) for a, b in ((first, first_total), (second, second_total))
    ]
    return ratios[0] - ratios[1]


def test_bootstrap_of_micro_f1_is_scipys():
    rng = np.random.default_rng(0)
    gold = rng.random((150, 3)) < 0.3
    logits = [np.where(rng.random(gold.shape) < share, gold, ~gold) - 0.5 for share in (0.9, 0.8)]
    first, second = (row_parts("multi-label", z, gold)[None] for z in logits)
    found = paired_bootstrap(first, second, SCORE_OF_PARTS["multi-label"])
    columns = (*first[0].T, *second[0].T)
    theirs = bootstrap(
        columns, _f1_difference, paired=True, vectorized=True, method="percentile", rng=0
    )
    wanted = theirs.confidence_interval
    assert found.mean == pytest.approx(_f1_difference(*columns, axis=0))
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=0.006)
    assert wanted.high - wanted.low > 0.1


def _correlation(x, y, axis):
    x, y = x - x.mean(axis, keepdims=True), y - y.mean(axis, keepdims=True)
    return (x * y).sum(axis) / np.sqrt((x * x).sum(axis) * (y * y).sum(axis))


def test_bootstrap_of_pearsons_correlation_is_scipys():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=100)
    scores = [3 + gold + rng.normal(size=100) * noise for noise in (0.6, 1.0)]
    first, second = (row_parts("regression", z[:, None], gold)[None] for z in scores)
    found = paired_bootstrap(first, second, SCORE_OF_PARTS["regression"])

    def difference(x, other, y, axis):
        return _correlation(x, y, axis) - _correlation(other, y, axis)

    theirs = bootstrap(
        (*scores, gold), difference, paired=True, vectorized=True, method="percentile", rng=0
    )
    wanted = theirs.confidence_interval
    assert found.mean == pytest.approx(difference(*scores, gold, axis=0))
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=0.008)
    assert wanted.high - wanted.low > 0.1


def test_bootstrap_of_a_score_draws_seeds_as_well():
    # Seed 1 finds every label, seed 2 none, whichever rows are drawn: 1 and 0.
    parts = np.stack([np.full((20, 2), [1, 2]), np.full((20, 2), [0, 1])])
    nothing = np.tile(parts[1], (2, 1, 1))
    found = paired_bootstrap(parts, nothing, SCORE_OF_PARTS["multi-label"], level=0.4)
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
    found = paired_bootstrap(parts, nothing, SCORE_OF_PARTS["multi-label"], level=0.6)
    assert (found.low, found.high) == (0, 1)


def test_bootstrap_draws_seeds_as_well_as_rows():
    # Every row of one seed differs, no row of the other: all that can vary is which seeds are
    # drawn.
    found = paired_bootstrap(np.array([[1] * 50, [0] * 50]), np.zeros((2, 50)), level=0.4)
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
    found = paired_bootstrap(np.array([[1] * 50, [0] * 50]), np.zeros((2, 50)), level=0.6)
    assert (found.low, found.high) == (0, 1)


def test_bootstrap_pairs_rows_and_seeds():
    first = np.stack([_right(0.5, 200, seed) for seed in range(3)])
    found = paired_bootstrap(first, first)
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    # Better by the same rows whatever the seed; unpaired, the seeds' own differences would widen
    # it.
    better = first.copy()
    better[:, :20] = True
    worse = first.copy()
    worse[:, :20] = False
    found = paired_bootstrap(better, worse, resamples=20_000)
    spread = 1.96 * np.sqrt(0.1 * 0.9 / 200)
    assert (found.low, found.high) == pytest.approx((0.1 - spread, 0.1 + spread), abs=0.006)


def test_bootstrap_is_the_same_each_time_and_whatever_it_holds_at_once(monkeypatch):
    first, second = np.stack([_right(0.8, 300, 1)] * 2), np.stack([_right(0.7, 300, 2)] * 2)
    assert paired_bootstrap(first, second) == paired_bootstrap(first, second)
    assert paired_bootstrap(first, second) != paired_bootstrap(first, second, seed=1)
    whole = paired_bootstrap(first, second)
    monkeypatch.setattr("distillkit.measure.statistics._COUNTS_AT_ONCE", 3000)
    parts = paired_bootstrap(first, second)
    assert (parts.low, parts.high) == pytest.approx((whole.low, whole.high), abs=0.01)


@pytest.mark.parametrize("shape", [(2, 5), (5,), (1, 0)])
def test_bootstrap_refuses_what_is_not_paired(shape):
    with pytest.raises(ValueError, match="expected the same"):
        paired_bootstrap(np.zeros(shape), np.zeros((1, 5) if shape == (2, 5) else shape))


def test_bootstrap_of_a_score_asks_for_its_parts():
    with pytest.raises(ValueError, match=r"expected the same \(S, N, K\)"):
        paired_bootstrap(np.zeros((2, 5)), np.zeros((2, 5)), SCORE_OF_PARTS["regression"])


def test_mcnemar_of_a_hand_calculation():
    # 8 rows only the first has right, 1 only the second, 20 both: 2 * (C(9, 0) + C(9, 1)) / 2^9.
    first = np.array([True] * 8 + [False] + [True] * 20)
    second = np.array([False] * 8 + [True] + [True] * 20)
    assert mcnemar(first, second) == pytest.approx(2 * 10 / 512)
    assert mcnemar(second, first) == pytest.approx(2 * 10 / 512)


def test_mcnemar_of_equals_is_one():
    assert mcnemar(np.array([True, False]), np.array([True, False])) == 1
    assert mcnemar(np.array([True, False]), np.array([False, True])) == 1


def test_mcnemar_of_many_rows_is_near_the_chi_squared_form():
    first, second = _right(0.85, 4000, 1), _right(0.82, 4000, 2)
    a, b = (first & ~second).sum(), (second & ~first).sum()
    assert mcnemar(first, second) == pytest.approx(
        chi2.sf((abs(a - b) - 1) ** 2 / (a + b), 1), abs=0.003
    )


def test_temperature_of_a_hand_calculation():
    # Always sure by logits (2, 0), right in 3 rows of 4: the best answer is odds of 3, so 2 / T =
    # log 3.
    logits, gold = np.tile([2.0, 0.0], (8, 1)), np.array([0, 0, 0, 1] * 2)
    assert fit_temperature(logits, gold) == pytest.approx(2 / np.log(3), abs=1e-4)
    assert negative_log_likelihood(logits, gold, 2 / np.log(3)) == pytest.approx(
        -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    )


def test_temperature_is_the_one_that_logits_were_spoilt_by():
    rng = np.random.default_rng(0)
    honest = rng.normal(0, 2, (20_000, 3))
    chances = np.exp(honest) / np.exp(honest).sum(1, keepdims=True)
    gold = (rng.random(len(honest))[:, None] > chances.cumsum(1)).sum(1)
    for spoilt in (0.3, 1, 4):
        assert fit_temperature(honest * spoilt, gold) == pytest.approx(spoilt, rel=0.03)


def test_temperature_stays_within_its_bounds():
    right = np.array([[5.0, 0.0], [0.0, 5.0]])
    # below, all is 0 to the last digit
    assert TEMPERATURES[0] <= fit_temperature(right, np.array([0, 1])) < 0.2
    assert fit_temperature(right, np.array([1, 0])) == pytest.approx(TEMPERATURES[1], rel=1e-3)


def test_a_row_is_scaled_by_a_temperature_that_it_had_no_part_in():
    rng = np.random.default_rng(1)
    logits, gold = rng.normal(0, 3, (40, 3)), rng.integers(0, 3, 40)
    before = cross_scaled(logits, gold)
    temperature = (logits / before)[:, 0]
    assert (logits / before) == pytest.approx(np.tile(temperature[:, None], 3))
    parts = np.unique(temperature.round(6))
    assert len(parts) == 2
    for part in parts:
        mine = np.isclose(temperature, part)
        assert mine.sum() == 20
        assert fit_temperature(logits[~mine], gold[~mine]) == pytest.approx(part, rel=1e-4)


def test_scaling_mends_a_classifier_that_is_too_sure():
    rng = np.random.default_rng(2)
    gold = rng.integers(0, 2, 2000)
    logits = np.eye(2)[np.where(rng.random(2000) < 0.7, gold, 1 - gold)] * 8.0

    def error(z):
        return expected_calibration_error(np.exp(z) / np.exp(z).sum(1, keepdims=True), gold)

    assert error(logits) > 0.25
    assert error(cross_scaled(logits, gold)) < 0.05


def test_too_few_rows_to_split_stay_as_they_are():
    logits = np.array([[2.0, 1.0]])
    assert (cross_scaled(logits, np.array([0])) == logits).all()

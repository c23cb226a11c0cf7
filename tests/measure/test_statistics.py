import numpy as np
import pytest
from scipy.stats import bootstrap, chi2

from distillkit.measure.metrics import expected_calibration_error
from distillkit.measure.parts import SCORE_OF_PARTS, row_parts
from distillkit.measure.statistics import (
    TEMPERATURES,
    coverage_floors,
    cross_scaled,
    fit_temperature,
    mcnemar,
    negative_log_likelihood,
    paired_bootstrap,
)


def _right(share, rows, seed):
    return np.random.default_rng(seed).random(rows) < share


def _interval(first, second, score=None, **options):
    found = paired_bootstrap(first, second, score, **options)
    return found.mean, found.low, found.high


def _assert_is_scipys(found, columns, difference, error):
    """Compare an interval with scipy's own of the same rows."""
    theirs = bootstrap(
        columns, difference, paired=True, vectorized=True, method="percentile", rng=0
    ).confidence_interval
    assert found[0] == pytest.approx(difference(*columns, axis=0))
    assert found[1:] == pytest.approx((theirs.low, theirs.high), abs=error)


def test_bootstrap_draws_rows_and_seeds_by_hand():
    # One row better by 1, one by 0: of two drawn the mean is 0, 1/2 or 1 with probability 1/4, 1/2,
    # 1/4. The middle 40 % are all 1/2, the middle 60 % are not.
    rows = np.array([[1, 1]]), np.array([[0, 1]])
    # Every row of one seed differs, no row of the other: only which seeds are drawn can vary.
    seeds = np.array([[1] * 50, [0] * 50]), np.zeros((2, 50))
    # Seed 1 finds every label, seed 2 none, whichever rows are drawn: 1 and 0.
    parts = np.stack([np.full((20, 2), [1, 2]), np.full((20, 2), [0, 1])])
    labels = parts, np.tile(parts[1], (2, 1, 1)), SCORE_OF_PARTS["multi-label"]
    for case in (rows, seeds, labels):
        assert _interval(*case, level=0.4) == (0.5, 0.5, 0.5)
        assert _interval(*case, level=0.6)[1:] == (0, 1)


def _mean_difference(first, second, axis):
    return first.mean(axis) - second.mean(axis)


def test_bootstrap_of_one_seed_is_scipys():
    first, second = _right(0.85, 500, 1).astype(float), _right(0.8, 500, 2).astype(float)
    found = _interval(first[None], second[None], resamples=20_000)
    _assert_is_scipys(found, (first, second), _mean_difference, 0.003)


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
    found = _interval(first, second, SCORE_OF_PARTS["multi-label"])
    _assert_is_scipys(found, (*first[0].T, *second[0].T), _f1_difference, 0.006)
    assert found[2] - found[1] > 0.1


def _correlation(x, y, axis):
    x, y = x - x.mean(axis, keepdims=True), y - y.mean(axis, keepdims=True)
    return (x * y).sum(axis) / np.sqrt((x * x).sum(axis) * (y * y).sum(axis))


def test_bootstrap_of_pearsons_correlation_is_scipys():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=100)
    scores = [3 + gold + rng.normal(size=100) * noise for noise in (0.6, 1.0)]
    first, second = (row_parts("regression", z[:, None], gold)[None] for z in scores)
    found = _interval(first, second, SCORE_OF_PARTS["regression"])

    def difference(x, other, y, axis):
        return _correlation(x, y, axis) - _correlation(other, y, axis)

    _assert_is_scipys(found, (*scores, gold), difference, 0.008)
    assert found[2] - found[1] > 0.1


def test_bootstrap_pairs_rows_and_seeds():
    first = np.stack([_right(0.5, 200, seed) for seed in range(3)])
    assert _interval(first, first) == (0, 0, 0)
    # The same rows are better in every seed. Unpaired, the seeds' differences would widen this.
    better, worse = first.copy(), first.copy()
    better[:, :20], worse[:, :20] = True, False
    spread = 1.96 * np.sqrt(0.1 * 0.9 / 200)
    found = _interval(better, worse, resamples=20_000)
    assert found[1:] == pytest.approx((0.1 - spread, 0.1 + spread), abs=0.006)


def test_bootstrap_is_the_same_each_time_and_whatever_it_holds_at_once(monkeypatch):
    first, second = np.stack([_right(0.8, 300, 1)] * 2), np.stack([_right(0.7, 300, 2)] * 2)
    assert paired_bootstrap(first, second) == paired_bootstrap(first, second)
    assert paired_bootstrap(first, second) != paired_bootstrap(first, second, seed=1)
    whole = paired_bootstrap(first, second)
    monkeypatch.setattr("distillkit.measure.statistics._COUNTS_AT_ONCE", 3000)
    parts = paired_bootstrap(first, second)
    assert (parts.low, parts.high) == pytest.approx((whole.low, whole.high), abs=0.01)


def test_bootstrap_refuses_what_is_not_paired():
    for first, second in (((2, 5), (1, 5)), ((5,), (5,)), ((1, 0), (1, 0))):
        with pytest.raises(ValueError, match="expected the same"):
            paired_bootstrap(np.zeros(first), np.zeros(second))
    with pytest.raises(ValueError, match=r"expected the same \(S, N, K\)"):
        paired_bootstrap(np.zeros((2, 5)), np.zeros((2, 5)), SCORE_OF_PARTS["regression"])


def test_mcnemar_of_a_hand_calculation():
    # 8 rows only the first has right, 1 only the second, 20 both: 2 * (C(9, 0) + C(9, 1)) / 2^9.
    first = np.array([True] * 8 + [False] + [True] * 20)
    second = np.array([False] * 8 + [True] + [True] * 20)
    assert mcnemar(first, second) == pytest.approx(2 * 10 / 512)
    assert mcnemar(second, first) == pytest.approx(2 * 10 / 512)
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
    assert fit_temperature(right, np.array([0, 1])) == 1.0  # never wrong: nothing to learn from
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
    # One row cannot be split, and stays as it is.
    assert (cross_scaled(logits[:1], gold[:1]) == logits[:1]).all()


def test_floors_of_a_hand_calculation():
    # p(gold) is 0.1, 0.2, ..., 0.9: of 9 rows, 50 % takes the 5th from the top, 90 % the 9th.
    share = np.arange(1, 10) / 10
    found = coverage_floors(np.log(np.stack([share, 1 - share], axis=1)), np.zeros(9, int))
    assert found["0.50"] == pytest.approx(0.5, abs=2e-6)
    assert found["0.90"] == pytest.approx(0.1, abs=2e-6)
    assert list(found) == [f"{percent / 100:.2f}" for percent in range(50, 91)]


def test_label_sets_of_new_rows_cover_what_was_wanted():
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 2, (20_000, 5))
    gold = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    floors = coverage_floors(logits[:4000], gold[:4000])
    for coverage in ("0.60", "0.90", "0.99"):
        sets = shares[4000:] >= floors[coverage]
        covered = sets[np.arange(len(sets)), gold[4000:]].mean()
        assert covered == pytest.approx(float(coverage), abs=0.02)

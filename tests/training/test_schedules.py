import pytest

from distillkit.recipe import TrainingConfig
from distillkit.training.schedules import rate_factor


def factors(steps, **options):
    config = TrainingConfig(**{"warmup_fraction": 0.0} | options)
    return [rate_factor(config, step, steps) for step in range(steps)]


def test_the_rate_warms_up_to_its_peak_and_falls_to_0_in_straight_lines():
    expected = [0.25, 0.5, 0.75, 1.0, 1.0, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert factors(10, warmup_fraction=0.4) == pytest.approx(expected)


def test_the_papers_warm_up_is_a_tenth_of_the_steps():
    assert factors(20, warmup_fraction=TrainingConfig().warmup_fraction)[:4] == pytest.approx(
        [0.5, 1.0, 1.0, 17 / 18]
    )


def test_a_constant_rate_stays_at_its_peak_after_the_warm_up():
    assert factors(6, warmup_fraction=0.5, schedule="constant") == pytest.approx(
        [1 / 3, 2 / 3, 1, 1, 1, 1]
    )


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_a_polynomial_is_a_power_of_what_is_left(power):
    expected = [(left / 5) ** power for left in (5, 4, 3, 2, 1)]
    assert factors(5, schedule="polynomial", schedule_power=power) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["linear", "polynomial", "constant"])
def test_a_warm_up_of_every_step_reaches_the_peak_at_the_last(schedule):
    assert factors(4, warmup_fraction=1.0, schedule=schedule) == pytest.approx(
        [0.25, 0.5, 0.75, 1.0]
    )

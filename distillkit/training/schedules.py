"""The learning rate as a function of the step alone, so that there is no state to lose."""

import math

from distillkit.recipe import TrainingConfig


def rate_factor(config: TrainingConfig, step: int, steps: int) -> float:
    """Return what the peak learning rate is multiplied by.

    Args:
        config: Warm-up and schedule.
        step: Optimizer steps done before this one, from 0.
        steps: Optimizer steps in all.

    Returns:
        A line from 0 to 1 over the warm-up; then 1, or down to 0 along the schedule.

    >>> [rate_factor(TrainingConfig(warmup_fraction=0.5), step, 4) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    warmup = math.ceil(steps * config.warmup_fraction)
    if step < warmup:
        return (step + 1) / warmup
    left = (steps - step) / max(1, steps - warmup)  # 1 down to 0
    if config.schedule == "linear":
        return left
    return float(left**config.schedule_power) if config.schedule == "polynomial" else 1.0

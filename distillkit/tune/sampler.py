"""What a trial tries: Optuna's TPE sampler for several objectives."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from distillkit.tune.space import Hyperparameter, Parameters

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

OBJECTIVES: dict[str, Literal["maximize", "minimize"]] = {
    "score": "maximize",
    "milliseconds": "minimize",
    "megabytes": "minimize",
}
_DRAWS = 20  # after so many known proposals, all settings of a space count as tried


def propose(
    space: Mapping[str, Hyperparameter],
    trials: Sequence[Mapping[str, Any]],
    tried: Sequence[Parameters],
    seed: int,
) -> dict[str, float] | None:
    """Return what the next trial is to try; None where no settings are left.

    Args:
        space: What is searched.
        trials: Those before it: `failed`, or its objectives.
        tried: Their parameters.
        seed: Of the search.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {name: _distribution(found) for name, found in space.items()}
    for draw in range(_DRAWS):
        # One sampler per trial, seeded by its number: no state has to outlive a kill.
        own = np.random.SeedSequence([seed, len(trials), draw]).generate_state(1)[0]
        study = optuna.create_study(
            directions=list(OBJECTIVES.values()), sampler=optuna.samplers.TPESampler(seed=int(own))
        )
        for trial, parameters in zip(trials, tried, strict=True):
            if all(parameters[name] in found for name, found in space.items()):
                _tell(study, trial, parameters, distributions)
        asked = study.ask(distributions).params
        proposed = {name: _rounded(value, space[name]) for name, value in asked.items()}
        if proposed not in tried:
            return proposed
    return None


def _tell(
    study: "Study",
    trial: Mapping[str, Any],
    parameters: Parameters,
    distributions: "dict[str, BaseDistribution]",
) -> None:
    from optuna.trial import TrialState, create_trial

    failed = "failed" in trial
    study.add_trial(
        create_trial(
            state=TrialState.FAIL if failed else TrialState.COMPLETE,
            params=dict(parameters),
            distributions=distributions,
            values=None if failed else [trial[name] for name in OBJECTIVES],
        )
    )


def _distribution(found: Hyperparameter) -> "BaseDistribution":
    from optuna.distributions import FloatDistribution, IntDistribution

    if found.whole:
        return IntDistribution(int(found.low), int(found.high), log=found.log, step=found.step)
    return FloatDistribution(found.low, found.high, log=found.log)


def _rounded(value: float, found: Hyperparameter) -> float:
    """Leave three digits of a fraction, which are easy to read in a recipe."""
    return value if found.whole else min(found.high, max(found.low, float(f"{value:.3g}")))

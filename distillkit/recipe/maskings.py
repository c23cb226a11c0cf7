"""Masking strategies: what a recipe and the masker ask of one.

A file in `teacher/masking` declares each strategy, without torch. It is found by its name, so no
module lists the strategies. Code outside distillkit adds to `STRATEGIES`.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from distillkit.errors import InputError
from distillkit.recipe.kinds import choose

_FOLDER = Path(__file__).parents[1] / "teacher" / "masking"


@dataclass(frozen=True)
class MaskingStrategy:
    """One way to choose and replace tokens.

    Attributes:
        name: `adapt.masking.strategy`.
        summary: What it is, in one phrase, for help and docs.
        words: Whether whole words are chosen; else tokens.
        runs: Returns, from a `MaskingConfig`, how often 1, 2, ... words are chosen together, in any
            proportion (a sequence or a tensor); None: every word is chosen alone.
        together: What one draw replaces alike: each token, a word, or a run of words.
        similar: Whether similar words stand where other strategies have the mask token.
    """

    name: str
    summary: str
    words: bool = True
    runs: Callable[[Any], Sequence[float]] | None = None
    together: Literal["token", "word", "run"] = "token"
    similar: bool = False

    def check(self, config: Any) -> None:
        """Refuse settings of a `MaskingConfig` that do not fit.

        Raises:
            InputError: A rate is too high for runs, or similar words are given and not read.
        """
        if self.runs is not None and config.rate > 0.5:
            raise InputError(
                f"masking.rate: {self.name} leaves a word between any two runs; expected at most 0.5"
            )
        if config.similar and not self.similar:
            raise InputError(f"masking.similar is for macbert, not for {self.name}; leave it out")


STRATEGIES: dict[str, MaskingStrategy] = {}


def load_strategies() -> dict[str, MaskingStrategy]:
    """Import all files of `teacher/masking`, by name, and return `STRATEGIES`."""
    for path in sorted(_FOLDER.glob("[!_]*.py")):
        importlib.import_module(f"distillkit.teacher.masking.{path.stem}")
    return STRATEGIES


def strategy_of(name: str) -> MaskingStrategy:
    """Return a masking strategy by its name.

    Raises:
        InputError: There is none; the message lists all.
    """
    if name not in load_strategies():
        raise InputError(f"adapt.masking.strategy is {name!r}: {choose(name, STRATEGIES)}")
    return STRATEGIES[name]

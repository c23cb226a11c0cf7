"""The rules: masking, replacement by part of speech and n-gram sampling.

The paper draws all three for each variant, as one recipe, so they are one method with three rates.
"""

from pathlib import Path

from distillkit.augment.corpus import Lexicon
from distillkit.augment.method import Method
from distillkit.augment.rules import Rules, Variation
from distillkit.recipe import AugmentConfig


def _variation(lexicon: Lexicon, config: AugmentConfig, folder: Path) -> Variation:
    return Rules(lexicon, config)


RULES = Method(
    "rules",
    "Words masked or replaced by others of their part of speech, and texts cut to an n-gram (Tang et al. 2019).",
    variation=_variation,
)

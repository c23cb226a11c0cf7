"""Runs of words of a few lengths."""

from distillkit.recipe.maskings import STRATEGIES, MaskingStrategy

STRATEGY = MaskingStrategy(
    "n-gram",
    "1 to 4 words together, as often as ngram_shares says",
    runs=lambda config: config.ngram_shares,
)

STRATEGIES[STRATEGY.name] = STRATEGY

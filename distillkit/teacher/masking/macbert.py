"""N-grams replaced by similar words (Cui et al. 2020, arXiv 2004.13922, section 3.1)."""

from distillkit.recipe.maskings import STRATEGIES, MaskingStrategy

STRATEGY = MaskingStrategy(
    "macbert",
    "n-grams, replaced by similar words in place of the mask (Cui et al. 2020)",
    runs=lambda config: config.ngram_shares,
    together="word",
    similar=True,
)

STRATEGIES[STRATEGY.name] = STRATEGY

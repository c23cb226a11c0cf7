"""Words that matter to a classifier, more often (after Gu et al. 2020, arXiv 2004.09733)."""

from distillkit.recipe.maskings import STRATEGIES, MaskingStrategy

STRATEGY = MaskingStrategy(
    "task-guided",
    "words that matter to a fine-tuned classifier, more often (Gu et al. 2020)",
    settings=("guide",),
    needs="guide",
)

STRATEGIES[STRATEGY.name] = STRATEGY

"""Single subwords, each chosen by itself (Devlin et al. 2019, arXiv 1810.04805)."""

from distillkit.recipe.maskings import STRATEGIES, MaskingStrategy

STRATEGY = MaskingStrategy("token", "single subwords (Devlin et al. 2019)", words=False)

STRATEGIES[STRATEGY.name] = STRATEGY

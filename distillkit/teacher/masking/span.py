"""Spans of geometric length (Joshi et al. 2020, arXiv 1907.10529, section 3.1)."""

from typing import TYPE_CHECKING, Any

from distillkit.recipe.maskings import STRATEGIES, MaskingStrategy

if TYPE_CHECKING:
    from distillkit.recipe.adapt import MaskingConfig


_P, _LONGEST = 0.2, 10  # a mean of 3.8 words


def _geometric(_: "MaskingConfig") -> Any:
    """Return how often a span has 1, 2, ... words."""
    import torch  # in torch's float32, so that masks stay as they were

    return (1 - _P) ** torch.arange(_LONGEST) * _P


STRATEGY = MaskingStrategy(
    "span", "runs of geometric length (Joshi et al. 2020)", runs=_geometric, together="run"
)

STRATEGIES[STRATEGY.name] = STRATEGY

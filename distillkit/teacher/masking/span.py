"""Spans of geometric length (Joshi et al. 2020, arXiv 1907.10529, section 3.1)."""

from typing import TYPE_CHECKING, Any

from distillkit.recipe.maskings import STRATEGIES, MaskingStrategy

if TYPE_CHECKING:
    from distillkit.recipe.adapt import MaskingConfig


def _geometric(config: "MaskingConfig") -> Any:
    """Return how often a span has 1 to `max_span` words; 0.2 and 10 give a mean of 3.8."""
    import torch  # in torch's float32, so that masks stay as they were

    return (1 - config.span_p) ** torch.arange(config.max_span) * config.span_p


STRATEGY = MaskingStrategy(
    "span", "runs of geometric length (Joshi et al. 2020)", runs=_geometric, together="run"
)

STRATEGIES[STRATEGY.name] = STRATEGY

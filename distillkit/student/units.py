"""Choose the units of a network that stay, and cut its weights down to them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def saliency(weight: Tensor) -> Tensor:
    """Return the saliency of each number of a weight, its square, in its shape."""
    return weight.detach().square()


def best_units(score: Tensor, share: float) -> list[int]:
    """Return the numbers of the units that stay, ascending.

    Args:
        score: Saliency of each unit, (n,).
        share: Of units that go, 0 to 1; one at least stays.
    """
    kept = max(1, round(len(score) * (1 - share)))
    return sorted(score.topk(kept).indices.tolist())


def keep_units(module: nn.Module, name: str, kept: Sequence[int], axis: int) -> None:
    """Keep some rows (axis 0) or columns (axis 1) of a parameter, in place."""
    weight: Tensor = getattr(module, name)
    part = weight.detach().index_select(axis, torch.tensor(kept)).contiguous()
    setattr(module, name, nn.Parameter(part, requires_grad=weight.requires_grad))


def keep_rows(layer: nn.Linear, rows: Sequence[int], columns: Sequence[int] | None = None) -> None:
    """Keep some outputs of a layer, and of its inputs those of `columns`; None: all; in place."""
    keep_units(layer, "weight", rows, 0)
    keep_units(layer, "bias", rows, 0)
    layer.out_features = len(rows)
    if columns is not None:
        keep_units(layer, "weight", columns, 1)
        layer.in_features = len(columns)

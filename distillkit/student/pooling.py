"""One vector a text from the vectors of its words."""

import torch
from torch import Tensor, nn


class Pooling(nn.Module):
    """Maximum, mean or attention over a text's own words; a text without any gets zeros.

    Args:
        how: max, mean or attention.
        width: D.

    Source, for attention: Yang et al. 2016 (Hierarchical Attention Networks), section 2.2.
    """

    def __init__(self, how: str, width: int) -> None:
        super().__init__()
        self.how = how
        if how == "attention":
            self.score = nn.Sequential(
                nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1, bias=False)
            )

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Pool.

        Args:
            states: (T, B, D) float; what follows a text's own words may be anything.
            lengths: Words a text, (B,) int64.

        Returns:
            (B, D).
        """
        # (T, B, 1)
        behind = (torch.arange(states.shape[0], device=states.device)[:, None] >= lengths)[
            :, :, None
        ]
        if self.how == "max":
            # A number as low as bf16 and fp16 have one, too.
            return states.masked_fill(behind, -3e4).amax(0) * (lengths > 0)[:, None]
        if self.how == "mean":
            return states.masked_fill(behind, 0).sum(0) / lengths.clamp(min=1)[:, None]
        # (T, B, 1)
        weights = self.score(states).masked_fill(behind, -3e4).softmax(0).masked_fill(behind, 0)
        return (states.masked_fill(behind, 0) * weights).sum(0)

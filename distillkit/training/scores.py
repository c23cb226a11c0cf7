"""The scale of scores: those far from 0 are learnt standardised, and a line fits them to dev."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from distillkit.data.batches import Encoded

# A fresh head answers near 0, and its steps are small: it gets no further than about 10. Nearer
# scores are learnt as they are: on STS-B (0 to 5; dev, seed 1) that scores 86.2, standardised 85.8.
REACH = 8.0
_SAMPLED = 1_000_000  # rows, evenly spaced
_LINE_ROWS = 20  # fewer say little about two numbers


def scale_of(scores: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation of scores beyond `REACH`, (N,) or (N, 1); else 0 and 1.

    Scores that are NaN, as those of rows without a label, do not count.
    """
    found = scores.flatten()[:: max(1, len(scores) // _SAMPLED)]
    found = found[found.isfinite()]
    if not len(found) or float(found.abs().max()) <= REACH:
        return 0.0, 1.0
    return float(found.mean()), float(found.std(correction=0)) or 1.0


def head_of(model: Any) -> nn.Linear:
    """Return the layer that gives a model's scores."""
    return [part for part in model.modules() if isinstance(part, nn.Linear)][-1]


def standardise(model: Any, rows: Encoded, centre: float, spread: float) -> None:
    """Let a model whose head gives such scores already begin with standardised ones, in place.

    One that gives other scores, as of 0 to 1 for years, is as good as fresh, and left as it is.
    """
    some = rows.batch(torch.arange(min(len(rows), 64)))
    with torch.inference_mode():
        far = float(model(**some).logits.mean()) - centre
    if abs(far) < 4 * spread:
        rescale(model, -centre / spread, 1 / spread)


def line_to(gold: np.ndarray, found: np.ndarray) -> tuple[float, float] | None:
    """Return centre and spread with which `centre + spread * found` is nearest to `gold`.

    The best epoch is chosen by a correlation, which sees no scale: an early one may answer too near
    to the mean.

    Args:
        gold: (N,) float.
        found: A model's answers for the same rows, (N,) float.

    Returns:
        By least squares; None where fewer than 20 rows, or a slope that is not positive, say none.
    """
    if len(gold) < _LINE_ROWS or not np.ptp(found):
        return None
    spread, centre = np.polyfit(found.astype(np.float64), gold, 1)
    return (float(centre), float(spread)) if spread > 0 else None


def rescale(model: Any, centre: float, spread: float) -> None:
    """Let a model that has learnt standardised scores answer with the scores, in place."""
    if (centre, spread) == (0.0, 1.0):  # a decoder's head has no bias
        return
    head = head_of(model)
    with torch.no_grad():
        head.weight.mul_(spread)
        head.bias.mul_(spread).add_(centre)

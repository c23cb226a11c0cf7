"""Saliency of weights: their square, or how far the logits move without them."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils import prune

from distillkit.compress.quantise import stored_weights
from distillkit.data.batches import Encoded, budget_batches
from distillkit.processes import progress_bar
from distillkit.recipe import CompressConfig

_ROWS = 4000  # to take curvature on
_BATCH_TOKENS = 2048


def saliencies(
    model: Any, criterion: Literal["magnitude", "obd"], rows: Encoded | None, seed: int
) -> dict[str, Tensor]:
    """Return the saliency of each weight of a model, by parameter's name, in its shape.

    Args:
        model: A classifier, in float32.
        criterion: magnitude: the square of the weight. obd: half of it times the curvature of the
            squared error of the logits, by its diagonal.
        rows: What the model reads; for obd alone.
        seed: Draws rows and signs.

    Source: LeCun, Denker and Solla 1989 (Optimal Brain Damage), equation 5.
    """
    squares = {name: weight.detach().square() for name, weight in model.named_parameters()}
    if criterion == "magnitude" or rows is None:
        return squares
    found = curvatures(model, rows, seed)
    return {name: square * found[name] / 2 for name, square in squares.items()}


def curvatures(model: Any, rows: Encoded, seed: int) -> dict[str, Tensor]:
    """Return the diagonal of the Gauss-Newton matrix, by parameter's name, mean over 4,000 rows.

    It is the sum of each logit's squared gradient. One backward pass serves all logits: they are
    summed with random signs, and products of different logits cancel in the mean (Hutchinson 1989).
    """
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(rows), generator=draw)[:_ROWS]
    total = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    was_training = model.training
    trained = {name: weight.requires_grad for name, weight in model.named_parameters()}
    model.eval().requires_grad_(True)
    with progress_bar(total=len(chosen), desc="compress: curvature", unit="row") as bar:
        for batch in budget_batches(rows.lengths[chosen], _BATCH_TOKENS):
            logits = model(**rows.batch(chosen[batch])).logits
            signs = torch.randint(0, 2, logits.shape, generator=draw) * 2 - 1
            parts = torch.autograd.grad(
                (logits * signs).sum(), list(model.parameters()), allow_unused=True
            )
            for name, part in zip(total, parts, strict=True):
                if part is not None:
                    total[name] += part.square()
            bar.update(len(batch))
    for name, weight in model.named_parameters():
        weight.requires_grad_(trained[name])
    model.train(was_training)
    return {name: value / max(len(chosen), 1) for name, value in total.items()}


def zero_weights(
    model: Any, fraction: float, saliency: Mapping[str, Tensor], compress: CompressConfig
) -> None:
    """Set the weights of least saliency to zero, in place; tables, biases and norms stay whole.

    Args:
        model: A classifier.
        fraction: Of weights that are zero afterwards, 0 to 1.
        saliency: As `saliencies` gives it.
        compress: `scope`: whether the fraction is of all weights together or of each tensor.
    """
    names = {id(weight): name for name, weight in model.named_parameters()}
    parts = [
        (module, name)
        for module, name, _ in stored_weights(model, compress)
        if not isinstance(module, torch.nn.Embedding)
    ]
    scores: Any = {part: saliency[names[id(getattr(*part))]] for part in parts}
    if compress.scope == "global":
        prune.global_unstructured(
            parts, prune.L1Unstructured, importance_scores=scores, amount=fraction
        )
    else:
        for module, name in parts:
            prune.l1_unstructured(module, name, fraction, importance_scores=scores[module, name])
    for module, name in parts:
        prune.remove(module, name)

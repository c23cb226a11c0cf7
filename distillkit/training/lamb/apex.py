"""The step by NVIDIA's FusedLAMB."""

import importlib
import math
from typing import Any

from distillkit.training.lamb.foreach import LISTED
from distillkit.training.lamb.slots import Slot, batches


def step_apex(slots: list[Slot], divisor: float) -> None:
    """Take the step by apex, on stand-ins for the parameters: apex overwrites the gradients."""
    optimizer_class = fused_lamb()
    for slot in slots:
        slot.step.add_(1)
    for batch in batches(slots, LISTED, by_step=True):
        group = batch[0].group
        weights = [slot.weight.detach() for slot in batch]
        for weight, slot in zip(weights, batch, strict=True):
            weight.grad = slot.grad.to(weight.dtype) / divisor
        optimizer = optimizer_class(
            # apex counts steps by group, from 1.
            [{"params": weights, "step": int(batch[0].step) - 1}],
            lr=group["lr"],
            bias_correction=group["bias_correction"],
            betas=tuple(group["betas"]),
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            adam_w_mode=group["adam_w_mode"],
            grad_averaging=group["grad_averaging"],
            max_grad_norm=math.inf,  # clipped above, over all groups
            use_nvlamb=group["always_adapt"],
        )
        for weight, slot in zip(weights, batch, strict=True):
            optimizer.state[weight] = {"exp_avg": slot.exp_avg, "exp_avg_sq": slot.exp_avg_sq}
        optimizer.step()


def fused_lamb() -> Any:
    """Return apex's class.

    Raises:
        ValueError: apex is not there.
    """
    try:
        return importlib.import_module("apex.optimizers").FusedLAMB
    except (ImportError, AttributeError):
        message = "path 'apex' needs NVIDIA's apex, built with its CUDA extensions (`apex` on PyPI is another package)"
        raise ValueError(message) from None

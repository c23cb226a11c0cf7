"""The step in lists of tensors, on a GPU."""

import math
from typing import Any

import torch
from torch import Tensor

from distillkit.training.lamb.slots import Slot, adapts, batches, ratios, squares

# Elements of one call: bounds the memory of its temporaries (256 MB each in fp32).
LISTED = 1 << 26


def step_foreach(slots: list[Slot], divisor: Tensor | None, skip: Tensor | None) -> None:
    """Take the step in lists of tensors; nothing waits for the device.

    Args:
        slots: Parameters with gradients.
        divisor: Of the gradients, () float; None for 1.
        skip: Whether nothing may change, () bool on a device; None: the step counts.
    """
    for batch in batches(slots, LISTED):
        group, (beta1, beta2), decay = (
            batch[0].group,
            batch[0].group["betas"],
            batch[0].group["weight_decay"],
        )
        weights, steps = [slot.weight for slot in batch], [slot.step for slot in batch]
        ms, vs = [slot.exp_avg for slot in batch], [slot.exp_avg_sq for slot in batch]
        grads = [slot.grad.to(slot.weight.dtype) for slot in batch]
        here = None if skip is None else skip.to(weights[0].device)
        if divisor is not None:
            grads = list(torch._foreach_div(grads, divisor.to(weights[0].device, weights[0].dtype)))
        if here is not None:
            # Gradients of 0 and the factors below leave everything as it is.
            grads = [grad.masked_fill(here, 0) for grad in grads]
        # A list: of one tensor _foreach_add_ reads the number, and waits.
        torch._foreach_add_(steps, [_unless(here, 1.0, 0.0)] * len(steps))
        if not group["adam_w_mode"] and decay:
            grads = list(
                torch._foreach_add(grads, torch._foreach_mul(weights, _unless(here, decay, 0.0)))
            )
        torch._foreach_mul_(ms, _unless(here, beta1, 1.0))
        torch._foreach_add_(ms, grads, alpha=1 - beta1 if group["grad_averaging"] else 1)
        torch._foreach_mul_(vs, _unless(here, beta2, 1.0))
        torch._foreach_addcmul_(vs, grads, grads, value=1 - beta2)
        del grads
        # (m / c1) / (sqrt(v / c2) + eps) with as few passes as it takes.
        updates = list(torch._foreach_sqrt(vs))
        if group["bias_correction"]:
            first, second = (
                _corrections(steps, beta1, 1.0, here),
                _corrections(steps, beta2, 0.5, here),
            )
            torch._foreach_div_(updates, second)
            torch._foreach_add_(updates, group["eps"])
            torch._foreach_mul_(updates, first)
        else:
            torch._foreach_add_(updates, group["eps"])
        updates = list(torch._foreach_div(ms, updates))
        if group["adam_w_mode"] and decay:
            torch._foreach_add_(updates, weights, alpha=decay)
        if adapts(group):
            factors = ratios(squares(weights), squares(updates), batch) * _unless(
                here, -group["lr"], 0.0
            )
            torch._foreach_mul_(updates, list(factors.to(weights[0].dtype).unbind()))
        else:
            torch._foreach_mul_(updates, _unless(here, -group["lr"], 0.0))
        torch._foreach_add_(weights, updates)


def _unless(skip: Tensor | None, value: float, otherwise: float) -> Any:
    # torch.where would copy the numbers to the device, and wait.
    return value if skip is None else ~skip * value + skip * otherwise


def _corrections(steps: list[Tensor], beta: float, power: float, skip: Tensor | None) -> Any:
    """Return (1 - beta^step)^power of each step: floats, or () tensors for steps on the device."""
    if skip is None and steps[0].device.type == "cpu":
        return [(1 - beta ** float(step)) ** power for step in steps]
    # A skipped first step would divide 0 by 0. 1 - beta^step itself would lose half of the digits.
    counts = torch.stack(steps).clamp(min=1)
    return list(
        (-torch.expm1(counts * (math.log(beta) if beta else -math.inf))).pow(power).unbind()
    )

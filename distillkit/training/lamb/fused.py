"""The step by torch's own Adam kernel, on a CPU."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from distillkit.training.lamb.slots import Slot, adapts, batches, flat, laid_out, ratios, squares

# Elements that the kernel sees at once: what it writes is read again while it is still in the
# cache.
CACHED = 589_824


def step_fused(slots: list[Slot], divisor: float, scratch: Tensor) -> None:
    """Take the step by torch's Adam kernel.

    With learning rate 1 and no decay it turns a scratch of zeros into -m / (sqrt(v) + eps).

    Args:
        slots: Parameters with gradients.
        divisor: Of the gradients.
        scratch: Bytes, at least those of the largest batch, (n,) uint8.
    """
    for batch in batches(slots, CACHED):
        group, steps = batch[0].group, [slot.step for slot in batch]
        torch._foreach_add_(steps, 1)
        weights = [flat(slot.weight) for slot in batch]
        sizes = [weight.numel() for weight in weights]
        updates = list(scratch.view(weights[0].dtype)[: sum(sizes)].split(sizes))
        grads = [flat(laid_out(slot.grad, slot.exp_avg)) for slot in batch]
        lists = [
            updates,
            weights,
            grads,
            [flat(s.exp_avg) for s in batch],
            [flat(s.exp_avg_sq) for s in batch],
        ]
        # Either some tensors at once, or a large one piece by piece.
        calls = [lists] if sizes[0] <= CACHED else _pieces(lists)
        # (2, tensors or pieces)
        found = torch.cat([_run_kernel(group, divisor, steps, *call) for call in calls], 1)
        if not adapts(group):
            torch._foreach_add_(weights, updates, alpha=group["lr"])
            continue
        if len(batch) == 1:
            found = found.sum(1, keepdim=True)
        for weight, update, ratio in zip(
            weights, updates, ratios(found[0], found[1], batch).tolist(), strict=True
        ):
            weight.add_(update, alpha=group["lr"] * ratio)


def _pieces(lists: list[list[Tensor]]) -> Iterator[list[list[Tensor]]]:
    """Turn lists of one flat tensor each into one such set of lists a piece."""
    for pieces in zip(*(tensors[0].split(CACHED) for tensors in lists), strict=True):
        yield [[piece] for piece in pieces]


def _run_kernel(
    group: dict[str, Any],
    divisor: float,
    steps: list[Tensor],
    updates: list[Tensor],
    weights: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
) -> Tensor:
    """Advance the moments of flat tensors; write the update before learning rate and ratio.

    Returns:
        Sums of squares of weights and updates while they are in the cache, (2, N) float64; of no
        use where groups do not adapt.
    """
    (beta1, beta2), decay, lr = group["betas"], group["weight_decay"], 1.0
    grads = [grad.to(weights[0].dtype) for grad in grads]
    # The kernel could divide by itself (grad_scale), but would write the quotient over the caller's
    # gradients.
    if divisor != 1:
        grads = list(torch._foreach_mul(grads, 1 / divisor))  # half the time of a division
    if not group["adam_w_mode"] and decay:
        grads = list(torch._foreach_add(grads, weights, alpha=decay))
    # The kernel subtracts from what it takes for the weights.
    if group["adam_w_mode"] and decay:
        for update, weight in zip(updates, weights, strict=True):
            torch.mul(weight, -decay, out=update)
    else:
        torch._foreach_zero_(updates)
    if not group["grad_averaging"]:
        # The kernel averages: the mean is the sum times 1 - beta1.
        torch._foreach_mul_(exp_avgs, 1 - beta1)
        lr = 1 / (1 - beta1)
    if not group["bias_correction"]:
        steps = [torch.tensor(math.inf)] * len(steps)  # 1 - beta^inf = 1
    torch._fused_adam_(
        updates,
        grads,
        exp_avgs,
        exp_avg_sqs,
        [],
        steps,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=0.0,
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
    )
    if not group["grad_averaging"]:
        torch._foreach_div_(exp_avgs, 1 - beta1)
    return torch.stack([squares(weights), squares(updates)]) if adapts(group) else torch.empty(2, 0)


@cache
def kernel_known() -> bool:
    """Whether torch's CPU kernel, which is private, does what it did when this was written."""
    grad, step = torch.tensor([3.0, -4.0]), torch.tensor(2.0)
    tensors = [torch.tensor(values) for values in ([0.0, 0.0], [1.0, 2.0], [3.0, 4.0])]
    group = {
        "betas": (0.5, 0.75),
        "weight_decay": 0.0,
        "eps": 1.0,
        "adam_w_mode": True,
        "always_adapt": False,
    }
    try:
        update, m, v = tensors
        flags = {"grad_averaging": True, "bias_correction": True}
        _run_kernel(group | flags, 1.0, [step], [update], [update], [grad], [m], [v])
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    g = torch.tensor([3.0, -4.0])
    m_, v_ = torch.tensor([1.0, 2.0]).lerp(g, 0.5), torch.tensor([3.0, 4.0]).lerp(g * g, 0.25)
    update_ = -(m_ / 0.75) / ((v_ / 0.4375).sqrt() + 1)
    pairs = [(update, update_), (m, m_), (v, v_), (grad, g), (step, torch.tensor(2.0))]
    return all(torch.allclose(found, wanted) for found, wanted in pairs)

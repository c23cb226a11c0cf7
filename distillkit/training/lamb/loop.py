"""The formula, tensor by tensor: the reference of the other ways, and what they fall back on."""

from distillkit.training.lamb.slots import Slot, adapts, ratios, squares


def step_loop(slots: list[Slot], divisor: float) -> None:
    """Take the step as the formula has it."""
    for slot in slots:
        group, p, m, v = slot.group, slot.weight, slot.exp_avg, slot.exp_avg_sq
        (beta1, beta2), decay = group["betas"], group["weight_decay"]
        slot.step.add_(1)
        g = slot.grad.to(p.dtype) / divisor
        if not group["adam_w_mode"]:
            g.add_(p, alpha=decay)
        m.mul_(beta1).add_(g, alpha=1 - beta1 if group["grad_averaging"] else 1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        corrections = [
            1 - beta ** float(slot.step) if group["bias_correction"] else 1.0
            for beta in group["betas"]
        ]
        update = (m / corrections[0]).div_((v / corrections[1]).sqrt_().add_(group["eps"]))
        if group["adam_w_mode"]:
            update.add_(p, alpha=decay)
        if adapts(group):
            update.mul_(ratios(squares([p]), squares([update]), [slot])[0])
        p.sub_(update, alpha=group["lr"])

"""LAMB: Adam whose step is as long, tensor by tensor, as the tensor itself; for large batches."""

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, get_args, overload

import torch
from torch import Tensor

Path: TypeAlias = Literal["loop", "fused", "foreach", "apex"]
"""loop: the formula, tensor by tensor; fused: torch's own Adam kernel on a CPU; foreach: lists of tensors on a GPU; apex: NVIDIA's FusedLAMB."""

# Elements that the CPU kernel sees at once: what it writes is read again while it is still in the cache.
_CACHED = 589_824
# Elements of a foreach call: bounds the memory of its temporaries (256 MB each in fp32).
_LISTED = 1 << 26
# Elements that a CPU norm adds up in one go: torch's fp32 sum over 23 million is off by a thousandth, over these by 1e-8.
_ROW = 16_384

_LOW_PRECISION = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class _Slot:
    """A parameter that has a gradient; of a DTensor the shard of this rank."""

    parameter: Tensor
    group: dict[str, Any]
    weight: Tensor  # the parameter; of a low-precision one the fp32 master; of one with gaps in memory a copy
    grad: Tensor  # the caller's: never written to
    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor


class Lamb(torch.optim.Optimizer):
    """Layer-wise adaptive moments for large batches, in the form of NVIDIA's reference.

    Gradients are divided by max(1, norm / max_grad_norm), norm over all parameters together; then for each parameter p,
    with Adam's bias-corrected moments m and v: u = m / (sqrt(v) + eps) + weight_decay p, and p -= lr ratio u, where ratio is
    |p| / |u|, or 1 where either is 0. Parameters of a group without weight decay are not adapted (ratio 1), unless `always_adapt`.

    Parameters in bf16 and fp16 get fp32 moments and an fp32 copy that collects the steps (`master` in the state); gradients are
    left as they are. A GradScaler's scale and overflow flag are read on the device; a step that overflowed changes nothing.
    State written by one path is continued by any other.

    Args:
        params: Parameters or groups of them; all options but `max_grad_norm` and `path` may differ by group.
        lr: Learning rate, at least 0.
        betas: Decay of the running means of the gradient and of its square, each from 0 to below 1.
        eps: Added to the root of the second moment, at least 0.
        weight_decay: At least 0.
        bias_correction: Divide the moments by 1 - beta^step.
        grad_averaging: The first moment takes 1 - beta times the gradient; False: all of it.
        adam_w_mode: Weight decay is part of the update; False: it is added to the gradient (L2), after clipping.
        max_grad_norm: Gradients are scaled down to this global norm, above 0; None: never.
        always_adapt: Adapt groups without weight decay too (NVIDIA's `use_nvlamb`).
        trust_clamp: Least and greatest ratio |p| / |u|; None: any.
        path: How the step is computed; None: the fastest that is right, fused on a CPU (loop where torch's kernel is not the one we
            know) and foreach elsewhere. apex wants its package, parameters on a GPU and no trust_clamp, and waits for the overflow flag.

    Raises:
        ValueError: An option is out of range, or the path cannot do what is asked.

    Source: You et al. 2020 (arXiv 1904.00962), algorithm 2; clipping and the exemption of undecayed parameters as in NVIDIA's
    DeepLearningExamples.
    """

    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        bias_correction: bool = True,
        grad_averaging: bool = True,
        adam_w_mode: bool = True,
        max_grad_norm: float | None = 1.0,
        always_adapt: bool = False,
        trust_clamp: tuple[float, float] | None = None,
        path: Path | None = None,
    ) -> None:
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(f"max_grad_norm is {max_grad_norm}: expected more than 0, or None for no clipping")
        if path not in (None, *get_args(Path)):
            raise ValueError(f"path is {path!r}: expected None, {', '.join(get_args(Path))}")
        if path == "fused" and not _kernel_known():
            raise ValueError(f"path 'fused' does not know torch {torch.__version__}'s Adam kernel: choose None")
        if path == "apex":
            _fused_lamb()
        self.max_grad_norm, self.path, self._scratch = max_grad_norm, path, torch.empty(0, dtype=torch.uint8)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "grad_averaging": grad_averaging,
            "adam_w_mode": adam_w_mode,
            "always_adapt": always_adapt,
            "trust_clamp": trust_clamp,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters.

        Args:
            param_group: `params`, and options that differ from the constructor's.

        Raises:
            ValueError: An option is out of range, or the path cannot do what is asked.
        """
        _check({**self.defaults, **param_group}, self.path)
        super().add_param_group(param_group)
        try:
            _check_parameters(self.param_groups[-1]["params"], self.path)
        except ValueError:
            self.param_groups.pop()
            raise

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient.

        Args:
            closure: Computes gradients and returns the loss.

        Returns:
            The closure's loss.

        Raises:
            RuntimeError: A gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # A GradScaler sets both for the time of this call and deletes them after it, hence no attributes of our own.
        scale: Tensor | None = getattr(self, "grad_scale", None)
        overflow: Tensor | None = getattr(self, "found_inf", None)
        if overflow is None:
            self._update(scale, None)
        elif overflow.device.type != "cpu" and self.path in (None, "foreach"):
            self._update(scale, overflow > 0)
        elif not overflow.item():
            self._update(scale, None)
        return loss

    def _update(self, scale: Tensor | None, skip: Tensor | None) -> None:
        slots = self._slots(skip is not None)
        if not slots:
            return
        divisor = self._divisor(slots, scale)
        paths: dict[Path, list[_Slot]] = {}
        for slot in slots:
            paths.setdefault(self._path(slot), []).append(slot)
        for path, some in paths.items():
            if path == "foreach":
                _step_foreach(some, divisor, skip)
            else:
                self._host_step(path, some, 1.0 if divisor is None else float(divisor))
        for slot in slots:
            if slot.weight is not (local := _local(slot.parameter)):
                local.copy_(slot.weight)

    def _host_step(self, path: Path, slots: list[_Slot], divisor: float) -> None:
        if path == "loop":
            _step_loop(slots, divisor)
        elif path == "apex":
            _step_apex(slots, divisor)
        else:
            largest = max(sum(slot.weight.nbytes for slot in batch) for batch in _batches(slots, _CACHED))
            if self._scratch.nbytes < largest:
                # Kept: to get 90 MB of fresh memory costs as much as the step itself.
                self._scratch = torch.empty(largest, dtype=torch.uint8)
            _step_fused(slots, divisor, self._scratch)

    def _path(self, slot: _Slot) -> Path:
        if self.path:
            return self.path
        if slot.weight.device.type != "cpu":
            return "foreach"
        return "fused" if _kernel_known() else "loop"

    def _slots(self, on_device: bool) -> list[_Slot]:
        pairs = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        if any(p.grad.is_sparse for _, p in pairs):
            # A row's moments would stand still while it is not seen, and the norms be those of some rows.
            raise RuntimeError("Lamb wants dense gradients: build the embedding with sparse=False")
        return [self._slot(group, p, on_device) for group, p in pairs]

    def _slot(self, group: dict[str, Any], p: Tensor, on_device: bool) -> _Slot:
        state, grad = self.state[p], p.grad
        dtype = torch.float32 if p.dtype in _LOW_PRECISION else p.dtype
        if "step" not in state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(p, dtype=dtype) for _ in range(2))
        if p.dtype != dtype and "master" not in state:
            state["master"] = p.detach().to(dtype)
        if on_device:
            # Whether this step counts is known there only. Without a GradScaler a step on the host costs fewer launches.
            state["step"] = state["step"].to(p.device, non_blocking=True)
        if _is_dtensor(p) and grad.placements != p.placements:  # type: ignore[union-attr, attr-defined]
            grad = grad.redistribute(placements=p.placements)  # type: ignore[union-attr, attr-defined]
        weight, m, v = (_local(t) for t in (state.get("master", p), state["exp_avg"], state["exp_avg_sq"]))
        if weight.stride() != m.stride():
            weight = torch.empty_like(m).copy_(weight)
        return _Slot(p, group, weight, _local(grad), m, v, state["step"])  # type: ignore[arg-type]

    def _divisor(self, slots: list[_Slot], scale: Tensor | None) -> Tensor | None:
        """Return what gradients are divided by: the scaler's scale times the clipping, () float; None for 1."""
        if self.max_grad_norm is None:
            return scale
        devices: dict[torch.device, list[_Slot]] = {}
        for slot in slots:
            devices.setdefault(slot.grad.device, []).append(slot)
        first = slots[0].grad.device
        sums = [_over_ranks(_squares([s.grad for s in some]), some).sum().to(first) for some in devices.values()]
        norm = torch.stack(sums).sum().sqrt()
        if scale is None:
            return (norm / self.max_grad_norm).clamp(min=1)
        scale = scale.to(first)
        return scale * (norm / scale / self.max_grad_norm).clamp(min=1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state of any path.

        Args:
            state_dict: What `state_dict()` returned, of an optimizer with the same groups.

        Raises:
            ValueError: The groups differ.
        """
        seen: list[dict[str, Any]] = []
        # Last of the hooks, so that what others make of the state is what is seen.
        hook = self.register_load_state_dict_pre_hook(lambda _, loaded: seen.append(loaded))
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        saved = [number for group in seen[0]["param_groups"] for number in group["params"]]
        parameters = [p for group in self.param_groups for p in group["params"]]
        for number, p in zip(saved, parameters, strict=True):
            # torch has cast the moments to the parameter's dtype: take them again, in ours and with the parameter's strides.
            low = p.dtype in _LOW_PRECISION
            for key in ("exp_avg", "exp_avg_sq", "master"):
                value = seen[0]["state"].get(number, {}).get(key)
                if key == "master" and not low:
                    self.state.get(p, {}).pop(key, None)
                elif value is not None:
                    dtype = torch.float32 if low else p.dtype
                    self.state[p][key] = torch.empty_like(p, dtype=dtype, requires_grad=False).copy_(value)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "max_grad_norm": self.max_grad_norm,
            "path": self.path,
            "_scratch": torch.empty(0, dtype=torch.uint8),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)


def _check(group: dict[str, Any], path: Path | None) -> None:
    for name in ("lr", "eps", "weight_decay"):
        if not 0 <= group[name] < math.inf:
            raise ValueError(f"{name} is {group[name]}: expected a number, at least 0")
    if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
        raise ValueError(f"betas is {group['betas']}: expected two numbers from 0 to below 1")
    clamp = group["trust_clamp"]
    if clamp is not None and (len(clamp) != 2 or not 0 <= clamp[0] <= clamp[1]):
        raise ValueError(f"trust_clamp is {clamp}: expected least and greatest ratio, or None")
    if clamp is not None and path == "apex":
        raise ValueError("trust_clamp is not known to apex: choose another path, or None")


def _check_parameters(parameters: list[Tensor], path: Path | None) -> None:
    for p in parameters:
        if not p.is_floating_point():
            raise ValueError(f"a parameter is {p.dtype}: Lamb wants real floating-point parameters")
        if path == "fused" and p.device.type != "cpu":
            raise ValueError(f"path 'fused' is for CPUs and a parameter is on {p.device}: choose None")
        if path == "apex" and _is_dtensor(p):
            raise ValueError("apex would take a shard's norm for the whole parameter's: choose None for DTensors")


def _step_loop(slots: list[_Slot], divisor: float) -> None:
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
        corrections = [1 - beta ** float(slot.step) if group["bias_correction"] else 1.0 for beta in group["betas"]]
        update = (m / corrections[0]).div_((v / corrections[1]).sqrt_().add_(group["eps"]))
        if group["adam_w_mode"]:
            update.add_(p, alpha=decay)
        if _adapts(group):
            update.mul_(_ratios(_squares([p]), _squares([update]), [slot])[0])
        p.sub_(update, alpha=group["lr"])


def _step_fused(slots: list[_Slot], divisor: float, scratch: Tensor) -> None:
    """Take the step by torch's Adam kernel: with learning rate 1 and no decay it turns a scratch of zeros into -m / (sqrt(v) + eps).

    Args:
        slots: Parameters with gradients.
        divisor: Of the gradients.
        scratch: Bytes, at least those of the largest batch, (n,) uint8.
    """
    for batch in _batches(slots, _CACHED):
        group, steps = batch[0].group, [slot.step for slot in batch]
        torch._foreach_add_(steps, 1)
        weights = [_flat(slot.weight) for slot in batch]
        sizes = [weight.numel() for weight in weights]
        updates = list(scratch.view(weights[0].dtype)[: sum(sizes)].split(sizes))
        grads = [_flat(_laid_out(slot.grad, slot.exp_avg)) for slot in batch]
        lists = [updates, weights, grads, [_flat(s.exp_avg) for s in batch], [_flat(s.exp_avg_sq) for s in batch]]
        # Either some tensors at once, or a large one piece by piece.
        calls = [lists] if sizes[0] <= _CACHED else _pieces(lists)
        squares = torch.cat([_run_kernel(group, divisor, steps, *call) for call in calls], 1)  # (2, tensors or pieces)
        if not _adapts(group):
            torch._foreach_add_(weights, updates, alpha=group["lr"])
            continue
        if len(batch) == 1:
            squares = squares.sum(1, keepdim=True)
        for weight, update, ratio in zip(
            weights, updates, _ratios(squares[0], squares[1], batch).tolist(), strict=True
        ):
            weight.add_(update, alpha=group["lr"] * ratio)


def _pieces(lists: list[list[Tensor]]) -> Iterator[list[list[Tensor]]]:
    """Turn lists of one flat tensor each into one such set of lists a piece."""
    for pieces in zip(*(tensors[0].split(_CACHED) for tensors in lists), strict=True):
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
    """Advance the moments of flat tensors, and write what is to be added to the weights, but for learning rate and ratio.

    Returns:
        Sums of squares of weights and updates while they are in the cache, (2, N) float64; of no use where groups do not adapt.
    """
    (beta1, beta2), decay, lr = group["betas"], group["weight_decay"], 1.0
    grads = [grad.to(weights[0].dtype) for grad in grads]
    # The kernel could divide by itself (grad_scale), but would write the quotient over the caller's gradients.
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
    return torch.stack([_squares(weights), _squares(updates)]) if _adapts(group) else torch.empty(2, 0)


@cache
def _kernel_known() -> bool:
    """Whether torch's CPU kernel, which is private, does what it did when this was written."""
    grad, step = torch.tensor([3.0, -4.0]), torch.tensor(2.0)
    tensors = [torch.tensor(values) for values in ([0.0, 0.0], [1.0, 2.0], [3.0, 4.0])]
    group = {"betas": (0.5, 0.75), "weight_decay": 0.0, "eps": 1.0, "adam_w_mode": True, "always_adapt": False}
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


def _step_foreach(slots: list[_Slot], divisor: Tensor | None, skip: Tensor | None) -> None:
    """Take the step in lists of tensors; nothing waits for the device.

    Args:
        slots: Parameters with gradients.
        divisor: Of the gradients, () float; None for 1.
        skip: Whether nothing may change, () bool on a device; None: the step counts.
    """
    for batch in _batches(slots, _LISTED):
        group, (beta1, beta2), decay = batch[0].group, batch[0].group["betas"], batch[0].group["weight_decay"]
        weights, steps = [slot.weight for slot in batch], [slot.step for slot in batch]
        ms, vs = [slot.exp_avg for slot in batch], [slot.exp_avg_sq for slot in batch]
        grads = [slot.grad.to(slot.weight.dtype) for slot in batch]
        here = None if skip is None else skip.to(weights[0].device)
        if divisor is not None:
            grads = list(torch._foreach_div(grads, divisor.to(weights[0].device, weights[0].dtype)))
        if here is not None:
            # Gradients of 0 and the factors below leave everything as it is.
            grads = [grad.masked_fill(here, 0) for grad in grads]
        torch._foreach_add_(steps, _unless(here, 1.0, 0.0))
        if not group["adam_w_mode"] and decay:
            grads = list(torch._foreach_add(grads, torch._foreach_mul(weights, _unless(here, decay, 0.0))))
        torch._foreach_mul_(ms, _unless(here, beta1, 1.0))
        torch._foreach_add_(ms, grads, alpha=1 - beta1 if group["grad_averaging"] else 1)
        torch._foreach_mul_(vs, _unless(here, beta2, 1.0))
        torch._foreach_addcmul_(vs, grads, grads, value=1 - beta2)
        del grads
        # (m / c1) / (sqrt(v / c2) + eps) with as few passes as it takes.
        updates = list(torch._foreach_sqrt(vs))
        if group["bias_correction"]:
            first, second = _corrections(steps, beta1, 1.0, here), _corrections(steps, beta2, 0.5, here)
            torch._foreach_div_(updates, second)
            torch._foreach_add_(updates, group["eps"])
            torch._foreach_mul_(updates, first)
        else:
            torch._foreach_add_(updates, group["eps"])
        updates = list(torch._foreach_div(ms, updates))
        if group["adam_w_mode"] and decay:
            torch._foreach_add_(updates, weights, alpha=decay)
        if _adapts(group):
            factors = _ratios(_squares(weights), _squares(updates), batch) * _unless(here, -group["lr"], 0.0)
            torch._foreach_mul_(updates, list(factors.to(weights[0].dtype).unbind()))
        else:
            torch._foreach_mul_(updates, _unless(here, -group["lr"], 0.0))
        torch._foreach_add_(weights, updates)


def _unless(skip: Tensor | None, value: float, otherwise: float) -> Any:
    # torch.where would copy the numbers to the device, and wait.
    return value if skip is None else ~skip * value + skip * otherwise


def _corrections(steps: list[Tensor], beta: float, power: float, skip: Tensor | None) -> Any:
    """Return (1 - beta^step)^power of each step, as floats or, where they are known to the device alone, as () tensors."""
    if skip is None and steps[0].device.type == "cpu":
        return [(1 - beta ** float(step)) ** power for step in steps]
    # A skipped first step would divide 0 by 0. 1 - beta^step itself would lose half of the digits.
    counts = torch.stack(steps).clamp(min=1)
    return list((-torch.expm1(counts * (math.log(beta) if beta else -math.inf))).pow(power).unbind())


def _step_apex(slots: list[_Slot], divisor: float) -> None:
    """Take the step by apex, on stand-ins for the parameters: it writes over the gradients that it is given."""
    fused_lamb = _fused_lamb()
    for slot in slots:
        slot.step.add_(1)
    for batch in _batches(slots, _LISTED, by_step=True):
        group = batch[0].group
        weights = [slot.weight.detach() for slot in batch]
        for weight, slot in zip(weights, batch, strict=True):
            weight.grad = slot.grad.to(weight.dtype) / divisor
        optimizer = fused_lamb(
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


def _fused_lamb() -> Any:
    try:
        return importlib.import_module("apex.optimizers").FusedLAMB
    except (ImportError, AttributeError):
        message = "path 'apex' needs NVIDIA's apex, built with its CUDA extensions (`apex` on PyPI is another package)"
        raise ValueError(message) from None


def _batches(slots: list[_Slot], elements: int, by_step: bool = False) -> Iterator[list[_Slot]]:
    """Cut into batches of one group, device and dtype, with at most so many elements unless a single tensor has more."""
    kinds: dict[Any, list[_Slot]] = {}
    for slot in slots:
        kind = (id(slot.group), slot.weight.device, slot.weight.dtype, slot.step.device, by_step and float(slot.step))
        kinds.setdefault(kind, []).append(slot)
    for some in kinds.values():
        batch: list[_Slot] = []
        size = 0
        for slot in some:
            # Of a DTensor the elements on all ranks together, so that the ranks cut alike.
            count = slot.parameter.numel()
            if batch and size + count > elements:
                yield batch
                batch, size = [], 0
            batch.append(slot)
            size += count
        yield batch


def _adapts(group: dict[str, Any]) -> bool:
    return bool(group["weight_decay"] or group["always_adapt"])


def _ratios(weights: Tensor, updates: Tensor, slots: list[_Slot]) -> Tensor:
    """Return the trust ratios, (N,) float, from sums of squares, (N,) float each; of a DTensor those of this rank's shard."""
    weight, update = _over_ranks(torch.stack([weights, updates], 1), slots).sqrt().unbind(1)
    ratios = weight / update
    if (clamp := slots[0].group["trust_clamp"]) is not None:
        ratios = ratios.clamp(*clamp)
    return ratios.masked_fill((weight == 0) | (update == 0), 1.0)


def _squares(tensors: list[Tensor]) -> Tensor:
    """Return each tensor's sum of squares, (N,), float32 or float64."""
    if tensors[0].device.type == "cpu":
        return torch.stack([_square(tensor) for tensor in tensors])
    low = tensors[0].dtype in _LOW_PRECISION
    return torch.stack(torch._foreach_norm(tensors, 2, torch.float32 if low else None)).square()


def _square(tensor: Tensor) -> Tensor:
    flat = _flat(tensor)
    dtype = torch.float32 if flat.dtype in _LOW_PRECISION else flat.dtype
    rows, rest = flat.numel() // _ROW, flat.numel() % _ROW
    norms = torch.linalg.vector_norm(flat[: rows * _ROW].view(rows, _ROW), dim=1, dtype=dtype).double()
    if rest or not rows:
        norms = torch.cat([norms, torch.linalg.vector_norm(flat[rows * _ROW :], dtype=dtype).double()[None]])
    return norms.dot(norms)


def _flat(tensor: Tensor) -> Tensor:
    """Return the elements in the order of memory, (numel,): a view unless there are gaps."""
    if tensor.ndim == 1 and tensor.is_contiguous():
        return tensor
    if tensor.is_contiguous() or torch.empty_like(tensor, device="meta").stride() == tensor.stride():
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1)


def _laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor if tensor.stride() == like.stride() else torch.empty_like(like).copy_(tensor)


def _over_ranks(squares: Tensor, slots: list[_Slot]) -> Tensor:
    """Add up sums of squares, (N, ...), over the ranks that share a DTensor; one collective for all that are shared alike."""
    alike: dict[Any, list[int]] = {}
    for row, slot in enumerate(slots):
        if _is_dtensor(slot.parameter):
            alike.setdefault((slot.parameter.device_mesh, slot.parameter.placements), []).append(row)  # type: ignore[attr-defined]
    for (mesh, placements), rows in alike.items():
        from torch.distributed.tensor import DTensor, Partial, Replicate

        parts = [Replicate() if placement.is_replicate() else Partial() for placement in placements]
        squares[rows] = DTensor.from_local(squares[rows], mesh, parts).full_tensor()
    return squares


def _is_dtensor(tensor: Tensor) -> bool:
    # Without this module, which takes a while to import, there are none.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if _is_dtensor(tensor) else tensor  # type: ignore[attr-defined]

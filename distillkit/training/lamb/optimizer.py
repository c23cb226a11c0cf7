"""LAMB: Adam whose step is as long, tensor by tensor, as the tensor itself; for large batches."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, get_args, overload

import torch
from torch import Tensor

from distillkit.training.lamb.apex import fused_lamb, step_apex
from distillkit.training.lamb.foreach import step_foreach
from distillkit.training.lamb.fused import CACHED, kernel_known, step_fused
from distillkit.training.lamb.loop import step_loop
from distillkit.training.lamb.slots import (
    LOW_PRECISION,
    Slot,
    batches,
    over_ranks,
    squares,
)
from distillkit.training.state import is_dtensor, local

Path: TypeAlias = Literal["loop", "fused", "foreach", "apex"]
"""loop: the formula, tensor by tensor; fused: torch's own Adam kernel on a CPU; foreach: lists of
tensors on a GPU; apex: NVIDIA's FusedLAMB."""


class Lamb(torch.optim.Optimizer):
    """Layer-wise adaptive moments for large batches, in the form of NVIDIA's reference.

    Gradients are divided by max(1, norm / max_grad_norm), norm over all parameters together; then
    for each parameter p, with Adam's bias-corrected moments m and v: u = m / (sqrt(v) + eps) +
    weight_decay p, and p -= lr ratio u, where ratio is
    |p| / |u|, or 1 where either is 0. Parameters of a group without weight decay have ratio 1,
    unless `always_adapt`.

    Parameters in bf16 and fp16 get fp32 moments and an fp32 copy that collects the steps (`master`
    in the state); gradients are left as they are. A GradScaler's scale and overflow flag are read
    on the device; a step that overflowed changes nothing. State written by one path is continued by
    any other.

    Args:
        params: Parameters or groups of them; all options but `max_grad_norm` and `path` may differ
            by group.
        lr: Learning rate, at least 0.
        betas: Decay of the running means of the gradient and of its square, each from 0 to below 1.
        eps: Added to the root of the second moment, at least 0.
        weight_decay: At least 0.
        bias_correction: Divide the moments by 1 - beta^step.
        grad_averaging: The first moment takes 1 - beta times the gradient; False: all of it.
        adam_w_mode: Weight decay is part of the update; False: it is added to the gradient (L2),
            after clipping.
        max_grad_norm: Gradients are scaled down to this global norm, above 0; None: never.
        always_adapt: Adapt groups without weight decay too (NVIDIA's `use_nvlamb`).
        trust_clamp: Least and greatest ratio |p| / |u|; None: any.
        path: How the step is computed; None: the fastest that is right, fused on a CPU (loop where
            torch's kernel is not the one we know) and foreach elsewhere. apex wants its package,
            parameters on a GPU and no trust_clamp, and waits for the overflow flag.

    Raises:
        ValueError: An option is out of range, or the path cannot do what is asked.

    Source: You et al. 2020 (arXiv 1904.00962), algorithm 2; clipping and the exemption of undecayed
    parameters as in NVIDIA's DeepLearningExamples.
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
            raise ValueError(
                f"max_grad_norm is {max_grad_norm}: expected more than 0, or None for no clipping"
            )
        if path not in (None, *get_args(Path)):
            raise ValueError(f"path is {path!r}: expected None, {', '.join(get_args(Path))}")
        if path == "fused" and not kernel_known():
            raise ValueError(
                f"path 'fused' does not know torch {torch.__version__}'s Adam kernel: choose None"
            )
        if path == "apex":
            fused_lamb()
        self.max_grad_norm, self.path, self._scratch = (
            max_grad_norm,
            path,
            torch.empty(0, dtype=torch.uint8),
        )
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
        # A GradScaler sets both for the time of this call and deletes them after it, hence no
        # attributes of our own.
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
        paths: dict[Path, list[Slot]] = {}
        for slot in slots:
            paths.setdefault(self._path(slot), []).append(slot)
        for path, some in paths.items():
            if path == "foreach":
                step_foreach(some, divisor, skip)
            else:
                self._host_step(path, some, 1.0 if divisor is None else float(divisor))
        for slot in slots:
            if slot.weight is not (own := local(slot.parameter)):
                own.copy_(slot.weight)

    def _host_step(self, path: Path, slots: list[Slot], divisor: float) -> None:
        if path == "loop":
            step_loop(slots, divisor)
        elif path == "apex":
            step_apex(slots, divisor)
        else:
            largest = max(
                sum(slot.weight.nbytes for slot in batch) for batch in batches(slots, CACHED)
            )
            if self._scratch.nbytes < largest:
                # Kept: to get 90 MB of fresh memory costs as much as the step itself.
                self._scratch = torch.empty(largest, dtype=torch.uint8)
            step_fused(slots, divisor, self._scratch)

    def _path(self, slot: Slot) -> Path:
        if self.path:
            return self.path
        if slot.weight.device.type != "cpu":
            return "foreach"
        return "fused" if kernel_known() else "loop"

    def _slots(self, on_device: bool) -> list[Slot]:
        pairs = [
            (group, p) for group in self.param_groups for p in group["params"] if p.grad is not None
        ]
        if any(p.grad.is_sparse for _, p in pairs):
            # A row's moments would stand still while it is not seen, and the norms be those of some
            # rows.
            raise RuntimeError("Lamb wants dense gradients: build the embedding with sparse=False")
        return [self._slot(group, p, on_device) for group, p in pairs]

    def _slot(self, group: dict[str, Any], p: Any, on_device: bool) -> Slot:
        state, grad = self.state[p], p.grad
        dtype = torch.float32 if p.dtype in LOW_PRECISION else p.dtype
        if "step" not in state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = (
                torch.zeros_like(p, dtype=dtype) for _ in range(2)
            )
        if p.dtype != dtype and "master" not in state:
            state["master"] = p.detach().to(dtype)
        if on_device:
            # Whether this step counts is known there only. Without a GradScaler a step on the host
            # costs fewer launches.
            state["step"] = state["step"].to(p.device, non_blocking=True)
        if is_dtensor(p) and grad.placements != p.placements:
            grad = grad.redistribute(placements=p.placements)
        weight, m, v = (
            local(t) for t in (state.get("master", p), state["exp_avg"], state["exp_avg_sq"])
        )
        if weight.stride() != m.stride():
            weight = torch.empty_like(m).copy_(weight)
        return Slot(p, group, weight, local(grad), m, v, state["step"])

    def _divisor(self, slots: list[Slot], scale: Tensor | None) -> Tensor | None:
        """Return the gradients' divisor, the scale times the clipping, () float; None: 1."""
        if self.max_grad_norm is None:
            return scale
        devices: dict[torch.device, list[Slot]] = {}
        for slot in slots:
            devices.setdefault(slot.grad.device, []).append(slot)
        first = slots[0].grad.device
        sums = [
            over_ranks(squares([s.grad for s in some]), some).sum().to(first)
            for some in devices.values()
        ]
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
            # torch has cast the moments to the parameter's dtype: take them again, in ours and with
            # the parameter's strides.
            low = p.dtype in LOW_PRECISION
            for key in ("exp_avg", "exp_avg_sq", "master"):
                value = seen[0]["state"].get(number, {}).get(key)
                if key == "master" and not low:
                    self.state.get(p, {}).pop(key, None)
                elif value is not None:
                    dtype = torch.float32 if low else p.dtype
                    self.state[p][key] = torch.empty_like(
                        p, dtype=dtype, requires_grad=False
                    ).copy_(value)

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
            raise ValueError(
                f"path 'fused' is for CPUs and a parameter is on {p.device}: choose None"
            )
        if path == "apex" and is_dtensor(p):
            raise ValueError(
                "apex would take a shard's norm for the whole parameter's: choose None for DTensors"
            )

"""What one step works on: batches of parameters with gradients and moments; their norms."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from distillkit.training.state import is_dtensor

# Elements that a CPU norm adds up in one go: torch's fp32 sum over 23 million is off by a
# thousandth, over these by 1e-8.
ROW = 16_384

LOW_PRECISION = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Slot:
    """A parameter that has a gradient; of a DTensor the shard of this rank."""

    parameter: Tensor
    group: dict[str, Any]
    # the parameter; of a low-precision one the fp32 master; of one with gaps in memory a copy
    weight: Tensor
    grad: Tensor  # the caller's: never written to
    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor


def batches(slots: list[Slot], elements: int, by_step: bool = False) -> Iterator[list[Slot]]:
    """Cut into batches of one group, device and dtype; only a single tensor may pass the limit."""
    kinds: dict[Any, list[Slot]] = {}
    for slot in slots:
        kind = (
            id(slot.group),
            slot.weight.device,
            slot.weight.dtype,
            slot.step.device,
            by_step and float(slot.step),
        )
        kinds.setdefault(kind, []).append(slot)
    for some in kinds.values():
        batch: list[Slot] = []
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


def adapts(group: dict[str, Any]) -> bool:
    """Say whether a group's steps are made as long as its tensors."""
    return bool(group["weight_decay"] or group["always_adapt"])


def ratios(weights: Tensor, updates: Tensor, slots: list[Slot]) -> Tensor:
    """Return the trust ratios, (N,) float, from sums of squares, (N,) float each."""
    weight, update = over_ranks(torch.stack([weights, updates], 1), slots).sqrt().unbind(1)
    found = weight / update
    if (clamp := slots[0].group["trust_clamp"]) is not None:
        found = found.clamp(*clamp)
    return found.masked_fill((weight == 0) | (update == 0), 1.0)


def squares(tensors: list[Tensor]) -> Tensor:
    """Return each tensor's sum of squares, (N,), float32 or float64."""
    if tensors[0].device.type == "cpu":
        return torch.stack([_square(tensor) for tensor in tensors])
    low = tensors[0].dtype in LOW_PRECISION
    return torch.stack(torch._foreach_norm(tensors, 2, torch.float32 if low else None)).square()


def _square(tensor: Tensor) -> Tensor:
    line = flat(tensor)
    dtype = torch.float32 if line.dtype in LOW_PRECISION else line.dtype
    rows, rest = line.numel() // ROW, line.numel() % ROW
    norms = torch.linalg.vector_norm(
        line[: rows * ROW].view(rows, ROW), dim=1, dtype=dtype
    ).double()
    if rest or not rows:
        norms = torch.cat(
            [norms, torch.linalg.vector_norm(line[rows * ROW :], dtype=dtype).double()[None]]
        )
    return norms.dot(norms)


def flat(tensor: Tensor) -> Tensor:
    """Return the elements in the order of memory, (numel,): a view unless there are gaps."""
    if tensor.ndim == 1 and tensor.is_contiguous():
        return tensor
    if (
        tensor.is_contiguous()
        or torch.empty_like(tensor, device="meta").stride() == tensor.stride()
    ):
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1)


def laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """Return the tensor with another's strides."""
    return tensor if tensor.stride() == like.stride() else torch.empty_like(like).copy_(tensor)


def over_ranks(sums: Tensor, slots: list[Slot]) -> Tensor:
    """Add up sums of squares, (N, ...), over the ranks of a DTensor, one collective a mesh."""
    alike: dict[Any, list[int]] = {}
    for row, slot in enumerate(slots):
        shared: Any = slot.parameter
        if is_dtensor(shared):
            alike.setdefault((shared.device_mesh, shared.placements), []).append(row)
    for (mesh, placements), rows in alike.items():
        from torch.distributed.tensor import DTensor, Partial, Replicate

        parts = [Replicate() if placement.is_replicate() else Partial() for placement in placements]
        sums[rows] = DTensor.from_local(sums[rows], mesh, parts).full_tensor()
    return sums

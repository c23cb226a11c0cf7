"""Weights and optimizer state by parameter name, as whole tensors on the CPU, for checkpoints.

Ours and not torch.distributed.checkpoint.state_dict: that gives the whole state to rank 0 alone
where it goes to the CPU, names tied weights twice, and runs an optimizer step to make room for a
state that is loaded. Every strategy's checkpoint, ZeRO's too, has the names that are made here.
"""

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copy a model's weights to the CPU, DTensors gathered; tied ones come once.

    Every process that holds a shard must call this.
    """
    return {f"model.{name}": whole(tensor) for name, tensor in _weights(model)}


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy what `weights_of` returned into a model of the same shape, sharded or not."""
    with torch.no_grad():
        for name, tensor in _weights(model):
            tensor.copy_(as_sharded(tensor, weights[f"model.{name}"]))


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copy an optimizer's state to the CPU: `optimizer.<parameter>/<what>`."""
    state = {}
    for name, parameter in model.named_parameters():
        for what, value in optimizer.state.get(parameter, {}).items():
            if value is None:
                continue
            # float64 holds every count that is not a tensor.
            found = (
                whole(value)
                if isinstance(value, Tensor)
                else torch.tensor(float(value), dtype=torch.float64)
            )
            state[f"optimizer.{name}/{what}"] = found
    return state


def load_optimizer_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Tensor]
) -> None:
    """Give an optimizer what `optimizer_state` returned."""
    for name, parameter in model.named_parameters():
        prefix = f"optimizer.{name}/"
        own: dict[str, Any] = {}
        for key, value in state.items():
            if key.startswith(prefix):
                like = value.shape == parameter.shape and value.dim() > 0
                # A count stays where torch.optim wants it: beside the parameter where its kernels
                # are fused, else on the CPU.
                device = parameter.device if like or counts_on_device(optimizer) else value.device
                own[key.removeprefix(prefix)] = (
                    as_sharded(parameter, value) if like else value.to(device, copy=True)
                )
        if own:
            optimizer.state[parameter] = own


def counts_on_device(optimizer: Any) -> bool:
    """Say whether an optimizer's kernels want its counts of steps beside the parameters."""
    return any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    kept = model.state_dict(keep_vars=True)
    yield from model.named_parameters()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in kept)


def whole(tensor: Any) -> Tensor:
    """Copy a tensor to the CPU; a DTensor is gathered from all processes."""
    return (
        (tensor.detach().full_tensor() if is_dtensor(tensor) else tensor.detach())
        .to("cpu", copy=True)
        .contiguous()
    )


def as_sharded(like: Any, value: Tensor) -> Tensor:
    """Bring a whole tensor to the device of another, sharded as that one is."""
    if not is_dtensor(like):
        return value.to(like.device, copy=True)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


def local(tensor: Any) -> Tensor:
    """Return this process's shard of a tensor; all of it if it is no DTensor."""
    part: Tensor = tensor.to_local() if is_dtensor(tensor) else tensor
    return part


def is_dtensor(tensor: Any) -> bool:
    """Say whether a tensor is a DTensor: one process's shard of a larger one."""
    # Without this module, which takes a while to import, there are none.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)

"""Rows to batches on the device, gathered by index where the rows live: there, or on the host."""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

from distillkit.data.batches import Encoded
from distillkit.recipe import LoaderConfig

Batch = tuple[Tensor, dict[str, Tensor]]
_COPIED = 256  # batches whose numbers go to the device together; so many are read ahead


class Feed:
    """Brings batches of rows to the device, in the order asked for.

    Args:
        rows: All training rows, on the CPU.
        device: Where the model computes.
        config: Where the rows live.
    """

    def __init__(self, rows: Encoded, device: torch.device, config: LoaderConfig) -> None:
        self._device, self._lengths = device, rows.lengths
        self._beside = lives_on_device(rows, device, config)
        self._rows = rows.to(device) if self._beside else rows

    def __call__(self, batches: Iterable[Tensor]) -> Iterator[Batch]:
        """Turn batches of row numbers, (B,) int64 on the CPU, into numbers and model inputs."""
        stream = iter(batches)
        # One copy for many batches, not one a batch.
        while some := list(islice(stream, _COPIED)):
            numbers = torch.cat(some).to(self._device)
            for batch, part in zip(some, numbers.split(list(map(len, some))), strict=True):
                # Asked of the copy on the host: asked of the device, it would be waited for.
                longest = int(self._lengths[batch].max())
                inputs = self._rows.batch(part if self._beside else batch, longest)
                yield part, {name: self._moved(tensor) for name, tensor in inputs.items()}

    def _moved(self, tensor: Tensor) -> Tensor:
        """Bring a tensor to the device; a GPU that still computes is not waited for."""
        if tensor.device.type == self._device.type:
            return tensor
        pinned = self._device.type == "cuda"
        return (tensor.pin_memory() if pinned else tensor).to(self._device, non_blocking=pinned)


def lives_on_device(rows: Encoded, device: torch.device, config: LoaderConfig) -> bool:
    """Say whether the rows are to live beside the model: asked for, or small enough."""
    if config.rows != "auto" or device.type != "cuda":
        return config.rows != "host"
    held = [tensor for tensor in (rows.ids, rows.types, rows.offsets) if tensor is not None]
    return fits_beside(sum(tensor.nbytes for tensor in held), device)


def fits_beside(size: int, device: torch.device) -> bool:
    """Say whether so many bytes may move beside the model: of a GPU a quarter of what is free."""
    return device.type != "cuda" or size <= torch.cuda.mem_get_info(device)[0] // 4

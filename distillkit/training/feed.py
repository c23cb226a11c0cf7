"""Rows to batches on the device: gathered there by index, or by loader processes on the host."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from distillkit.data.batches import Encoded
from distillkit.processes import cores
from distillkit.recipe import LoaderConfig

Batch = tuple[Tensor, dict[str, Tensor]]
_COPIED = 256  # batches whose numbers go to the device together; so many are read ahead


class Feed:
    """Brings batches of rows to the device, in the order asked for.

    Args:
        rows: All training rows, on the CPU.
        device: Where the model computes.
        config: Where the rows live, and how loader processes work.
    """

    def __init__(self, rows: Encoded, device: torch.device, config: LoaderConfig) -> None:
        self._device = device
        self._rows, self._lengths, self._loader = rows, rows.lengths, None
        if lives_on_device(rows, device, config):
            self._rows = rows.to(device)
        else:
            self._wanted = _Wanted()
            self._loader = _loader(rows, self._wanted, device, config)

    def __call__(self, batches: Iterable[Tensor]) -> Iterator[Batch]:
        """Turn batches of row numbers, (B,) int64 on the CPU, into numbers and model inputs."""
        if self._loader is not None:
            self._wanted.batches = batches
            for numbers, inputs in self._loader:
                yield (
                    numbers.to(self._device, non_blocking=True),
                    {
                        name: tensor.to(self._device, non_blocking=True)
                        for name, tensor in inputs.items()
                    },
                )
            return
        stream = iter(batches)
        # One copy for many batches, not one a batch.
        while some := list(islice(stream, _COPIED)):
            numbers = torch.cat(some).to(self._device)
            for batch, part in zip(some, numbers.split(list(map(len, some))), strict=True):
                # Asked of the copy on the host: asked of the device, it would be waited for.
                yield part, self._rows.batch(part, int(self._lengths[batch].max()))


def lives_on_device(rows: Encoded, device: torch.device, config: LoaderConfig) -> bool:
    """Say whether the rows are to live beside the model: asked for, or small enough."""
    if config.rows != "auto" or device.type != "cuda":
        return config.rows != "host"
    held = [tensor for tensor in (rows.ids, rows.types, rows.offsets) if tensor is not None]
    return fits_beside(sum(tensor.nbytes for tensor in held), device)


def fits_beside(size: int, device: torch.device) -> bool:
    """Say whether so many bytes may move beside the model: of a GPU a quarter of what is free."""
    return device.type != "cuda" or size <= torch.cuda.mem_get_info(device)[0] // 4


def loader_workers(config: LoaderConfig) -> int:
    """Return the number of loader processes: as asked, or the spare cores, at most four."""
    if config.workers >= 0:
        return config.workers
    return min(4, max(0, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1))


def _loader(
    rows: Encoded, wanted: "_Wanted", device: torch.device, config: LoaderConfig
) -> DataLoader[Batch]:
    workers = loader_workers(config)
    return DataLoader(
        _Batches(rows),
        sampler=wanted,
        batch_size=None,
        # else each epoch takes a number from the one that dropout draws from
        generator=torch.Generator(),
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )


class _Wanted:
    """The batches of an epoch; the next epoch's take their place."""

    batches: Iterable[Tensor] = ()

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.batches)


class _Batches(Dataset[Any]):
    """A data set whose items are batches, by their row numbers."""

    def __init__(self, rows: Encoded) -> None:
        self._rows = rows

    def __getitem__(self, numbers: Tensor) -> Batch:
        return numbers, self._rows.batch(numbers)

"""The loss of each forward pass, weighted to be a part of its optimizer step's."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from distillkit.training.dealing import Pass
from distillkit.training.feed import Batch
from distillkit.training.plan import CountedLoss, LossOfRows
from distillkit.training.strategies.base import Strategy


def weighted(
    loss: LossOfRows | CountedLoss,
    strategy: Strategy,
    own: Sequence[Pass],
    all_rows: int,
    batches: Iterable[Batch],
) -> Iterator[tuple[dict[str, Tensor], Callable[[Tensor], Tensor], float]]:
    """Weight passes so that n small batches, or n processes, give the gradient of one large batch.

    Args:
        loss: Of a batch.
        strategy: Divides the step among processes.
        own: This process's passes of the step.
        all_rows: Rows of the step, over all processes.
        batches: Row numbers and inputs of each pass, on the device.

    Yields:
        The inputs of each pass, its loss of logits (B, C), and the weight of that loss.
    """
    shards = strategy.num_shards
    if not isinstance(loss, CountedLoss):
        for (numbers, inputs), (_, count) in zip(batches, own, strict=True):
            yield inputs, partial(loss, numbers), count * shards / all_rows
        return
    # What a pass's loss is divided by is known when all passes of all processes are.
    held = list(batches)
    counts = [
        loss.count(*batch) * min(count, 1) for batch, (_, count) in zip(held, own, strict=True)
    ]
    total = strategy.sum_over_shards(torch.stack(counts).sum(0))
    for (numbers, inputs), (_, count) in zip(held, own, strict=True):
        yield inputs, partial(loss.share, numbers, total), float(shards * min(count, 1))

"""Which rows each optimizer step takes: drawn from a seed alone, one pool of rows at a time."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import overload

import torch
from torch import Tensor

from distillkit.data.batches import drawn_rows, shuffled_batches

POOL_ROWS = 2**22  # shuffled together, in memory
BLOCK_ROWS = 2**13  # neighbours on the disk, which come into one pool

# An optimizer step's row numbers, in parts of like length, (B,) int64 each.
Group = list[Tensor]


class Order:
    """Cuts epochs into optimizer steps.

    All rows are one pool where they are few: one shuffle. Of more, blocks of neighbours come in a
    drawn order, and as many as make a pool are shuffled together. Memory then does not grow with
    the rows.

    Args:
        lengths: Tokens a row, (N,) int64, on the CPU.
        weights: How often an epoch has each row, (N,) float, as for `drawn_rows`; None: once.
        part_rows: Rows a part.
        parts: Parts an optimizer step.

    Attributes:
        rows: Rows an epoch.
        steps: Optimizer steps an epoch.
    """

    def __init__(self, lengths: Tensor, weights: Tensor | None, part_rows: int, parts: int) -> None:
        self.lengths, self.weights, self.part_rows, self.parts = lengths, weights, part_rows, parts
        few = len(lengths) <= POOL_ROWS
        self.block_rows = max(1, len(lengths)) if few else BLOCK_ROWS
        blocks = range(math.ceil(len(lengths) / self.block_rows))
        # What a block gives depends on the weights alone, so that every epoch has as many steps.
        self.counts = torch.tensor([len(self.block(i, torch.Generator())) for i in blocks])
        self.rows = int(self.counts.sum())
        self.steps = math.ceil(math.ceil(self.rows / part_rows) / parts)
        self.pool_steps = self.steps if few else max(1, POOL_ROWS // (part_rows * parts))

    def epoch(self, seed: int, steps: int) -> "Epoch":
        """Return an epoch's first `steps` optimizer steps, or all if there are fewer."""
        return Epoch(self, seed, min(steps, self.steps))

    def block(self, number: int, generator: torch.Generator) -> Tensor:
        """Draw the rows that an epoch has of a block, rising, int64."""
        start = number * self.block_rows
        end = min(start + self.block_rows, len(self.lengths))
        if self.weights is None:
            return torch.arange(start, end)
        return start + drawn_rows(self.weights[start:end], generator)


class Epoch(Sequence[Group]):
    """The optimizer steps of an epoch; any pool of them can be drawn without those before it."""

    def __init__(self, order: Order, seed: int, steps: int) -> None:
        self._order, self._steps = order, steps
        self._generator = torch.Generator().manual_seed(seed)
        if len(order.counts) > 1:
            self._blocks = torch.randperm(len(order.counts), generator=self._generator)
            self._ends = order.counts[self._blocks].cumsum(0)
            seeds = torch.randint(2**62, (2, len(order.counts)), generator=self._generator)
            self._block_seeds, self._pool_seeds = seeds.tolist()
        # Two: what reads ahead is in the next pool before the other is done with.
        self._pool = lru_cache(maxsize=2)(self._draw)

    def __len__(self) -> int:
        return self._steps

    @overload
    def __getitem__(self, step: int) -> Group: ...

    @overload
    def __getitem__(self, step: slice) -> list[Group]: ...

    def __getitem__(self, step: int | slice) -> Group | list[Group]:
        if isinstance(step, slice):
            return [self[i] for i in range(*step.indices(len(self)))]
        if not 0 <= step < len(self):
            raise IndexError(step)
        pool, place = divmod(step, self._order.pool_steps)
        return self._pool(pool)[place]

    def after(self, step: int) -> Iterator[Group]:
        """Yield the optimizer steps that follow the first `step` ones."""
        return (self[i] for i in range(step, len(self)))

    @property
    def rows(self) -> int:
        """Rows of all steps."""
        if len(self) == self._order.steps:
            return self._order.rows
        return sum(len(part) for group in self for part in group)

    def _draw(self, pool: int) -> list[Group]:
        order, generator = self._order, self._generator
        if len(order.counts) > 1:
            generator = torch.Generator().manual_seed(self._pool_seeds[pool])
            rows = self._rows(pool * order.pool_steps * order.parts * order.part_rows)
        else:
            rows = order.block(0, generator)
        drawn = shuffled_batches(order.lengths[rows], order.part_rows, generator)
        parts = [rows[part] for part in drawn]
        return [parts[i : i + order.parts] for i in range(0, len(parts), order.parts)]

    def _rows(self, begin: int) -> Tensor:
        """Return the rows of the pool that begins so many rows after the epoch does."""
        order = self._order
        end = min(begin + order.pool_steps * order.parts * order.part_rows, order.rows)
        first, last = torch.searchsorted(self._ends, torch.tensor([begin, end - 1]), right=True)
        found = [
            order.block(block, torch.Generator().manual_seed(self._block_seeds[block]))
            for block in self._blocks[first : last + 1].tolist()
        ]
        before = int(self._ends[first]) - len(found[0])
        return torch.cat(found)[begin - before : end - before]

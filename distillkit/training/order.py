"""Which rows each optimizer step takes: drawn from a seed alone, one pool of rows at a time."""

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from distillkit.data.batches import drawn_rows, shuffled_batches
from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig

PRIME = 1_000_003  # keeps seeds of epochs and processes apart
# Rows of like length that are computed together. A larger batch is computed in several parts: rows
# of one length alone are a bad sample of the data (4,096 of them cost a student 1 point), and the
# longest of a mixed batch would pad all the others.
_PART_ROWS = 256
POOL_ROWS = 2**21  # shuffled together, in memory; up to twice as many where these are all
BLOCK_ROWS = 2**13  # neighbours on the disk, which come into one pool

# An optimizer step's row numbers, in parts of like length, (B,) int64 each.
Group = list[Tensor]


class Order:
    """The order of a training's rows; an epoch's is drawn from its number alone.

    All rows are one pool where they are few: one shuffle. Of more, blocks of neighbours come in a
    drawn order, and as many as make a pool are shuffled together. Memory then does not grow with
    the rows.

    Args:
        lengths: Tokens a row, (N,) int64, on the CPU.
        weights: How often an epoch has each row, (N,) float, as for `drawn_rows`; None: once.
        config: Batches, and how long training is.
        seed: Draws the order.

    Attributes:
        parts: Parts of like length that make a full batch.
        part_rows: Rows a part.
        step_parts: Parts an optimizer step.
        rows_an_epoch: As the weights have it.
        steps_an_epoch: Optimizer steps of a whole epoch.
        total_steps: Optimizer steps in all.
        epochs: Epochs in all; the last may be cut short.

    Raises:
        InputError: The weights leave an epoch no row.
    """

    def __init__(
        self, lengths: Tensor, weights: Tensor | None, config: TrainingConfig, seed: int
    ) -> None:
        self.lengths, self.weights, self.seed = lengths, weights, seed
        self.parts = math.ceil(config.batch_size / _PART_ROWS)
        self.part_rows = math.ceil(config.batch_size / self.parts)
        self.step_parts = self.parts * config.accumulation_steps
        few = len(lengths) <= 2 * POOL_ROWS
        self.block_rows = max(1, len(lengths)) if few else BLOCK_ROWS
        blocks = range(math.ceil(len(lengths) / self.block_rows))
        self.before = self._before(blocks)
        # What a block gives depends on the weights alone, so that every epoch has as many steps.
        self.counts = torch.tensor([len(self.block(i, torch.Generator())) for i in blocks])
        self.rows_an_epoch = int(self.counts.sum())
        if not self.rows_an_epoch:
            raise InputError(
                "training.sampling_weights leaves no row to learn from; give some rows a weight above 0"
            )
        self.steps_an_epoch = math.ceil(
            math.ceil(self.rows_an_epoch / self.part_rows) / self.step_parts
        )
        self.total_steps = config.steps or self.steps_an_epoch * config.epochs
        self.epochs = math.ceil(self.total_steps / self.steps_an_epoch)
        rows = self.part_rows * self.step_parts
        self.pool_steps = self.steps_an_epoch if few else max(1, POOL_ROWS // rows)

    def epoch(self, number: int) -> "Epoch":
        """Return the optimizer steps of an epoch, counted from 1."""
        left = self.total_steps - self.steps_an_epoch * (number - 1)
        return Epoch(self, self.seed * PRIME + number, min(left, self.steps_an_epoch))

    def _before(self, blocks: range) -> list[dict[float, int]]:
        """Return of each block how many rows with each fraction of a weight stand before it."""
        if self.weights is None:
            return []
        found: list[dict[float, int]] = [{}]
        for number in blocks[:-1]:
            start = number * self.block_rows
            rest = self.weights[start : start + self.block_rows].remainder(1)
            values, counts = rest[rest > 0].unique(return_counts=True)
            now = zip(values.tolist(), counts.tolist(), strict=True)
            found.append(found[-1] | {f: n + found[-1].get(f, 0) for f, n in now})
        return found

    def block(self, number: int, generator: torch.Generator) -> Tensor:
        """Draw the rows that an epoch has of a block, rising, int64."""
        start = number * self.block_rows
        end = min(start + self.block_rows, len(self.lengths))
        if self.weights is None:
            return torch.arange(start, end)
        return start + drawn_rows(self.weights[start:end], generator, self.before[number])


class Epoch:
    """The optimizer steps of an epoch; any pool of them can be drawn without those before it."""

    def __init__(self, order: Order, seed: int, steps: int) -> None:
        self._order, self._steps = order, steps
        self._generator = torch.Generator().manual_seed(seed)
        if len(order.counts) > 1:
            self._blocks = torch.randperm(len(order.counts), generator=self._generator)
            self._ends = order.counts[self._blocks].cumsum(0)
            seeds = torch.randint(2**62, (2, len(order.counts)), generator=self._generator)
            self._block_seeds, self._pool_seeds = seeds.tolist()
        self._held: dict[int, tuple[Tensor, list[int]]] = {}

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Group:
        if not 0 <= step < len(self):
            raise IndexError(step)
        pool, place = divmod(step, self._order.pool_steps)
        rows, ends = self._pool(pool)
        first = place * self._order.step_parts
        bounds = ends[first : first + self._order.step_parts + 1]
        # Copies: a view would keep the whole pool in memory when the next one is drawn.
        return [rows[start:end].clone() for start, end in pairwise(bounds)]

    def after(self, step: int) -> Iterator[Group]:
        """Yield the optimizer steps that follow the first `step` ones."""
        return (self[i] for i in range(step, len(self)))

    @property
    def rows(self) -> int:
        """Rows of all steps."""
        if len(self) == self._order.steps_an_epoch:
            return self._order.rows_an_epoch
        return sum(len(part) for group in self.after(0) for part in group)

    def _pool(self, number: int) -> tuple[Tensor, list[int]]:
        """Return a pool, and hold it alone."""
        if number not in self._held:
            self._held.clear()  # before the next one is drawn, which takes most of the memory
            self._held[number] = self._draw(number)
        return self._held[number]

    def _draw(self, pool: int) -> tuple[Tensor, list[int]]:
        """Return the rows of a pool, part after part, and where the parts begin and end."""
        order, generator = self._order, self._generator
        if len(order.counts) > 1:
            generator = torch.Generator().manual_seed(self._pool_seeds[pool])
            rows = self._rows(pool * order.pool_steps * order.step_parts * order.part_rows)
        else:
            rows = order.block(0, generator)
        drawn = shuffled_batches(order.lengths[rows], order.part_rows, generator)
        # One tensor: a pool of small ones held twice the memory.
        return rows[torch.cat(drawn)], [0, *accumulate(map(len, drawn))]

    def _rows(self, begin: int) -> Tensor:
        """Return the rows of the pool that begins so many rows after the epoch does."""
        order = self._order
        end = min(
            begin + order.pool_steps * order.step_parts * order.part_rows, order.rows_an_epoch
        )
        first, last = torch.searchsorted(self._ends, torch.tensor([begin, end - 1]), right=True)
        found = [
            order.block(block, torch.Generator().manual_seed(self._block_seeds[block]))
            for block in self._blocks[first : last + 1].tolist()
        ]
        before = int(self._ends[first]) - len(found[0])
        return torch.cat(found)[begin - before : end - before]

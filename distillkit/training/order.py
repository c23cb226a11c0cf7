"""Which rows each optimizer step of an epoch takes."""

import math

import torch
from torch import Tensor

from distillkit.data.batches import drawn_rows, shuffled_batches
from distillkit.recipe import TrainingConfig

# Rows of like length that are computed together. A larger batch is computed in several parts: rows
# of one length alone are a bad sample of the data (4,096 of them cost a student 1 point), and the
# longest of a mixed batch would pad all the others.
_PART_ROWS = 256
PRIME = 1_000_003  # keeps seeds of epochs and processes apart


class Order:
    """The order of a training's rows; an epoch's is drawn from its number alone.

    Args:
        lengths: Tokens a row, (N,) int64, on the CPU.
        weights: How often an epoch has each row, (N,) float, 0 or more.
        config: Batches, and how long training is.
        seed: Draws the order.

    Attributes:
        rows_an_epoch: As the weights have it.
        parts: Parts of like length that make a full batch.
        steps_an_epoch: Optimizer steps of a whole epoch.
        total_steps: Optimizer steps in all.
        epochs: Epochs in all; the last may be cut short.
    """

    def __init__(self, lengths: Tensor, weights: Tensor, config: TrainingConfig, seed: int) -> None:
        self._lengths, self._weights, self._seed = lengths, weights, seed
        self.rows_an_epoch = len(drawn_rows(weights, torch.Generator()))
        self.parts = math.ceil(config.batch_size / _PART_ROWS)
        self._part_rows = math.ceil(config.batch_size / self.parts)
        self._step_parts = self.parts * config.accumulation_steps
        self.steps_an_epoch = math.ceil(
            math.ceil(self.rows_an_epoch / self._part_rows) / self._step_parts
        )
        self.total_steps = config.steps or self.steps_an_epoch * config.epochs
        self.epochs = math.ceil(self.total_steps / self.steps_an_epoch)

    def steps(self, epoch: int) -> list[list[Tensor]]:
        """Return each optimizer step's row numbers, in parts of like length, (B,) int64 each."""
        # Drawn from the epoch's number, so that any epoch can be begun without those before it.
        order = torch.Generator().manual_seed(self._seed * PRIME + epoch)
        rows = drawn_rows(self._weights, order)
        parts = [
            rows[part] for part in shuffled_batches(self._lengths[rows], self._part_rows, order)
        ]
        starts = range(0, len(parts), self._step_parts)
        groups = [parts[first : first + self._step_parts] for first in starts]
        return groups[: self.total_steps - self.steps_an_epoch * (epoch - 1)]

"""What a training is told, and what it says: a model is trained by `loop.fit` on a `FitPlan`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from distillkit.data.batches import Encoded
from distillkit.recipe import TrainingConfig
from distillkit.training.callbacks import Callback
from distillkit.training.checkpoints import Checkpoints

# Logits (N, C) of the dev rows, on the CPU, in; a score out: the higher the better.
Score = Callable[[Tensor], float]


@dataclass(frozen=True)
class FitResult:
    """The best dev score, its epoch (from 1; 0: none ran), and each epoch's loss and score."""

    best_score: float
    best_epoch: int
    history: list[dict[str, float]]

    def summary(self, score: str) -> dict[str, Any]:
        """Return `dev_accuracy` (or what `score` names), `best_epoch` and `history`."""
        return {
            f"dev_{score}": self.best_score,
            "best_epoch": self.best_epoch,
            "history": self.history,
        }


# Takes row numbers (B,) and logits (B, C) on the device, and returns their mean loss, () float.
LossOfRows = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CountedLoss:
    """A loss that is a mean over something else than rows, such as masked tokens.

    Attributes:
        count: Takes row numbers (B,) and inputs, both on the device, and returns of how many things
            of a batch the loss is the mean, (K,) float: one number a term.
        share: Takes row numbers, these counts of a whole optimizer step, (K,), and logits (B, C).
            Returns the batch's sums divided by them, () float.
    """

    count: Callable[[Tensor, dict[str, Tensor]], Tensor]
    share: Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class FitPlan:
    """What `fit` trains a model on, and how.

    Attributes:
        rows: Training rows, the same in every process; each computes its shard of every batch.
        loss: Mean loss of a batch. The gradient of a step is that of its mean over all rows of the
            step, or over all that a `CountedLoss` counts in it.
        config: Epochs, batches, optimizer, schedule, precision, strategy.
        seed: Order of the rows, and dropout.
        progress: Name of the progress bar.
        dev: Rows that are scored after each epoch; None: the last epoch's weights stay.
        score: Score of the dev rows' logits; higher is better.
        checkpoints: Where training keeps what it needs to go on after a kill; None: nowhere.
        callbacks: What else watches it.
        sampling_weights: How often an epoch has each row, (N,) float, 0 or more. A fraction of the
            rows that share it is drawn anew each epoch. None: once.
        corrupt: Changes the inputs of every training batch, on the device, before the model sees them, as
            masking does. It draws from torch's own generator, so that a resumed training draws the same.
    """

    rows: Encoded
    loss: LossOfRows | CountedLoss
    config: TrainingConfig
    seed: int
    progress: str
    dev: Encoded | None = None
    score: Score | None = None
    checkpoints: Checkpoints | None = None
    callbacks: Sequence[Callback] = ()
    sampling_weights: Tensor | None = None
    corrupt: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None

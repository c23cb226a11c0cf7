"""Stop a training whose loss or gradient is not a number, and keep the batch."""

import json

import torch
from torch import Tensor

from distillkit.data.files import whole_file
from distillkit.errors import InputError
from distillkit.training.plan import FitPlan

# fp16 steps lost one after another before training is given up: the loss scale has by then fallen
# by 2 to this power.
_MAX_OVERFLOWS = 24


class BadSteps:
    """Notes, on the device, steps whose loss or gradient is not finite.

    An overflow of fp16 is no mistake; many in a row are.

    Args:
        device: Where the model computes.
        fp16: Whether losses are scaled.
        skipped: Steps that overflows of fp16 have cost so far.

    Attributes:
        skipped: () float64, on the device.
    """

    def __init__(self, device: torch.device, skipped: int, *, fp16: bool) -> None:
        self._fp16 = fp16
        self.skipped = torch.tensor(float(skipped), dtype=torch.float64, device=device)
        self._overflows = torch.zeros((), device=device)  # in a row
        self._first = torch.zeros((), dtype=torch.int64, device=device)

    def note(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Take the loss and the gradient's norm, () each, of a step; the first is 1."""
        bad = ~torch.isfinite(loss)
        overflow = ~torch.isfinite(norm)
        if self._fp16:
            self.skipped += overflow
            self._overflows = (self._overflows + 1) * overflow
            overflow = self._overflows >= _MAX_OVERFLOWS
        self._first = torch.where((self._first == 0) & (bad | overflow), step, self._first)

    def first(self) -> int:
        """Return the first bad step, 0 if there is none; a GPU is waited for."""
        return int(self._first)


def not_a_number(plan: FitPlan, rank: int, step: int, epoch: int, numbers: Tensor) -> InputError:
    """Write a bad step's rows, (B,) int64, beside the checkpoints; return what to raise."""
    where = ""
    if plan.checkpoints is not None:
        path = plan.checkpoints.folder / f"bad-batch-{rank}.json"
        ids, offsets = plan.rows.ids, plan.rows.offsets
        rows = [ids[offsets[i] : offsets[i + 1]].tolist() for i in numbers]
        about = {"step": step, "epoch": epoch, "rows": numbers.tolist(), "input_ids": rows}
        with whole_file(path) as unfinished:
            unfinished.write_text(json.dumps(about) + "\n", encoding="utf-8")
        where = f"; the batch is in {path}"
    what = f"the loss or gradient of step {step}, epoch {epoch}, is not a number"
    return InputError(
        f"{plan.progress}: {what}; lower the learning rate, {plan.config.learning_rate}{where}"
    )

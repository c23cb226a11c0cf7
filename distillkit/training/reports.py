"""What those that watch a training are told, and when."""

import time
from collections.abc import Sequence

from torch import Tensor

from distillkit.training.callbacks import Bar, Callback, JsonLog, Record, TensorBoard
from distillkit.training.checkpoints import Position
from distillkit.training.order import Order
from distillkit.training.plan import FitPlan


class Reports:
    """Counts rows, tokens and seconds from report to report; only process 0 has callbacks.

    Args:
        lengths: Tokens a row, (N,) int64, on the CPU.
    """

    def __init__(self, lengths: Tensor) -> None:
        self._lengths = lengths
        self._callbacks: Sequence[Callback] = ()
        self.restart(0.0)

    def open(self, callbacks: Sequence[Callback]) -> None:
        """Tell these from now on."""
        self._callbacks = callbacks

    def restart(self, total: float) -> None:
        """Count from here on, where the epoch's sum of losses is `total`."""
        self._rows, self._tokens = 0, 0
        self._time, self._total = time.perf_counter(), total

    def passed(self, rows: int) -> None:
        """Take the rows of a forward pass, of all processes together."""
        for callback in self._callbacks:
            callback.rows(rows)

    def stepped(self, group: Sequence[Tensor]) -> None:
        """Take the rows of an optimizer step, in parts, (B,) int64 each."""
        if self._callbacks:
            self._rows += sum(map(len, group))
            self._tokens += sum(int(self._lengths[part].sum()) for part in group)

    def report(
        self, at: Position, total: float, rate: float, norm: Tensor, skipped: Tensor
    ) -> None:
        """Report the steps since the last report.

        Args:
            at: Step and epoch.
            total: Sum of the losses of the epoch's rows so far.
            rate: Learning rate.
            norm: Of the gradient, () on the device.
            skipped: Steps that overflows of fp16 have cost, () on the device.
        """
        if not self._callbacks:
            return
        seconds = time.perf_counter() - self._time
        record = {
            "step": at.step,
            "epoch": at.epoch,
            "loss": (total - self._total) / self._rows,
            "gradient_norm": float(norm),
            "learning_rate": rate,
            "rows_per_second": self._rows / seconds,
            "tokens_per_second": self._tokens / seconds,
            "skipped_steps": int(skipped),
        }
        for callback in self._callbacks:
            callback.report(record)
        self.restart(total)

    def epoch(self, record: Record) -> None:
        """Tell of a finished epoch."""
        for callback in self._callbacks:
            callback.epoch(record)

    def close(self) -> None:
        """End, however training ended."""
        for callback in self._callbacks:
            callback.close()


def watching(plan: FitPlan, order: Order, batch: int, at: Position) -> list[Callback]:
    """Return the progress bar, the logs that a plan asks for, and its own callbacks.

    Args:
        plan: Has the name, the folder and the callbacks.
        order: Has the rows.
        batch: Rows an optimizer step.
        at: Where training begins, or goes on.
    """
    total = min(order.rows_an_epoch * order.epochs, order.total_steps * batch)
    done = min(total, order.rows_an_epoch * (at.epoch - 1) + batch * at.in_epoch)
    found: list[Callback] = [Bar(plan.progress, total, done)]
    if plan.checkpoints is not None:
        found.append(JsonLog(plan.checkpoints.folder / "log.jsonl", at.step))
        if plan.config.tensorboard:
            found.append(TensorBoard(plan.checkpoints.folder / "tensorboard", at.step))
    return [*found, *plan.callbacks]

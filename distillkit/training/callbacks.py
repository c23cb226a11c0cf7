"""What watches a training: the progress bar, the JSON log, TensorBoard, or your own."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distillkit.data.files import whole_file
from distillkit.errors import InputError
from distillkit.processes import progress_bar

# Of a report, every few optimizer steps: step, epoch, loss, learning_rate, gradient_norm,
# rows_per_second, tokens_per_second, skipped_steps. Of an epoch: step, epoch, loss, dev, and
# skipped_steps where there were any.
Record = Mapping[str, float]


class Callback:
    """Override what you want to watch; only process 0 calls it."""

    def rows(self, count: int) -> None:
        """Take the rows of each forward pass, those of all processes together."""

    def report(self, record: Record) -> None:
        """Take a report, every few optimizer steps."""

    def epoch(self, record: Record) -> None:
        """Take the record of a finished epoch."""

    def close(self) -> None:
        """End, however training ended."""


class Bar(Callback):
    """A progress bar over the rows of all epochs; where stderr is no terminal, a line an epoch."""

    def __init__(self, name: str, total: int, done: int = 0) -> None:
        self._name = name
        self._bar = progress_bar(total=total, initial=done, desc=name, unit="row", unit_scale=True)
        self._shown: dict[str, str] = {}

    def rows(self, count: int) -> None:
        """Move on."""
        self._bar.update(count)

    def report(self, record: Record) -> None:
        """Show the loss, tokens a second, and overflows."""
        self._show(
            record, {"loss": "{:.4f}", "tokens_per_second": "{:,.0f}", "skipped_steps": "{:.0f}"}
        )

    def epoch(self, record: Record) -> None:
        """Show the dev score."""
        self._show(record, {"loss": "{:.4f}", "dev": "{:.4f}"})
        if self._bar.disable:
            shown = ", ".join(
                f"{name} {record[name]:.4f}" for name in ("loss", "dev") if name in record
            )
            sys.stderr.write(f"{self._name}: epoch {record['epoch']:g}: {shown}\n")

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()

    def _show(self, record: Record, forms: dict[str, str]) -> None:
        self._shown |= {
            name.replace("tokens_per_second", "tok/s").replace(
                "skipped_steps", "skipped"
            ): form.format(record[name])
            for name, form in forms.items()
            if name in record and (name != "skipped_steps" or record[name])
        }
        self._bar.set_postfix(self._shown)


class JsonLog(Callback):
    """One JSON object a line: `kind` (report or epoch) and the record; a resumed run appends."""

    def __init__(self, path: Path, after: int = 0) -> None:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        # What came after the checkpoint happens again; a line that a kill cut in two is of that
        # part.
        kept = (
            [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= after]
            if after
            else []
        )
        with whole_file(path) as partial:
            partial.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def report(self, record: Record) -> None:
        """Write a line."""
        self._write("report", record)

    def epoch(self, record: Record) -> None:
        """Write a line."""
        self._write("epoch", record)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, kind: str, record: Record) -> None:
        self._file.write(json.dumps({"kind": kind, **record}) + "\n")
        self._file.flush()


class TensorBoard(Callback):
    """TensorBoard events, one scalar a number.

    Raises:
        InputError: The package tensorboard is not installed.
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "training.tensorboard: pip install 'distillkit[tensorboard]'"
            ) from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=after + 1 if after else None)

    def report(self, record: Record) -> None:
        """Write the scalars."""
        self._scalars("training", record)

    def epoch(self, record: Record) -> None:
        """Write the scalars."""
        self._scalars("epoch", record)

    def close(self) -> None:
        """Write out what is held back."""
        self._writer.close()

    def _scalars(self, group: str, record: Record) -> None:
        for name, value in record.items():
            if name not in ("step", "epoch"):
                self._writer.add_scalar(f"{group}/{name}", value, int(record["step"]))

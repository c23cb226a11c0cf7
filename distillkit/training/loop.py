"""One loop for teacher and student: accumulation, schedules, best on dev, exact resume."""

import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from distillkit.data.files import whole_file
from distillkit.errors import InputError, Preempted
from distillkit.training.averaging import MovingAverage
from distillkit.training.callbacks import Bar, Callback, JsonLog, TensorBoard
from distillkit.training.checkpoints import Position, digest
from distillkit.training.feed import Batch, Feed
from distillkit.training.interruption import Interrupted, interruption
from distillkit.training.optimizers import make_optimizer
from distillkit.training.order import Order
from distillkit.training.plan import CountedLoss, FitPlan, FitResult
from distillkit.training.schedules import rate_factor
from distillkit.training.strategies import start
from distillkit.training.strategies.base import Strategy

# Steps between two looks at what lives on a GPU or in another process, and between two reports.
_LOOK_EVERY = 20
# Seconds between two looks at whether another process was told to end, where so many steps take
# longer: torchrun kills its processes 30 s after it has told them.
_LOOK_SECONDS = 2.0
# fp16 steps lost one after another before training is given up: the loss scale has by then fallen
# by 2 to this power.
_MAX_OVERFLOWS = 24
# Rows of like length that are computed together. A larger batch is computed in several parts: rows
# of one length alone are a bad sample of the data (4,096 of them cost a student 1 point), and the
# longest of a mixed batch would pad all the others.
_PART_ROWS = 256
# What a training may change when it is resumed: none of it changes what is computed.
_FREE = {
    "strategy",
    "zero_stage",
    "gradient_compression",
    "checkpoint_steps",
    "keep_checkpoints",
    "tensorboard",
    "loader",
}
# Settings that older checkpoints do not know, and what they are where nobody sets them.
_LATER = {"steps": 0, "best_by": "score", "always_adapt": False}
_PRIME = 1_000_003  # keeps seeds of epochs and processes apart


def fit(model: nn.Module, plan: FitPlan) -> FitResult:
    """Train a model and leave it, in every process, with the weights that scored best.

    Of epochs with the same score the last one counts.

    Args:
        model: Takes `rows.batch(...)` as keyword arguments and answers with `.logits`, (B, C).
        plan: What it is trained on, and how.

    Raises:
        InputError: The strategy or precision cannot run here, or a loss or gradient is not a
            number.
        Preempted: It was interrupted (SIGTERM, SIGINT) and has written a checkpoint.
    """
    strategy = start(plan.config)
    trainer = _Trainer(strategy, plan)
    try:
        trainer.prepare(model)
        with interruption(listen=plan.checkpoints is not None) as interrupted:
            for group, feed in trainer.steps(interrupted):
                trainer.step(group, feed)
        trainer.restore_best()
    except Preempted:
        strategy.close()
        raise
    finally:
        for callback in trainer.callbacks:
            callback.close()
    strategy.close().eval()
    at = trainer.at
    return FitResult(
        -math.inf if at.best_score is None else at.best_score, at.best_epoch, at.history
    )


class _Trainer:
    """The state of one call of `fit`."""

    def __init__(self, strategy: Strategy, plan: FitPlan) -> None:
        self.strategy, self.plan, rows = strategy, plan, plan.rows
        self.config = config = plan.config.for_rows(len(rows))
        self.callbacks: list[Callback] = []
        self.average: MovingAverage | None = None
        self.best: dict[str, Tensor] | None = None
        self.feed = Feed(rows, strategy.device, config.loader)
        self.lengths = rows.lengths
        weights = plan.sampling_weights
        # in a checkpoint, rows that come once have the weight 1
        self.sampling_weights = torch.ones(1).expand(len(rows)) if weights is None else weights
        self.parts = math.ceil(config.batch_size / _PART_ROWS)
        self.part_rows = math.ceil(config.batch_size / self.parts)
        group = self.parts * config.accumulation_steps
        self.order = Order(self.lengths, weights, self.part_rows, group)
        self.rows_an_epoch, self.steps_an_epoch = self.order.rows, self.order.steps
        self.total_steps = config.steps or self.steps_an_epoch * config.epochs
        self.epochs = math.ceil(self.total_steps / self.steps_an_epoch)
        # A look at what lives on a GPU, or in another process, waits for it.
        self.look_every = (
            1 if strategy.device.type == "cpu" and strategy.world == 1 else _LOOK_EVERY
        )

    def prepare(self, model: nn.Module) -> None:
        """Bring the model to its device, and everything to where a checkpoint left it."""
        strategy, config = self.strategy, self.config
        # dropout differs from process to process
        torch.manual_seed(self.plan.seed + strategy.shard_index * _PRIME)
        strategy.example = self._example
        strategy.prepare(model, lambda network: make_optimizer(network, config))
        self.peaks = [group["lr"] for group in strategy.optimizer.param_groups]
        if config.ema_decay:
            self.average = MovingAverage(strategy.model, config.ema_decay)
        self.at = Position()
        if self.plan.checkpoints is not None:
            self.at, tensors = self.plan.checkpoints.begin(strategy, self._made_from())
            if self.average is not None and tensors:
                self.average.load(tensors)
        # Each shard keeps its own sum; what a checkpoint had summed up is the first one's.
        self.total = torch.tensor(
            self.at.loss if strategy.shard_index == 0 else 0.0, device=strategy.device
        )
        self.skipped = torch.tensor(float(self.at.skipped), device=strategy.device)
        self.overflows = torch.zeros((), device=strategy.device)  # in a row
        self.bad_step = torch.zeros((), device=strategy.device)
        self.next_look, self.looked = 0, (self.at.step, time.monotonic())
        self.seen = [0, 0]  # rows and tokens since the last report
        self.reported = (time.perf_counter(), self.at.loss)
        if strategy.rank == 0:
            self.callbacks = [*self._own_callbacks(), *self.plan.callbacks]

    def _example(self) -> dict[str, Tensor]:
        """Return the inputs of the longest row, and leave the random state as it is."""
        device = self.strategy.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            # BigBird gives up sparse attention for good when it sees a short row.
            (batch,) = self.feed([self.lengths.argmax()[None]])
            return self._corrupted(batch, 0.0)[1]

    def steps(self, interrupted: Interrupted) -> Iterator[tuple[list[Tensor], Iterator[Batch]]]:
        """Go through the epochs that are left, and yield what each optimizer step takes.

        Between two steps it saves, scores, and ends where training was interrupted.
        """
        at, config = self.at, self.config
        while self._more_epochs():
            self.strategy.model.train()
            left_steps = self.total_steps - self.steps_an_epoch * (at.epoch - 1)
            # Drawn from the epoch's number, so that any epoch can be begun without those before it.
            self.groups = self.order.epoch(self.plan.seed * _PRIME + at.epoch, left_steps)
            left = self.groups.after(at.in_epoch)
            feed = self.feed(numbers for group in left for numbers, _ in self._own(group))
            for group in self.groups.after(at.in_epoch):
                yield group, feed
                if at.in_epoch == len(self.groups):
                    break  # the epoch's end has a checkpoint of its own
                end = self._anywhere(interrupted)
                if end or (config.checkpoint_steps and at.step % config.checkpoint_steps == 0):
                    self._save()
                if end:
                    raise self._preempted(interrupted)
            self._end_of_epoch()
            if self._anywhere(interrupted, now=True) and self._more_epochs():
                raise self._preempted(interrupted)

    def restore_best(self) -> None:
        """Give the model the weights with the best score."""
        if self.at.best_epoch and self.plan.checkpoints is not None:
            self.plan.checkpoints.load_best(self.strategy)
        elif self.best is not None:
            self.strategy.load_weights(self.best)
        elif self.plan.score is not None:  # no epoch was asked for
            self.at.best_score = self._dev_score()

    def _own(self, group: Sequence[Tensor]) -> list[tuple[Tensor, int]]:
        """Return the forward passes of this process: row numbers (B,) int64, and how many count."""
        index, shards = self.strategy.shard_index, self.strategy.num_shards
        passes: list[tuple[Tensor, int]] = []
        for first in range(0, len(group), self.parts):
            batch = group[first : first + self.parts]
            # whole parts keep a processor busier than a few rows of each
            if len(batch) % shards == 0:
                passes += [(part, len(part)) for part in batch[index::shards]]
                continue
            for part in batch:
                own = part[index::shards]
                # All processes take part in every pass: one that has no row computes the first,
                # with weight 0.
                passes.append((own, len(own)) if len(own) else (part[:1], 0))
        return passes

    def step(self, group: Sequence[Tensor], feed: Iterator[Batch]) -> None:
        """Take one optimizer step: some forward passes, one move of the weights."""
        at, strategy, config = self.at, self.strategy, self.config
        all_rows = sum(map(len, group))
        factor = self._set_rates()
        own = self._own(group)
        for number, (inputs, loss, weight) in enumerate(self._passes(own, all_rows, feed), start=1):
            found = strategy.learn(inputs, loss, weight, last=number == len(own))
            self.total += found * (all_rows / strategy.num_shards)
            for callback in self.callbacks:
                callback.rows(all_rows * number // len(own) - all_rows * (number - 1) // len(own))
        norm = found
        if config.max_grad_norm or strategy.precision == "fp16":
            norm = strategy.clip(config.max_grad_norm or math.inf)
        self._note_bad(found, norm)
        if self.look_every == 1:
            self._stop_if_bad()
        strategy.step(at.step + 1)
        at.step, at.in_epoch = at.step + 1, at.in_epoch + 1
        if self.average is not None:
            self.average.update(at.step)
        if self.callbacks:
            self.seen[0] += all_rows
            self.seen[1] += sum(int(self.lengths[batch].sum()) for batch in group)
        if at.step % _LOOK_EVERY == 0:
            self._stop_if_bad()
            if strategy.precision == "fp16":
                at.left_out = int(self.skipped)
            self._report(factor, norm)

    def _passes(
        self, own: Sequence[tuple[Tensor, int]], all_rows: int, feed: Iterator[Batch]
    ) -> Iterator[tuple[dict[str, Tensor], Callable[[Tensor], Tensor], float]]:
        """Yield the inputs of each forward pass, its loss of logits, and the weight of that.

        Weighted so that n small batches, or n processes, give the gradient of one large batch.
        """
        loss, shards, done = self.plan.loss, self.strategy.num_shards, self._done()
        batches = (self._corrupted(next(feed), done) for _ in own)
        if not isinstance(loss, CountedLoss):
            for (numbers, inputs), (_, count) in zip(batches, own, strict=True):
                yield inputs, partial(loss, numbers, done=done), count * shards / all_rows
            return
        # What a pass's loss is divided by is known when all passes of all processes are.
        held = list(batches)
        counts = [
            loss.count(*batch) * min(count, 1) for batch, (_, count) in zip(held, own, strict=True)
        ]
        total = self.strategy.sum_over_shards(torch.stack(counts).sum(0))
        for (numbers, inputs), (_, count) in zip(held, own, strict=True):
            yield inputs, partial(_share, loss, numbers, total), float(shards * min(count, 1))

    def _corrupted(self, batch: Batch, done: float) -> Batch:
        numbers, inputs = batch
        corrupt = self.plan.corrupt
        return numbers, inputs if corrupt is None else corrupt(numbers, inputs, done)

    def _set_rates(self) -> float:
        """Set the step's learning rates; return what share of their peaks they are."""
        at, groups = self.at, self.strategy.optimizer.param_groups
        factor = rate_factor(self.config, at.step - at.left_out, self.total_steps)
        for settings, peak in zip(groups, self.peaks, strict=True):
            settings["lr"] = peak * factor
        return factor

    def _done(self) -> float:
        return self.at.step / self.total_steps

    def _note_bad(self, found: Tensor, norm: Tensor) -> None:
        """Note on the device the first step whose loss or gradient is not finite.

        An overflow of fp16 is no mistake; many in a row are.
        """
        bad = ~torch.isfinite(found)
        overflow = ~torch.isfinite(norm)
        if self.strategy.precision == "fp16":
            self.skipped += overflow
            self.overflows = (self.overflows + 1) * overflow
            overflow = self.overflows >= _MAX_OVERFLOWS
        self.bad_step = torch.where(
            (self.bad_step == 0) & (bad | overflow), self.at.step + 1.0, self.bad_step
        )

    def _stop_if_bad(self) -> None:
        """Stop, and keep the batch.

        Raises:
            InputError: A step's loss or gradient was not a number.
        """
        step = int(self.bad_step)
        if not step:
            return
        first_of_epoch = (self.at.epoch - 1) * self.steps_an_epoch
        numbers = torch.cat(self.groups[step - 1 - first_of_epoch])
        where = ""
        if self.plan.checkpoints is not None:
            path = self.plan.checkpoints.folder / f"bad-batch-{self.strategy.rank}.json"
            rows = [
                self.plan.rows.ids[
                    self.plan.rows.offsets[i] : self.plan.rows.offsets[i + 1]
                ].tolist()
                for i in numbers
            ]
            about = {
                "step": step,
                "epoch": self.at.epoch,
                "rows": numbers.tolist(),
                "input_ids": rows,
            }
            with whole_file(path) as unfinished:
                unfinished.write_text(json.dumps(about) + "\n", encoding="utf-8")
            where = f"; the batch is in {path}"
        what = f"the loss or gradient of step {step}, epoch {self.at.epoch}, is not a number"
        raise InputError(
            f"{self.plan.progress}: {what}; lower the learning rate, {self.config.learning_rate}{where}"
        )

    def _end_of_epoch(self) -> None:
        at, strategy = self.at, self.strategy
        self._stop_if_bad()
        strategy.settle()
        record: dict[str, float] = {
            "epoch": at.epoch,
            "loss": float(strategy.sum_over_shards(self.total)) / self.groups.rows,
        }
        if strategy.precision == "fp16":
            record["skipped_steps"] = int(self.skipped)
        with self.average.in_place() if self.average is not None else nullcontext():
            if self.plan.score is not None:
                record["dev"] = self._dev_score()
            at.history.append(record)
            at.stale += 1
            # Of equals the last: a small dev set is soon all right, long before the logits are
            # worth learning.
            if at.best_score is None or record.get("dev", 0.0) >= at.best_score:
                at.best_score, at.best_epoch, at.stale = record.get("dev", 0.0), at.epoch, 0
                self._keep_best()
        for callback in self.callbacks:
            callback.epoch({"step": at.step, **record})
        at.epoch, at.in_epoch = at.epoch + 1, 0
        self.total.zero_()
        if at.epoch <= self.epochs:
            self._save()
        # A report covers steps of one epoch, and no time that scoring took.
        self.seen = [0, 0]
        self.reported = (time.perf_counter(), 0.0)

    def _dev_score(self) -> float:
        assert self.plan.dev is not None
        assert self.plan.score is not None
        # Process 0 decides: a last digit that differs must not send processes different ways.
        return self.strategy.broadcast(self.plan.score(self.strategy.predict(self.plan.dev)))

    def _more_epochs(self) -> bool:
        patience = self.config.patience
        return self.at.epoch <= self.epochs and not (patience and self.at.stale >= patience)

    def _keep_best(self) -> None:
        if self.plan.checkpoints is not None:
            self.plan.checkpoints.save_best(
                self.strategy, {"epoch": self.at.epoch, "dev": self.at.best_score}
            )
        else:
            self.best = self.strategy.weights()

    def _save(self) -> None:
        if self.plan.checkpoints is not None:
            self.at.loss, self.at.skipped = (
                float(self.strategy.sum_over_shards(self.total)),
                int(self.skipped),
            )
            average = {} if self.average is None else self.average.state()
            self.plan.checkpoints.save(
                self.strategy, self.at, average, self.config.keep_checkpoints
            )

    def _made_from(self) -> dict[str, Any]:
        """Return what a resumed training must have in common with the one it resumes."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in _FREE}
        for name, unset in _LATER.items():
            if settings[name] == unset:
                del settings[name]
        tensors = (self.plan.rows.ids, self.plan.rows.types, self.plan.rows.offsets)
        rows = digest(
            *(None if tensor is None else tensor.numpy() for tensor in tensors),
            self.sampling_weights.numpy(),
        )
        return {"training": settings, "seed": self.plan.seed, "training rows (SHA-256)": rows}

    def _anywhere(self, interrupted: Interrupted, *, now: bool = False) -> bool:
        """Say whether any process was interrupted; all get the same answer, at the same step."""
        if self.strategy.world == 1:
            return bool(interrupted.by)
        at = self.at.step
        if not now and at < self.next_look:
            return False
        (before, since), here = self.looked, time.monotonic()
        seconds = (here - since) / max(1, at - before)  # a step
        told, seconds = self.strategy.sum(torch.tensor([float(interrupted.by), seconds])).tolist()
        # All processes count with the same sum, so that they look again after the same step.
        steps = max(1, int(_LOOK_SECONDS * self.strategy.world / max(seconds, 1e-9)))
        self.next_look = min(at + steps, (at // _LOOK_EVERY + 1) * _LOOK_EVERY)
        self.looked = (at, time.monotonic())
        return bool(told)

    def _preempted(self, interrupted: Interrupted) -> Preempted:
        return Preempted(
            f"{self.plan.progress}: interrupted, saved at step {self.at.step}",
            interrupted.by or signal.SIGTERM,
        )

    def _own_callbacks(self) -> list[Callback]:
        at, batch = self.at, self.config.batch_size * self.config.accumulation_steps
        total = min(self.rows_an_epoch * self.epochs, self.total_steps * batch)
        done = min(total, self.rows_an_epoch * (at.epoch - 1) + batch * at.in_epoch)
        watching: list[Callback] = [Bar(self.plan.progress, total, done)]
        if self.plan.checkpoints is not None:
            watching.append(JsonLog(self.plan.checkpoints.folder / "log.jsonl", at.step))
            if self.config.tensorboard:
                watching.append(TensorBoard(self.plan.checkpoints.folder / "tensorboard", at.step))
        return watching

    def _report(self, factor: float, norm: Tensor) -> None:
        total = float(self.strategy.sum_over_shards(self.total))  # every process takes part
        if not self.callbacks:
            return
        (before, total_before), (rows, tokens) = self.reported, self.seen
        now = time.perf_counter()
        record = {
            "step": self.at.step,
            "epoch": self.at.epoch,
            "loss": (total - total_before) / rows,
            "gradient_norm": float(norm),
            "learning_rate": self.peaks[0] * factor,
            "rows_per_second": rows / (now - before),
            "tokens_per_second": tokens / (now - before),
            "skipped_steps": int(self.skipped),
        }
        for callback in self.callbacks:
            callback.report(record)
        self.seen, self.reported = [0, 0], (now, total)


def _share(loss: CountedLoss, numbers: Tensor, counts: Tensor, logits: Tensor) -> Tensor:
    return loss.share(numbers, logits, counts)

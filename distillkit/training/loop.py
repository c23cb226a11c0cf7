"""One loop for teacher and student: accumulation, schedules, best on dev, exact resume."""

import itertools
import math
import signal
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from distillkit.errors import Preempted
from distillkit.processes import keep_memory, return_memory
from distillkit.training.bad_steps import BadSteps, not_a_number
from distillkit.training.checkpoints import Position
from distillkit.training.dealing import PASS_TOKENS, Pass, deal
from distillkit.training.feed import Batch, Feed
from distillkit.training.interruption import LOOK_EVERY, Interrupted, Lookout, interruption
from distillkit.training.optimizers import make_optimizer
from distillkit.training.order import PRIME, Order
from distillkit.training.origin import made_from
from distillkit.training.plan import FitPlan, FitResult
from distillkit.training.reports import Reports, watching
from distillkit.training.schedules import rate_factor
from distillkit.training.strategies import start
from distillkit.training.strategies.base import Strategy
from distillkit.training.weighting import weighted


def fit(model: nn.Module, plan: FitPlan, strategy: Strategy | None = None) -> FitResult:
    """Train a model and leave it, in every process, with the weights that scored best.

    Of epochs with the same score the last one counts.

    Args:
        model: Takes `rows.batch(...)` as keyword arguments and answers with `.logits`, (B, C).
        plan: What it is trained on, and how.
        strategy: By which the processes have met already; None: they meet here.

    Raises:
        InputError: The strategy or precision cannot run here, or a loss or gradient is not a
            number.
        Preempted: It was interrupted (SIGTERM, SIGINT) and has written a checkpoint.
    """
    strategy = strategy or start(plan.config)
    trainer = _Trainer(strategy, plan)
    try:
        trainer.prepare(model)
        return_memory()  # of 30 million rows, reading them has left 174 MB
        keep_memory()
        with interruption(listen=plan.checkpoints is not None) as interrupted:
            for group, own, feed in trainer.steps(interrupted):
                trainer.step(group, own, feed)
        trainer.restore_best()
    except Preempted:
        strategy.close()
        raise
    finally:
        trainer.reports.close()
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
        self.best: dict[str, Tensor] | None = None
        self.feed = Feed(rows, strategy.device, config.loader)
        self.lengths = rows.lengths
        weights = plan.sampling_weights
        # in a checkpoint, rows that come once have the weight 1
        self.sampling_weights = torch.ones(1).expand(len(rows)) if weights is None else weights
        self.order = Order(self.lengths, weights, config, plan.seed)
        self.reports = Reports(self.lengths)
        # A look at what lives on a GPU, or in another process, waits for it.
        self.look_every = 1 if strategy.device.type == "cpu" and strategy.world == 1 else LOOK_EVERY

    def prepare(self, model: nn.Module) -> None:
        """Bring the model to its device, and everything to where a checkpoint left it."""
        strategy, config = self.strategy, self.config
        # dropout differs from process to process
        torch.manual_seed(self.plan.seed + strategy.shard_index * PRIME)
        strategy.example = self._example
        strategy.prepare(model, lambda network: make_optimizer(network, config))
        self.peaks = [group["lr"] for group in strategy.optimizer.param_groups]
        self.at = Position()
        if self.plan.checkpoints is not None:
            origin = made_from(config, self.plan.seed, self.plan.rows, self.sampling_weights)
            self.at = self.plan.checkpoints.begin(strategy, origin)
        # Each shard keeps its own sum; what a checkpoint had summed up is the first one's.
        self.total = torch.tensor(
            self.at.loss if strategy.shard_index == 0 else 0.0,
            dtype=torch.float64,  # a float32 stops counting at some 10^8 rows
            device=strategy.device,
        )
        fp16 = strategy.precision == "fp16"
        self.bad_steps = BadSteps(strategy.device, self.at.skipped, fp16=fp16)
        self.lookout = Lookout(strategy, self.at.step)
        if strategy.rank == 0:
            batch = config.batch_size * config.accumulation_steps
            self.reports.open(watching(self.plan, self.order, batch, self.at))
        self.reports.restart(self.at.loss)

    def _example(self) -> dict[str, Tensor]:
        """Return the inputs of the longest row, and leave the random state as it is."""
        device = self.strategy.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            # BigBird gives up sparse attention for good when it sees a short row.
            (batch,) = self.feed([self.lengths.argmax()[None]])
            return self._corrupted(batch)[1]

    def steps(
        self, interrupted: Interrupted
    ) -> Iterator[tuple[list[Tensor], list[Pass], Iterator[Batch]]]:
        """Go through the epochs that are left.

        Between two steps it saves, scores, and ends where training was interrupted.

        Yields:
            An optimizer step's rows, in parts; this process's passes; and what brings their inputs.
        """
        at, config = self.at, self.config
        while self._more_epochs():
            self.strategy.model.train()
            self.groups = self.order.epoch(at.epoch)
            groups = self.groups.after(at.in_epoch)
            left, ahead = itertools.tee((group, self._own(group)) for group in groups)
            feed = self.feed(numbers for _, own in ahead for numbers, _ in own)
            for group, own in left:
                yield group, own, feed
                if at.in_epoch == len(self.groups):
                    break  # the epoch's end has a checkpoint of its own
                end = self.lookout.anywhere(interrupted, at.step)
                if end or (config.checkpoint_steps and at.step % config.checkpoint_steps == 0):
                    self._save()
                if end:
                    raise self._preempted(interrupted)
            self._end_of_epoch()
            if self.lookout.anywhere(interrupted, at.step, now=True):
                if at.epoch > self.order.epochs:
                    self._save()  # the last epoch has none yet
                raise self._preempted(interrupted)

    def restore_best(self) -> None:
        """Give the model the weights with the best score."""
        if self.at.best_epoch and self.plan.checkpoints is not None:
            # Those of a run that was killed before its checkpoint may be better than all since.
            best = self.plan.checkpoints.load_best(self.strategy)
            self.at.best_epoch, self.at.best_score = best["epoch"], best["dev"]
        elif self.best is not None:
            self.strategy.load_weights(self.best)
        elif self.plan.score is not None:  # no epoch was asked for
            self.at.best_score = self._dev_score()

    def _own(self, group: Sequence[Tensor]) -> list[Pass]:
        """Return the forward passes of this process."""
        strategy, parts, passes = self.strategy, self.order.parts, list[Pass]()
        for first in range(0, len(group), parts):
            dealt = deal(
                group[first : first + parts],
                self.lengths,
                strategy.num_shards,
                pass_tokens=PASS_TOKENS["cpu" if strategy.device.type == "cpu" else "cuda"],
                alike=strategy.alike,
            )
            passes += dealt[strategy.shard_index]
        return passes

    def step(self, group: Sequence[Tensor], own: Sequence[Pass], feed: Iterator[Batch]) -> None:
        """Take one optimizer step: some forward passes, one move of the weights."""
        at, strategy, config = self.at, self.strategy, self.config
        all_rows = sum(map(len, group))
        factor = self._set_rates()
        batches = (self._corrupted(next(feed)) for _ in own)
        passes = weighted(self.plan.loss, strategy, own, all_rows, batches)
        for number, (inputs, loss, weight) in enumerate(passes, start=1):
            found = strategy.learn(inputs, loss, weight, last=number == len(own))
            self.total += found * (all_rows / strategy.num_shards)
            self.reports.passed(all_rows * number // len(own) - all_rows * (number - 1) // len(own))
        norm = strategy.clip(config.max_grad_norm or math.inf)
        self.bad_steps.note(at.step + 1, self.total, norm)
        if self.look_every == 1:
            self._stop_if_bad()
        strategy.step(at.step + 1)
        at.step, at.in_epoch = at.step + 1, at.in_epoch + 1
        self.reports.stepped(group)
        if at.step % LOOK_EVERY == 0:
            self._stop_if_bad()
            if strategy.precision == "fp16":
                at.left_out = int(self.bad_steps.skipped)
            total = float(strategy.sum_over_shards(self.total))  # every process takes part
            self.reports.report(at, total, self.peaks[0] * factor, norm, self.bad_steps.skipped)

    def _corrupted(self, batch: Batch) -> Batch:
        numbers, inputs = batch
        corrupt = self.plan.corrupt
        return numbers, inputs if corrupt is None else corrupt(inputs)

    def _set_rates(self) -> float:
        """Set the step's learning rates; return what share of their peaks they are."""
        at, groups = self.at, self.strategy.optimizer.param_groups
        factor = rate_factor(self.config, at.step - at.left_out, self.order.total_steps)
        for settings, peak in zip(groups, self.peaks, strict=True):
            settings["lr"] = peak * factor
        return factor

    def _stop_if_bad(self) -> None:
        """Raise InputError, and keep the batch, if a step's loss or gradient was not a number."""
        if step := self.bad_steps.first():
            before = (self.at.epoch - 1) * self.order.steps_an_epoch
            numbers = torch.cat(self.groups[step - 1 - before])
            raise not_a_number(self.plan, self.strategy.rank, step, self.at.epoch, numbers)

    def _end_of_epoch(self) -> None:
        at, strategy = self.at, self.strategy
        self._stop_if_bad()
        strategy.settle()
        record: dict[str, float] = {
            "epoch": at.epoch,
            "loss": float(strategy.sum_over_shards(self.total)) / self.groups.rows,
        }
        if strategy.precision == "fp16":
            record["skipped_steps"] = int(self.bad_steps.skipped)
        if self.plan.score is not None:
            record["dev"] = self._dev_score()
        at.history.append(record)
        at.stale += 1
        score = record.get("dev", 0.0)
        if at.best_score is None or score > at.best_score or self.plan.score is None:
            at.stale = 0
        # Of equals the last: a small dev set is soon all right, long before the logits are
        # worth learning.
        if at.best_score is None or score >= at.best_score:
            at.best_score, at.best_epoch = score, at.epoch
            self._keep_best()
        self.reports.epoch({"step": at.step, **record})
        at.epoch, at.in_epoch = at.epoch + 1, 0
        self.total.zero_()
        if at.epoch <= self.order.epochs:
            self._save()
        # A report covers steps of one epoch, and no time that scoring took.
        self.reports.restart(0.0)

    def _dev_score(self) -> float:
        assert self.plan.dev is not None
        assert self.plan.score is not None
        # Process 0 decides: a last digit that differs must not send processes different ways.
        return self.strategy.broadcast(self.plan.score(self.strategy.predict(self.plan.dev)))

    def _more_epochs(self) -> bool:
        patience = self.config.patience
        return self.at.epoch <= self.order.epochs and not (patience and self.at.stale >= patience)

    def _keep_best(self) -> None:
        if self.plan.checkpoints is not None:
            self.plan.checkpoints.save_best(
                self.strategy, {"epoch": self.at.epoch, "dev": self.at.best_score}
            )
        else:
            self.best = self.strategy.weights()

    def _save(self) -> None:
        if self.plan.checkpoints is not None:
            self._stop_if_bad()  # else the next run would begin with weights that are not numbers
            self.at.loss, self.at.skipped = (
                float(self.strategy.sum_over_shards(self.total)),
                int(self.bad_steps.skipped),
            )
            self.plan.checkpoints.save(self.strategy, self.at, self.config.keep_checkpoints)

    def _preempted(self, interrupted: Interrupted) -> Preempted:
        return Preempted(
            f"{self.plan.progress}: interrupted, saved at step {self.at.step}",
            interrupted.by or signal.SIGTERM,
        )

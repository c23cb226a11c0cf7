"""Note SIGTERM and SIGINT while a training runs, so that it can save before it ends."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from distillkit.training.strategies.base import Strategy

# Steps between two looks at what lives on a GPU or in another process.
LOOK_EVERY = 20
# Seconds between two looks at whether another process was told to end, where so many steps take
# longer: torchrun kills its processes 30 s after it has told them.
_LOOK_SECONDS = 2.0


@dataclass
class Interrupted:
    """The number of the signal that interrupted this process; 0: none has."""

    by: int = 0


@contextmanager
def interruption(*, listen: bool) -> Iterator[Interrupted]:
    """Note SIGTERM and SIGINT while a block runs, instead of dying of them.

    A second SIGINT raises KeyboardInterrupt at once.
    """
    interrupted = Interrupted()
    # Python lets only the main thread handle signals.
    if not listen or threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(number: int, frame: object) -> None:
        if interrupted.by == number == signal.SIGINT:
            raise KeyboardInterrupt
        interrupted.by = number

    # A signal that is ignored (SIGINT under nohup) stays ignored.
    handled = [
        n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, note) for number in handled}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Lookout:
    """Learns whether any process was interrupted; all get the same answer, at the same step.

    Args:
        strategy: Of all processes.
        step: Optimizer steps done so far.
    """

    def __init__(self, strategy: Strategy, step: int) -> None:
        self._strategy = strategy
        self._next, self._last = 0, (step, time.monotonic())

    def anywhere(self, interrupted: Interrupted, step: int, *, now: bool = False) -> bool:
        """Say so after a step, if it is time to look or it is to be now."""
        if self._strategy.world == 1:
            return bool(interrupted.by)
        if not now and step < self._next:
            return False
        (before, since), here = self._last, time.monotonic()
        seconds = (here - since) / max(1, step - before)  # a step
        told, seconds = self._strategy.sum(torch.tensor([float(interrupted.by), seconds])).tolist()
        # All processes count with the same sum, so that they look again after the same step.
        steps = max(1, int(_LOOK_SECONDS * self._strategy.world / max(seconds, 1e-9)))
        self._next = min(step + steps, (step // LOOK_EVERY + 1) * LOOK_EVERY)
        self._last = (step, time.monotonic())
        return bool(told)

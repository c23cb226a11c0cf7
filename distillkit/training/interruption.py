"""Note SIGTERM and SIGINT while a training runs, so that it can save before it ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


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

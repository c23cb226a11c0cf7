"""Requests of several clients, answered in one call."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distillkit.serve.limits import Limits

Answers = list[dict[str, Any]]


class QueueFull(Exception):
    """More rows wait than may."""


@dataclass(eq=False)
class _Asked:
    """One request's rows, where their answers go, and when they came (the event loop's clock)."""

    texts: list[str]
    text_pairs: list[str] | None
    answers: "asyncio.Future[Answers]"
    since: float

    @property
    def characters(self) -> int:
        return sum(map(len, self.texts)) + sum(map(len, self.text_pairs or ()))


class Batcher:
    """A queue of requests, and threads that answer them, several requests a call.

    A call takes whole requests, in the order they came: as many as there are when it has
    `batch_rows`, or when the oldest has waited `batch_wait_ms`. While every thread is busy requests
    gather by themselves, so under load nothing waits for the clock.

    Args:
        predict: Gives the answers of N texts, or pairs; called by several threads at once.
        limits: Threads, rows a call unless one request alone has more, wait, rows in the queue.
        batch_characters: Characters a call, unless one request alone has more: what tokenising
            costs in memory.
        count: Called with the rows of every call.
    """

    def __init__(
        self,
        predict: Callable[[Sequence[str], Sequence[str] | None], Answers],
        limits: Limits,
        *,
        batch_characters: int,
        count: Callable[[int], None],
    ) -> None:
        self.waiting = 0
        """Rows in the queue."""
        self._predict = predict
        self._limits = limits
        self._batch_characters = batch_characters
        self._count = count
        self._queue: deque[_Asked] = deque()
        self._pool = ThreadPoolExecutor(limits.threads, "predict")
        self._workers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to answer, in this event loop."""
        self._some, self._enough = asyncio.Event(), asyncio.Event()
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._limits.threads)]

    async def stop(self) -> None:
        """Stop; what still waits is not answered."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def ask(self, texts: list[str], text_pairs: list[str] | None) -> Answers:
        """Wait for the answers of N texts, or pairs; if cancelled, free their place in the queue.

        Raises:
            QueueFull: More rows would wait than may.
            Exception: What answering these very rows raised.
        """
        if not texts:
            return []
        if self.waiting + len(texts) > self._limits.max_waiting:
            raise QueueFull
        loop = asyncio.get_running_loop()
        asked = _Asked(texts, text_pairs, loop.create_future(), loop.time())
        self._queue.append(asked)
        self._changed(len(texts))
        try:
            return await asked.answers
        finally:
            if asked in self._queue:  # the client has hung up
                self._queue.remove(asked)
                self._changed(-len(texts))

    def _changed(self, rows: int) -> None:
        self.waiting += rows
        for event, rows_needed in ((self._some, 1), (self._enough, self._limits.batch_rows)):
            event.set() if self.waiting >= rows_needed else event.clear()

    async def _work(self) -> None:
        while True:
            await self._answer(await self._gathered())

    async def _gathered(self) -> list[_Asked]:
        while True:
            await self._some.wait()
            if not self._queue:  # all threads woke, and another has taken what came
                continue
            left = (
                self._queue[0].since
                + self._limits.batch_wait_ms / 1000
                - asyncio.get_running_loop().time()
            )
            if left <= 0 or self._enough.is_set():
                return self._take()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._enough.wait(), left)
            # Another thread may have taken them meanwhile, or all clients hung up: look again.

    def _take(self) -> list[_Asked]:
        batch: list[_Asked] = []
        rows = characters = 0
        while self._queue:
            asked = self._queue[0]
            rows, characters = rows + len(asked.texts), characters + asked.characters
            fits = rows <= self._limits.batch_rows and characters <= self._batch_characters
            if batch and not (fits and (asked.text_pairs is None) == (batch[0].text_pairs is None)):
                break
            batch.append(self._queue.popleft())
            self._changed(-len(asked.texts))
        return batch

    async def _answer(self, batch: Sequence[_Asked]) -> None:
        texts = [text for asked in batch for text in asked.texts]
        pairs = None
        if batch[0].text_pairs is not None:
            pairs = [text for asked in batch for text in asked.text_pairs or ()]
        self._count(len(texts))
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._pool, self._predict, texts, pairs
            )
        except Exception as error:
            if len(batch) == 1:
                if not batch[0].answers.done():
                    batch[0].answers.set_exception(error)
                return
            for asked in batch:  # who is to blame fails alone
                await self._answer([asked])
            return
        for asked in batch:
            own, found = found[: len(asked.texts)], found[len(asked.texts) :]
            if not asked.answers.done():
                asked.answers.set_result(own)

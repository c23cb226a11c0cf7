"""Asks a service about the rows of a table, several at a time, and nothing twice."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
import pyarrow as pa

from distillkit.data.content import paired, texts_of
from distillkit.data.logits import keys_of
from distillkit.errors import InputError
from distillkit.processes import log
from distillkit.recipe import EndpointConfig
from distillkit.teacher.endpoint.answers import Options, Reply
from distillkit.teacher.endpoint.budget import Budget, likely_tokens
from distillkit.teacher.endpoint.journal import NONE, Answer, Journal
from distillkit.teacher.endpoint.prompts import Prompts
from distillkit.teacher.endpoint.service import Adapted, Pace, Refused, Service, Trouble

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds before a call is repeated
PATIENCE = 20  # prompts without any label after which the service is not asked on

Row = tuple[bytes, str, str | None]  # key and texts


class _Stopped(Exception):
    """Another thread has failed: this one is to end."""


class Asker:
    """Gets log-probabilities from the journal, or else from the service.

    Args:
        config: How the service is asked.
        prompts: What it is asked.
        labels: C labels in the order of the logits.
        service: Who is asked.
        journal: What was asked before; one process has it.
    """

    def __init__(
        self,
        config: EndpointConfig,
        prompts: Prompts,
        labels: list[str],
        service: Service,
        journal: Journal,
    ) -> None:
        self._config, self._prompts, self._classes = config, prompts, len(labels)
        self._service, self._journal = service, journal
        self._options = Options(labels, config.hard_probability)
        self._budget = Budget(config, journal)
        self._stop = threading.Event()
        self._pace = Pace(config.requests_per_minute, self._sleep)
        self._failure: Exception | None = None  # the first of any thread
        self._said: set[str] = set()
        self._last = "of an earlier run"  # answer that is no label

    def logits(self, table: pa.Table, on_rows: Callable[[int], object]) -> np.ndarray:
        """Return the log-probabilities of N rows, (N, C) float32.

        Args:
            table: Canonical.
            on_rows: Called with the number of rows that are done.

        Raises:
            InputError: The service refuses, keeps failing, or gives no labels, or the budget is
                spent. What was answered is in the journal.
        """
        rows: list[Row] = [
            (key, *texts)
            for key, texts in zip(keys_of(table).to_pylist(), paired(*texts_of(table)), strict=True)
        ]
        missing = {row[0]: row for row in rows if not self.knows(row[0])}
        on_rows(len(rows) - len(missing))
        if missing:
            self._ask_all(list(missing.values()), on_rows)
        if rows and not self._journal.spent.answers:
            raise self._no_labels()
        return np.array([self._mean(row[0]) for row in rows], np.float32).reshape(-1, self._classes)

    def knows(self, key: bytes) -> bool:
        """Say whether every prompt about a row was asked."""
        return all(self._journal.find(key, number) for number in self._numbers)

    @property
    def _numbers(self) -> range:
        return range(len(self._prompts.templates))

    def _mean(self, key: bytes) -> np.ndarray:
        found = [self._journal.find(key, number) for number in self._numbers]
        values = [answer.values for answer in found if answer and answer.values is not None]
        alike = [[-np.log(self._classes)] * self._classes]
        return np.mean(values or alike, axis=0)

    def _ask_all(self, rows: list[Row], on_rows: Callable[[int], object]) -> None:
        self._stop.clear()
        self._failure = None
        # Alone: what this service does not take is found out by one call and not by many.
        self._ask_row(rows[0])
        on_rows(1)
        pool = ThreadPoolExecutor(self._config.concurrency)
        try:
            for done in as_completed([pool.submit(self._work, row) for row in rows[1:]]):
                done.result()
                if self._failure is not None:
                    raise self._failure
                on_rows(1)
        finally:
            self._stop.set()  # after an error; calls under way are ended, for they are paid
            pool.shutdown(cancel_futures=True)

    def _work(self, row: Row) -> None:
        """Ask about a row; a failure ends the work of all threads."""
        try:
            self._ask_row(row)
        except _Stopped:
            pass
        except Exception as error:
            self._failure = self._failure or error
            self._stop.set()

    def _ask_row(self, row: Row) -> None:
        for number in self._numbers:
            if self._journal.find(row[0], number) is None:
                self._ask(row, number)

    def _ask(self, row: Row, number: int) -> None:
        """Ask until there is an answer, and note it."""
        prompt, failures, unread = self._prompts.fill(number, *row), 0, False
        while True:
            self._pace.wait()
            try:
                with self._budget.call(prompt) as call:
                    try:
                        reply = self._service.send(prompt, row[1])
                    except (Trouble, Adapted, Refused) as error:
                        if not (isinstance(error, Trouble) and error.billed):
                            call.used = NONE
                        raise
                    call.used = reply.used or likely_tokens(prompt, reply.text)
                    answer = self._read(row[0], number, reply)
                    if answer.values is not None or unread:
                        call.answer = answer
                        break
                    unread = True
            except Adapted:
                pass
            except Trouble as trouble:
                failures += 1
                self._wait_out(trouble, failures)
        if answer.values is None:
            self._last = " ".join(reply.text.split())[:100]
            if not self._journal.spent.answers and self._journal.spent.unanswered >= PATIENCE:
                raise self._no_labels()

    def _read(self, key: bytes, number: int, reply: Reply) -> Answer:
        if self._config.logprobs and reply.tokens:
            # A label may be answered by a name of several tokens.
            if (values := self._options.soft(reply)) is not None:
                return Answer(key, number, values)
        elif self._config.logprobs:
            self._say_once(
                f"the service gives no log-probabilities: its answers are hard labels (label.endpoint.hard_probability {self._config.hard_probability})"
            )
        values = self._options.hard(reply)
        return Answer(key, number, values, hard=values is not None)

    def _wait_out(self, trouble: Trouble, failures: int) -> None:
        """Wait before a call is repeated, longer each time.

        Raises:
            InputError: It was repeated often enough.
        """
        if failures > self._config.retries:
            raise InputError(
                f"{self._config.url}: {failures} calls about one row failed, the last with {trouble}; what was answered is kept, the same command goes on"
            ) from None
        self._say_once(f"{trouble}; the call is repeated")
        if trouble.wait is not None:
            self._pace.hold(trouble.wait)
        backoff = min(FIRST_WAIT * 2 ** (failures - 1), LONGEST_WAIT)
        self._sleep(max(trouble.wait or 0.0, backoff * random.uniform(0.5, 1.5)))

    def _no_labels(self) -> InputError:
        count = self._journal.spent.unanswered
        return InputError(
            f"{self._config.url}: none of {count} answers is a label, the last is {self._last!r}; expected a letter: "
            "change label.endpoint.prompt, or give a larger label.endpoint.answer_tokens (distillkit label: with another --name)"
        )

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            log(f"{self._config.url}: {message}")

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(max(seconds, 0.0)):
            raise _Stopped

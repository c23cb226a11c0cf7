"""One call of an OpenAI-compatible service, and what its refusals mean."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from distillkit.errors import InputError
from distillkit.processes import log
from distillkit.recipe import EndpointConfig
from distillkit.teacher.endpoint.answers import Reply, Unreadable, read_reply

_TOPS = (10, 5, 2, 0)  # how many tokens are asked for after a refusal
_PATHS = {"chat": "/chat/completions", "completions": "/completions"}
_LONGEST_WAIT = 3600.0  # seconds
_LATER = (408, 409, 425, 429)  # as any 5xx: the same call may succeed later
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Trouble(Exception):
    """A call failed that may succeed later.

    Args:
        what: In one line.
        wait: Seconds that the service asks for; None: it does not say.
        billed: Whether it may have been answered all the same.
    """

    def __init__(self, what: str, wait: float | None = None, *, billed: bool) -> None:
        super().__init__(what)
        self.wait, self.billed = wait, billed


class Adapted(Exception):
    """The service refused how it was asked; from now on it is asked otherwise."""


class Refused(InputError):
    """The service will not answer: its own words, in one line."""


@dataclass(frozen=True)
class Form:
    """How a service is asked, of what services differ in."""

    top_logprobs: int  # 0: no log-probabilities
    limit: str = "max_tokens"  # the name of the answer's limit
    temperature: bool = True

    def narrower(self, message: str) -> "Form | None":
        """Return the form that a refusal in these words asks for; None: it is about another matter."""
        said = message.lower()
        if "max_completion_tokens" in said and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        if ("logprobs" in said or "top_n_tokens" in said) and self.top_logprobs:
            top = next(top for top in _TOPS if top < self.top_logprobs)
            return replace(self, top_logprobs=top)
        if "temperature" in said and self.temperature:
            return replace(self, temperature=False)
        return None


class Service:
    """Asks a service; threads may share it.

    Args:
        config: Where it is, which model, for how long.

    Raises:
        InputError: The key cannot be sent.
    """

    def __init__(self, config: EndpointConfig) -> None:
        self._config, self._form = config, Form(config.top_logprobs if config.logprobs else 0)
        self._lock = threading.Lock()
        url = config.url.rstrip("/")
        path = _PATHS[config.api]
        self._url = url if url.endswith(path) else url + path
        self._key = os.environ.get(config.key_variable, "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise InputError(
                f"{config.key_variable}: the key has signs that no header can hold; expected printable ASCII"
            )
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=config.concurrency)
        self._client = httpx.Client(headers=headers, timeout=config.timeout, limits=limits)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def send(self, prompt: str, about: str) -> Reply:
        """Ask once.

        Args:
            prompt: What is asked.
            about: The text that it is about, for errors.

        Raises:
            Trouble: It may work later.
            Adapted: It may work now, in another form.
            Refused: It will not work.
        """
        form = self._form
        try:
            response = self._client.post(self._url, json=self._body(prompt, form))
        except httpx.RequestError as error:
            what = self._line(f"{type(error).__name__} {error}")
            raise Trouble(what, billed=not isinstance(error, _UNSENT)) from None
        status = response.status_code
        if status == 200:
            try:
                return read_reply(response.json())
            except (Unreadable, ValueError) as error:
                what = self._line(f"its reply is not the JSON of an answer: {error}")
                raise Trouble(what, billed=True) from None
        message = f"{status}: {self._line(_message(response))}"
        if status in _LATER or status >= 500:
            raise Trouble(message, _retry_after(response), billed=False)
        if status in (400, 403, 422):  # 403: OpenAI, of log-probabilities
            self._adapt(form, message)
            message += f" (asked about {about[:60]!r})"
        raise Refused(f"{self._url}: {message}")

    def _body(self, prompt: str, form: Form) -> dict[str, Any]:
        chat, top = self._config.api == "chat", form.top_logprobs
        body: dict[str, Any] = {"model": self._config.model, form.limit: self._config.answer_tokens}
        if form.temperature:
            body["temperature"] = 0
        if chat:
            asked = {"logprobs": True, "top_logprobs": top} if top else {}
            return body | {"messages": [{"role": "user", "content": prompt}]} | asked
        return body | {"prompt": prompt} | ({"logprobs": top} if top else {})

    def _adapt(self, form: Form, message: str) -> None:
        """Ask in another form from now on, if a refusal is of the form.

        Raises:
            Adapted: It is.
        """
        with self._lock:
            if self._form is not form:  # another thread was faster
                raise Adapted
            narrower = form.narrower(message)
            if narrower is None:
                return
            self._form = narrower
        log(f"{self._url}: {message}; asking in another form from now on")
        raise Adapted

    def _line(self, text: str) -> str:
        """Return a text of the service's in one line, without the key that it may repeat."""
        text = text.replace(self._key, "***") if self._key else text
        return " ".join(text.split())[:300]


class Pace:
    """Holds calls back: so many a minute, and none before the time that the service asks for.

    Args:
        per_minute: Most calls; 0: no limit.
        sleep: Waits some seconds; may raise to end the wait.
    """

    def __init__(self, per_minute: int, sleep: Callable[[float], None]) -> None:
        self._gap = 60 / per_minute if per_minute else 0.0
        self._next, self._lock, self._sleep = 0.0, threading.Lock(), sleep

    def wait(self) -> None:
        """Wait for the turn of one more call."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + self._gap
        self._sleep(start - now)

    def hold(self, seconds: float) -> None:
        """Let no call begin for some seconds."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)


def _message(response: httpx.Response) -> str:
    """Return what a service says of an error, or else the beginning of its reply."""
    try:
        body = response.json()
        found = body.get("error", body)
        found = (
            found.get("message", found.get("detail", found)) if isinstance(found, dict) else found
        )
    except (ValueError, AttributeError):
        found = response.text
    return str(found) or response.reason_phrase


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of the header Retry-After, which may be a date."""
    value = response.headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return min(max(seconds, 0.0), _LONGEST_WAIT) if seconds == seconds else None

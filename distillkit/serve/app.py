"""The service: four addresses, what is refused, and what is counted."""

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hmac import compare_digest
from types import MappingProxyType
from typing import Any, NoReturn, Protocol, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distillkit.errors import InputError
from distillkit.runtime.bundle import Manifest
from distillkit.serve.batching import Batcher, QueueFull
from distillkit.serve.limits import Limits
from distillkit.serve.reading import read_body, read_rows

_T = TypeVar("_T")

# What nobody reads any more has this status in the metrics, as with nginx.
_HUNG_UP = 499


class Answering(Protocol):
    """What the service asks: a `Predictor`, or what answers like one."""

    manifest: Manifest

    @property
    def predict(self) -> Callable[..., list[dict[str, Any]]]:
        """Returns the answers of N texts or pairs."""


class Service:
    """An ASGI application over a predictor, with limits on what it takes on.

    Args:
        predictor: Answers; several threads call it.
        limits: How much is taken on.
        page: HTML that `/` shows in place of the facts.
        options: Of `predict`, for every request.
        token: What every request has to bear, save for /health; empty: none.
    """

    def __init__(
        self,
        predictor: Answering,
        limits: Limits,
        page: str = "",
        options: Mapping[str, Any] = MappingProxyType({}),
        token: str = "",
    ) -> None:
        self.stopping = False
        """Set by whoever stops the server; /health says it."""
        self.hosts: Collection[str] = ()
        """Set by whoever starts it: names that a request's `Host` may have; empty: any."""
        self._token = token
        self._predictor = predictor
        self._limits = limits
        self._page = page
        self._options = dict(options)
        self._max_bytes = limits.max_body_kb * 1024
        self._at_once = 0
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "distillkit_requests", "Requests.", ["path", "status"], registry=self._registry
        )
        self._rows = Counter("distillkit_rows", "Rows answered.", registry=self._registry)
        self._seconds = Histogram(
            "distillkit_request_seconds",
            "Of requests to /predict that were answered, from head to last byte.",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
            registry=self._registry,
        )
        batch_rows = Histogram(
            "distillkit_batch_rows",
            "Rows of a call of the model.",
            buckets=[2**i for i in range(11)],
            registry=self._registry,
        )
        self._batcher = Batcher(
            partial(predictor.predict, **options),
            limits,
            batch_characters=self._max_bytes,
            count=batch_rows.observe,
        )
        waiting = Gauge(
            "distillkit_waiting_rows",
            "Rows that wait for a call of the model.",
            registry=self._registry,
        )
        waiting.set_function(lambda: self._batcher.waiting)
        routes = {"/": self._about, "/health": self._health, "/metrics": self._metrics}
        self._paths = {*routes, "/predict"}
        app = Starlette(
            routes=[
                Route("/predict", self._predict, methods=["POST"]),
                *(Route(path, answer, methods=["GET"]) for path, answer in routes.items()),
            ],
            exception_handlers={
                HTTPException: _refused,
                ClientDisconnect: _hung_up,
                InputError: _unanswerable,
                Exception: _failed,
            },
            lifespan=self._lifespan,
        )
        app.router.redirect_slashes = False  # a redirect has no line that says what is wrong
        self._app: ASGIApp = app

    @property
    def totals(self) -> dict[str, int]:
        """Requests to /predict that were answered, and their rows."""
        names = {"requests": "distillkit_request_seconds_count", "rows": "distillkit_rows_total"}
        get = self._registry.get_sample_value
        return {key: int(get(name) or 0) for key, name in names.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        path = scope["path"] if scope["path"] in self._paths else "other"
        try:
            await (self._barred(scope) or self._app)(scope, receive, counted)
        finally:
            self._requests.labels(path, str(status)).inc()
            if path == "/predict" and status == 200:
                self._seconds.observe(time.perf_counter() - began)

    def _barred(self, scope: Scope) -> Response | None:
        """Refuse a name that is not this service's, and a request without its token."""
        headers = Headers(scope=scope)
        # A page of another site can have its own name resolved to this machine (DNS rebinding).
        name = re.sub(r":\d*$", "", headers.get("host", "").lower())
        if self.hosts and name not in self.hosts and scope["path"] != "/health":  # probes ask by IP
            line = f"Host: {name[:60]!r} is not this service's name; --allowed-hosts adds names"
            return JSONResponse({"error": line}, 403)
        wanted, borne = f"Bearer {self._token}", headers.get("authorization", "")
        free = not self._token or scope["path"] == "/health"
        if free or compare_digest(borne.encode("latin-1"), wanted.encode()):
            return None
        line = "Authorization: expected Bearer and the token that the server was started with"
        return JSONResponse({"error": line}, 401, {"WWW-Authenticate": "Bearer"})

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await self._batcher.start()
        try:
            yield
        finally:
            await self._batcher.stop()

    async def _predict(self, request: Request) -> Response:
        if self._at_once >= self._limits.max_waiting:  # before its body costs anything
            _busy()
        self._at_once += 1
        try:
            body = await read_body(request, self._max_bytes)
            texts, pairs = read_rows(body, self._limits.max_rows, self._predictor.manifest.pairs)
            try:
                answers = await _while_connected(request, self._batcher.ask(texts, pairs))
            except QueueFull:
                _busy()
        finally:
            self._at_once -= 1
        self._rows.inc(len(texts))
        return JSONResponse({"answers": answers})

    async def _about(self, request: Request) -> Response:
        if self._page:
            return HTMLResponse(self._page)
        manifest = self._predictor.manifest
        facts = ("task", "labels", "max_tokens", "pairs", "made_from", "cascade")
        about = {name: getattr(manifest, name) for name in facts}
        return JSONResponse(about | self._options | {"max_rows": self._limits.max_rows})

    async def _health(self, request: Request) -> Response:
        if self.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        return JSONResponse({"status": "ready"})

    async def _metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


async def _while_connected(request: Request, work: Awaitable[_T]) -> _T:
    """Wait as long as the client does; ClientDisconnect and cancelled work if it hangs up."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    asked, left = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise ClientDisconnect
        return asked.result()
    finally:
        asked.cancel()
        left.cancel()


def _busy() -> NoReturn:
    # 503, not 429: no client sends too much, all of them do; and a proxy may ask another replica.
    raise HTTPException(
        503, "busy: too many rows wait for an answer; try again", {"Retry-After": "1"}
    )


def _refused(request: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _hung_up(request: Request, error: Exception) -> Response:
    return Response(status_code=_HUNG_UP)


def _unanswerable(request: Request, error: Exception) -> Response:
    # Wrong requests never reach the model, so this one's logits are NaN, or its graph failed.
    line = "the model has no answer: a logit is not finite, or its graph failed; export it again"
    sys.stderr.write(f"distillkit: {line}\n")  # without the client's text
    return JSONResponse({"error": line}, 500)


def _failed(request: Request, error: Exception) -> Response:
    line = "this request could not be answered; the server's log says why"
    return JSONResponse({"error": line}, 500)

"""`serve`: the service on a port, until it is told to stop."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from ipaddress import ip_address
from pathlib import Path
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from distillkit.errors import InputError
from distillkit.processes import cores
from distillkit.runtime import Predictor
from distillkit.serve.app import Service
from distillkit.serve.limits import Limits

# For head and body of a request: a client that sends a byte now and then holds no place.
_REQUEST_SECONDS = 10
# Between two requests of a connection.
_IDLE_SECONDS = 5
# For open requests when the server is stopped.
_STOP_SECONDS = 20
_HEAD_BYTES = 16_384


def serve(
    bundle: str | Path,
    *,
    teacher: str | Path = "",
    reject: bool = False,
    coverage: float = 0.0,
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed_hosts: Sequence[str] = (),
    limits: Limits,
) -> dict[str, int]:
    """Answer over HTTP until SIGTERM or SIGINT; then finish open requests and return.

    Where the environment has `DISTILLKIT_TOKEN`, requests have to bear it.

    Args:
        bundle: What `distillkit export` wrote.
        teacher: Another bundle, asked where the first is not confident; the first needs a threshold
            of `distillkit cascade`. Empty: none.
        reject: As in `Predictor.predict`, for every request.
        coverage: As in `Predictor.predict`, for every request.
        host: Address to listen at.
        port: 0: any that is free.
        allowed_hosts: As `listen` takes them.
        limits: How much is taken on; `threads` 0: one a core.

    Returns:
        How many requests were answered, and their rows.

    Raises:
        InputError: A limit is wrong, the bundle is not whole or has no such answers, or the port is
            taken.
    """
    limits = _checked(limits)
    predictor = Predictor(bundle, teacher=Predictor(teacher) if teacher else None)
    predictor.check(reject=reject, coverage=coverage)

    def say(address: str) -> None:
        sys.stderr.write(f"distillkit: {bundle} answers at {address}/predict; Ctrl-C stops it\n")

    options = {"reject": reject, "coverage": coverage}
    token = os.environ.get("DISTILLKIT_TOKEN", "")
    service = Service(predictor, limits, options=options, token=token)
    return listen(service, host, port, say, allowed_hosts)


def listen(
    service: Service,
    host: str,
    port: int,
    ready: Callable[[str], None],
    allowed_hosts: Sequence[str] = (),
) -> dict[str, int]:
    """Answer over HTTP as `serve`.

    Args:
        service: What answers.
        host: As in `serve`.
        port: As in `serve`.
        ready: Called with the address once it answers.
        allowed_hosts: Names that a request's `Host` may have, beside this machine's own. None: any,
            or this machine's own where `host` is a loopback address.
    """
    config = uvicorn.Config(
        service,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    with _listening(host, port) as listener:
        if allowed_hosts or ip_address(listener.getsockname()[0]).is_loopback:
            names = ("localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host)
            service.hosts = {name.lower() for name in (*names, *allowed_hosts)}
        asyncio.run(_Server(config, service, ready).serve([listener]))
    return service.totals


def _checked(limits: Limits) -> Limits:
    for name, value in asdict(limits).items():
        least = 0 if name in ("threads", "batch_wait_ms") else 1
        if not value >= least:
            raise InputError(f"--{name.replace('_', '-')} {value}: expected at least {least}")
    if limits.max_rows > limits.max_waiting:
        raise InputError(
            f"--max-rows {limits.max_rows}: a request of so many could never wait, --max-waiting is {limits.max_waiting}"
        )
    return replace(limits, threads=limits.threads or cores())


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:  # a port above 65535 is the latter
        raise InputError(
            f"--host {host} --port {port}: cannot listen there ({error}); choose another"
        ) from None


class _Server(uvicorn.Server):
    """uvicorn's server; it tells its address and exits with 0 after a signal."""

    def __init__(
        self, config: uvicorn.Config, service: Service, ready: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.stopping = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises the signal again at the end, and the process would not exit with 0.
        signals = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self.handle_exit) for number in signals]
        try:
            yield
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)


class _Protocol(H11Protocol):
    """uvicorn's connection, closed when a request does not come to its end in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # the answer, an earlier refusal, is out already
            self.transport.close()

    def _watch(self) -> None:
        coming = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if coming and self._timer is None:
            self._timer = self.loop.call_later(_REQUEST_SECONDS, self.transport.close)
        elif not coming and self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""Throw malformed requests at `distillkit serve`, then more than it can answer, and see that it lives, leaks nothing and recovers.

python benchmarks/serve.py runs/quickstart/bundle --requests 10000

Prints JSON. Half of the malformed requests are no HTTP, or broken HTTP; half are whole requests
with bodies that are no JSON, or not the JSON that was agreed. After them come a fifth of as many
that cost what a request may: texts of full length, bodies too long or without an end. Of all, a
tenth of the clients hang up at once.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

HEAD = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
WORDS = [
    "the",
    "film",
    "was",
    "good",
    "bad",
    "quietly",
    "moving",
    "dull",
    "plot",
    "été",
    "不错",
    "😀",
]
METHODS = (b"GET", b"CONNECT", b"TRACE", b"PRI", b"get", b"\xff")
TARGETS = (b"/%ff%00", b"*", b"//", b"/../../etc/passwd", b"/?\xff", b"http://a/")
LIMIT = 262_144
WANTED = "I would go again tomorrow."


@contextmanager
def running(bundle: str, *options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Serve a bundle, and see it end well."""
    command = [sys.executable, "-m", "distillkit", "serve", bundle, "--port", "0", *options]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stderr is not None
        found = re.search(r":(\d+)/predict", process.stderr.readline())
        assert found
        yield int(found[1]), process
        process.terminate()
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 0, process.returncode
        assert said == "", said
    finally:
        process.kill()


def whole(body: bytes, head: bytes = HEAD) -> bytes:
    """Return a request with a body."""
    return head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


def asking(*texts: str) -> bytes:
    """Return a right request."""
    return whole(json.dumps({"texts": texts}).encode())


async def exchange(port: int, data: bytes, seconds: float = 60) -> bytes:
    """Send bytes over a connection of their own, and return the beginning of what comes back; nothing if nothing does in so many seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), seconds)
        length = re.search(rb"content-length: (\d+)", head)
        return head + (await reader.readexactly(int(length[1])) if length else b"")
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        return b""
    finally:
        writer.close()


def status(said: bytes) -> str:
    """Return an answer's status; "none" where there was no answer."""
    return said[9:12].decode() or "none"


async def metric(port: int, name: str) -> float:
    """Return one of the server's own figures."""
    said = await exchange(port, b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    return float(re.search(rf"^{name} (\S+)$", said.decode(), re.MULTILINE)[1])


def spoilt(data: bytes, rng: random.Random) -> bytes:
    """Cut, repeat, insert or change bytes in a few places."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at, size = rng.randrange(len(out) + 1), rng.choice((1, 1, 4, 50))
        out[at : at + rng.choice((0, size))] = rng.choice(
            (b"", rng.randbytes(size), bytes(out[at : at + size]) * 3)
        )
    return bytes(out)


def value(rng: random.Random, depth: int = 0) -> object:
    """Return anything that JSON can say, and what only Python's reader takes for it."""
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind > 5:
        inner = [value(rng, depth + 1) for _ in range(rng.randrange(5))]
        return (
            inner
            if kind == 6
            else dict(zip(("texts", "text_pairs", "x", "\ud800"), inner, strict=False))
        )
    return (
        None,
        True,
        rng.randrange(10**30),
        rng.choice((float("nan"), float("inf"), 0.5)),
        "\ud83d",
        "\0 a",
    )[kind]


def body(rng: random.Random) -> bytes:
    """Return a body that is not what was agreed, nearly always."""
    right = json.dumps(
        {
            "texts": [
                " ".join(rng.choices(WORDS, k=rng.randrange(30)))
                for _ in range(rng.randrange(1, 9))
            ]
        }
    )
    return (
        lambda: spoilt(right.encode(), rng),
        lambda: json.dumps(value(rng)).encode(),
        lambda: json.dumps({"texts": value(rng)}).encode(),
        lambda: json.dumps({"texts": ["a"], "text_pairs": [value(rng)]}).encode(),
        lambda: rng.choice((b"[", b'{"a":', b'{"texts":[')) * rng.randrange(1, 20_000),
        lambda: b'{"texts": [' + b"9" * rng.randrange(1, 200_000) + b"]}",
        lambda: json.dumps({"texts": ["a"] * rng.randrange(257, 20_000)}).encode(),
        lambda: right.encode(rng.choice(("utf-16", "utf-32", "utf-7"))),
        lambda: right.encode() + rng.randbytes(rng.randrange(1, 3000)),
        lambda: b"{" + b",".join(b'"%d": 1' % i for i in range(rng.randrange(1, 20_000))) + b"}",
    )[rng.randrange(10)]()


def broken(rng: random.Random) -> bytes:
    """Return what is no HTTP, or HTTP gone wrong."""
    right = asking("good", "bad")
    return (
        lambda: rng.randbytes(rng.randrange(1, 2000)),
        lambda: spoilt(right, rng),
        lambda: right[: rng.randrange(1, len(right))],
        lambda: right.replace(
            b"Content-Length: ",
            rng.choice(
                (
                    b"Content-Length: -",
                    b"Content-Length: 9",
                    b"Content-Length: x",
                    b"Transfer-Encoding: ",
                )
            ),
        ),
        lambda: HEAD + b"X: " + b"a" * rng.randrange(10_000, 100_000) + b"\r\n\r\n",
        lambda: HEAD + b"".join(b"X%d: a\r\n" % i for i in range(rng.randrange(3000))) + b"\r\n",
        lambda: (
            HEAD
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + rng.choice((b"-1", b"ffffffffffffffff", b"g", b"5\r\nab"))
            + b"\r\n{}\r\n0\r\n\r\n"
        ),
        lambda: (
            b"%s %s HTTP/%s\r\nHost: a\r\n\r\n"
            % (rng.choice(METHODS), rng.choice(TARGETS), rng.choice((b"0.9", b"1.1", b"2.0")))
        ),
        lambda: HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: a\r\n\r\n",
        lambda: HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        lambda: right.replace(
            b"application/json", rng.randbytes(9).replace(b"\r", b"").replace(b"\n", b"")
        ),
        lambda: b"\x16\x03\x01" + rng.randbytes(300),  # TLS
    )[rng.randrange(12)]()


def heavy(rng: random.Random) -> bytes:
    """Return requests that are right, or nearly, and cost as much as a request may."""
    return (
        lambda: asking("good")[: -rng.randrange(1, 9)],  # less than its length says
        lambda: (
            HEAD
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + (b"4000\r\n" + b" " * 16384 + b"\r\n") * 20
        ),  # without an end
        lambda: HEAD + b"Content-Length: %d\r\n\r\n" % rng.choice((LIMIT + 1, 10**12, 10**19)),
        lambda: asking("a " * rng.randrange(1, LIMIT // 2 - 20)),
        lambda: asking("\u4e0d" * rng.randrange(1, LIMIT // 6 - 20)),
        lambda: asking(*["good film " * rng.randrange(1, 90)] * 256),
        lambda: asking("good", "bad") * 20,  # of which the first is the last of the connection
        lambda: whole(b'{"texts": ["\xf0\x9f\x98\x80' + b"a" * rng.randrange(LIMIT - 50) + b'"]}'),
    )[rng.randrange(8)]()


# How requests are made, and how many seconds an answer is waited for: what has no end is closed by
# the server, but only after ten.
KINDS: dict[str, tuple[Callable[[random.Random], bytes], float]] = {
    "broken HTTP": (broken, 0.5),
    "other bodies": (lambda rng: whole(body(rng)), 60),
    "heavy": (heavy, 5),
}


async def fuzz(
    port: int, kinds: Sequence[str], requests: int, seed: int, at_once: int = 64
) -> dict[str, object]:
    """Send requests of some kinds by turns, many at once, and look at the server's memory and at a right answer after each tenth part of them."""
    rng = random.Random(seed)
    found: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    wanted = json.loads((await exchange(port, asking(WANTED))).partition(b"\r\n\r\n")[2])
    megabytes = [await resident(port)]

    async def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            kind = kinds[number % len(kinds)]
            make, seconds = KINDS[kind]
            hangs_up = rng.random() < 0.1
            said = await exchange(port, make(rng), 0.002 if hangs_up else seconds)
            found[kind]["hung up" if hangs_up else status(said)] += 1

    for part in range(10):
        numbers = iter(range(requests * part // 10, requests * (part + 1) // 10))
        await asyncio.gather(*(work(numbers) for _ in range(at_once)))
        await asyncio.sleep(11)  # until those that never come to an end are sent away
        right = json.loads((await exchange(port, asking(WANTED))).partition(b"\r\n\r\n")[2])
        assert right == wanted, right
        megabytes.append(await resident(port))
    return {
        "requests": requests,
        "answers": {kind: dict(counts.most_common()) for kind, counts in found.items()},
        "megabytes_before_and_after_each_tenth": megabytes,
        "open_files_at_the_end": await metric(port, "process_open_fds"),
        "waiting_rows_at_the_end": await metric(port, "distillkit_waiting_rows"),
    }


async def resident(port: int) -> float:
    """Return the server's memory in MB."""
    return round(await metric(port, "process_resident_memory_bytes") / 1e6, 1)


async def load(
    port: int, clients: int, rows: int, seconds: float, pause: float = 0.0
) -> dict[str, object]:
    """Let clients ask one request after the other over connections that are kept."""
    text = " ".join(WORDS[:9])
    data = json.dumps({"texts": [text] * rows}).encode()
    data = HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data
    times: dict[str, list[float]] = {}
    before = await metric(port, "process_cpu_seconds_total")
    end = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            began = time.perf_counter()
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
            times.setdefault(status(head), []).append(time.perf_counter() - began)
            await asyncio.sleep(pause if head[9:12] == b"200" else 0.01)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    answered = sorted(times.get("200", [0.0]))
    spent = await metric(port, "process_cpu_seconds_total") - before
    return {
        "clients": clients,
        "rows_a_request": rows,
        "answers": {key: len(taken) for key, taken in sorted(times.items())},
        "rows_per_second": round(len(times.get("200", ())) * rows / seconds),
        "p50_ms": round(answered[len(answered) // 2] * 1000, 1),
        "p99_ms": round(answered[int(len(answered) * 0.99)] * 1000, 1),
        "server_cpu_ms_a_request": round(spent * 1000 / sum(map(len, times.values())), 2),
    }


async def overload(port: int, seconds: float) -> dict[str, object]:
    """Ask for what it can answer, for far more than may wait, and again for what it can."""
    phases = {
        "before": (4, 1, seconds / 2),
        "far too much": (300, 32, seconds),
        "after": (4, 1, seconds / 2),
    }
    found: dict[str, object] = {name: await load(port, *phase) for name, phase in phases.items()}
    found["megabytes_at_the_end"] = await resident(port)
    return found


def main() -> None:
    """Run both, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with running(given.bundle) as (port, _):
        fuzzed = asyncio.run(
            fuzz(port, ("broken HTTP", "other bodies"), given.requests, given.seed)
        )
        weighed = asyncio.run(fuzz(port, ("heavy",), given.requests // 5, given.seed))
    with running(given.bundle) as (port, _):
        loaded = asyncio.run(overload(port, given.seconds))
    print(
        json.dumps(
            {
                "cores": len(os.sched_getaffinity(0)),
                "malformed": fuzzed,
                "heavy": weighed,
                "overload": loaded,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()

"""Time, memory and start of forms, in blocks that take turns: a drifting machine favours none."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from tqdm import tqdm

from distillkit.bench.forms import Answer, Form
from distillkit.errors import InputError

Row = tuple[str, str | None]
_BLOCKS = 5  # turns that each form has at each batch size
_STARTS = 3
# Uncounted calls when a form takes its turn: so many, or those of so many seconds.
_WARM, _WARM_SECONDS = 20, 0.05


def times(
    answers: Mapping[str, Answer], rows: Sequence[Row], batch: int, *, progress: str = ""
) -> dict[str, np.ndarray]:
    """Time each form on the same calls.

    Args:
        answers: What to time, by name.
        rows: Texts or pairs, taken in their order, again from the first where they end.
        batch: Rows a call.
        progress: Name of the progress bar.

    Returns:
        Seconds of each call, (calls,) float64, by name: as many calls as the rows fill, 5 at least.
        In each of five blocks the forms take turns in a random order, each with its calls in a row,
        as a server would have its caches to itself.
    """
    calls = max(_BLOCKS, -(-len(rows) // batch))
    taken: dict[str, list[float]] = {name: [] for name in answers}
    turns = np.random.default_rng(0)
    parts = [_call(rows, batch, number) for number in range(calls)]
    hidden = None if progress else True
    with tqdm(total=_BLOCKS * len(answers), desc=progress, unit="block", disable=hidden) as bar:
        for block in np.array_split(np.arange(calls), _BLOCKS):
            for name in turns.permutation(list(answers)):
                _warm(answers[name], [parts[(block[0] - i) % calls] for i in range(_WARM, 0, -1)])
                for number in block:
                    start = time.perf_counter()
                    answers[name](*parts[number])
                    taken[name].append(time.perf_counter() - start)
                bar.update()
    return {name: np.array(found) for name, found in taken.items()}


def _warm(answer: Answer, parts: Sequence[tuple[list[str], list[str] | None]]) -> None:
    """Warm the caches, which another form has filled, with the calls before those that count."""
    until = time.perf_counter() + _WARM_SECONDS
    for part in parts:
        answer(*part)
        if time.perf_counter() > until:
            break


def _call(rows: Sequence[Row], batch: int, number: int) -> tuple[list[str], list[str] | None]:
    part = [rows[(number * batch + i) % len(rows)] for i in range(batch)]
    pairs = None if part[0][1] is None else [pair or "" for _, pair in part]
    return [text for text, _ in part], pairs


def start(form: Form, row: Row) -> dict[str, float]:
    """Start a process for a form that answers one row, a few times over.

    Returns:
        Medians: `start_seconds`, until the first answer, and `peak_megabytes` of resident memory.

    Raises:
        InputError: The process does not answer.
    """
    seconds, peaks = [], []
    for _ in range(_STARTS):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "distillkit.bench.cold", form.kind, form.path],
            input=json.dumps(row),
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise InputError(
                f"{form.name}: a process of its own ended with {done.returncode} before it had answered: {why}"
            )
        seconds.append(time.perf_counter() - began)
        peaks.append(json.loads(done.stdout.splitlines()[-1])["peak_megabytes"])
    return {"start_seconds": median(seconds), "peak_megabytes": median(peaks)}


def speed(seconds: np.ndarray, batch: int) -> dict[str, float]:
    """Return `p50`, `p95`, `p99` milliseconds a call, and `rows_per_second` over all calls."""
    p50, p95, p99 = np.quantile(seconds, [0.5, 0.95, 0.99]) * 1000
    return {
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "rows_per_second": batch * len(seconds) / float(seconds.sum()),
    }

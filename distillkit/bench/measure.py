"""Memory and start of forms, and what a call's seconds come to."""

import json
import os
import subprocess
import sys
import time
from statistics import median

import numpy as np

from distillkit.bench.forms import Form
from distillkit.errors import InputError
from distillkit.measure.cost import Row

_STARTS = 3


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

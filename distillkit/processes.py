"""This process: its rank among those started together, its cores and memory, and its stderr."""

import ctypes
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

# Of glibc's malloc.h, and a size in bytes that no tensor here reaches.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGE = -1, -3, 1 << 30


def rank() -> int:
    """Return this process's number among those of torchrun or horovodrun; 0 where it is alone."""
    return int(os.environ.get("RANK", os.environ.get("HOROVOD_RANK", "0")))


def world() -> int:
    """Return how many processes were started together."""
    return int(os.environ.get("WORLD_SIZE", os.environ.get("HOROVOD_SIZE", "1")))


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def log(message: str) -> None:
    """Say a line on stderr, above any progress bar there; stdout is for results."""
    bars = sys.modules.get("tqdm")
    if bars is not None and sys.stderr.isatty():
        bars.tqdm.write(message, file=sys.stderr)
    else:
        sys.stderr.write(message + "\n")


def progress_bar(rows: Iterable[Any] | None = None, *, desc: str, **options: Any) -> Any:
    """Return tqdm's bar over rows, or one to update: shown on a terminal and in a notebook.

    Args:
        rows: What is iterated over; None: call `update`.
        desc: Its name; empty: no bar.
        **options: tqdm's.
    """
    from tqdm.auto import tqdm

    shown = False if "ipykernel" in sys.modules else None  # None: if stderr is a terminal
    return tqdm(rows, desc=desc, **{"disable": shown if desc else True} | options)


def terminal_width() -> int | None:
    """Return how many columns the terminal of stderr has; None: it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stderr.isatty() else None


@contextmanager
def quiet_transformers(folder: str = "") -> Iterator[None]:
    """Hide the bars and warnings with which transformers reads and writes checkpoints.

    Args:
        folder: What is read; a hub's name keeps its bars, as a download takes long.
    """
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled() and (not folder or Path(folder).is_dir())
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    if shown:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def cores() -> int:
    """Return how many CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def keep_memory() -> None:
    """Let this process keep the memory it frees, until `return_memory`; only glibc does.

    By default glibc gets large blocks from the system and gives them back at once. A training step
    frees hundreds of activations and asks for them again, and each new page costs a fault
    (benchmarks/training.md has what that takes).
    """
    with suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE)


def return_memory() -> None:
    """Give the system what freed memory Arrow and the C library keep; of the latter only glibc does."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def meet(backend: str, timeout: timedelta = timedelta(minutes=30)) -> None:
    """Start torch.distributed's process group, also after torchrun has restarted its processes.

    All starts share one store, and torch reads addresses there that dead processes of an earlier
    start left (pytorch issue 135712). So process 0 draws a token for this start, and the group
    writes below it.

    Args:
        backend: gloo or nccl.
        timeout: How long one process waits for another.
    """
    import torch.distributed as dist
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=timeout)
        return
    store = TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timeout
    )
    own = uuid.uuid4().hex
    token = _give_token(store, own) if rank() == 0 else _take_token(store, own)
    below = PrefixStore(token, store)
    dist.init_process_group(backend, store=below, rank=rank(), world_size=world(), timeout=timeout)


def _give_token(store: Any, token: str) -> str:
    store.set("distillkit/token", token)
    for other in range(1, world()):
        # Process `other` has read this token, which no earlier process could know.
        store.set(f"{token}/go/{other}", store.get(f"{token}/here/{other}"))
    return token


def _take_token(store: Any, own: str) -> str:
    while True:
        token = store.get("distillkit/token").decode()
        store.set(f"{token}/here/{rank()}", own)
        for _ in range(20):
            # A token of an earlier start gets no answer with this process's own number.
            if (
                store.check([f"{token}/go/{rank()}"])
                and store.get(f"{token}/go/{rank()}").decode() == own
            ):
                return token
            time.sleep(0.05)

"""Call a function on many things, in local processes, torchrun's, or on a Ray cluster."""

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, partial
from threading import Thread
from typing import Any, TypeVar

from joblib import Parallel, delayed

from distillkit.errors import InputError, Unfinished
from distillkit.processes import cores, meet, rank, world
from distillkit.recipe import Engine

T = TypeVar("T")
R = TypeVar("R")
_DIED = "a worker process died, perhaps for want of memory; run the same command again, with fewer workers if that does not help"


def each(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    engine: Engine = "local",
    workers: int = 1,
    holds_model: bool = False,
) -> Iterator[R]:
    """Yield the function's result for each item, in order.

    Args:
        function: At module level, or a `functools.partial` of such a one; it and the items travel
            between processes.
        items: What it is called with. On Ray each is looked up when a worker is free for it.
        engine: `local`: processes of this machine, or those that torchrun has started, whose
            process 0 this is (`leading`); `ray`: the cluster that RAY_ADDRESS or `ray start`
            names, or one started here.
        workers: Processes; 1: this one. On Ray: actors, where `holds_model`; 0: one per GPU;
            without GPUs, one per CPU except one.
        holds_model: The function keeps something dear between calls: on Ray it runs in actors,
            which have a GPU each if there are any.

    Raises:
        InputError: The engine is not installed, a process died, or the function raised it.
    """
    if engine == "ray":
        yield from _ray(function, items, workers, holds_model)
    elif world() > 1:
        yield from _shared_out(function, items)
    elif workers == 1 or len(items) < 2:
        yield from map(function, items)
    else:
        # joblib replaces a worker that has grown by 300 MB, and spaCy's tagger alone takes 286;
        # nothing is lost.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        parallel = Parallel(n_jobs=workers, return_as="generator", pre_dispatch="2*n_jobs")
        try:
            yield from parallel(delayed(_in_worker)(function, item, os.getpid()) for item in items)
        except BrokenProcessPool:
            raise Unfinished(_DIED) from None


def processes(wanted: int, items: int) -> int:
    """Return `wanted`; if it is 0, one process per core, or fewer, so that each has four items."""
    return wanted or max(1, min(cores(), items // 4))


@contextmanager
def leading() -> Iterator[bool]:
    """Let process 0 of torchrun run the block (True), in which `each` shares out its items.

    For the others the block is over at once.

    Where a process is alone it leads itself.
    """
    if world() == 1:
        yield True
        return
    import torch.distributed as dist

    # Between two things to share out process 0 may be busy for long.
    meet("gloo", timeout=timedelta(days=7))
    try:
        if rank():
            _follow_rank_0()
            yield False
        else:
            try:
                yield True
            finally:
                dist.broadcast_object_list([None], 0)
    except InputError:
        _part()
        raise
    _part()  # after a bug nobody waits: the others see that a process has gone


def _part() -> None:
    """End the group together: left standing, it aborts its process now and then when that ends."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()


def _follow_rank_0() -> None:
    import torch.distributed as dist

    while True:
        job: list[Any] = [None]
        dist.broadcast_object_list(job, 0)
        if job[0] is None:
            return
        function, items = job[0]
        dist.gather_object(_answers(function, items[rank() :: world()]), None, 0)


def _shared_out(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    import torch.distributed as dist

    dist.broadcast_object_list([(function, items)], 0)
    answers: list[Any] = [None] * world()
    dist.gather_object(_answers(function, items[:: world()]), answers, 0)
    for number in range(len(items)):
        said, result = answers[number % world()][number // world()]
        if not said:
            raise result
        yield result


def _answers(function: Callable[[T], R], items: Sequence[T]) -> list[tuple[bool, Any]]:
    return [_answer(function, item) for item in items]


def _answer(function: Callable[[T], R], item: T) -> tuple[bool, Any]:
    """Call the function; an error travels as a value: no process waits, and Ray does not wrap it."""
    try:
        return True, function(item)
    except InputError as error:
        return False, error if isinstance(error, Unfinished) else InputError(str(error))


def _in_worker(function: Callable[[T], R], item: T, parent: int) -> R:
    _follow(parent)
    return function(item)


@cache
def _follow(parent: int) -> None:
    """End this process when its parent has gone, lest it write beside the run that follows."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _ray(
    function: Callable[[T], R], items: Sequence[T], workers: int, holds_model: bool
) -> Iterator[R]:
    if not items:
        return
    try:
        import ray
    except ImportError:
        raise InputError("engine ray is not installed: pip install 'distillkit[ray]'") from None
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if not ray.is_initialized():
        cores = max(processes(0, 10**6), workers)
        try:
            ray.init(num_cpus=cores, include_dashboard=False, **quiet)
        except ValueError:  # RAY_ADDRESS or `ray start` names a cluster, which has its own CPUs
            ray.init(**quiet)
    gpus, cpus = (int(ray.cluster_resources().get(kind, 0)) for kind in ("GPU", "CPU"))
    if holds_model:
        most = min(gpus, cpus) if gpus else cpus
        size = min(workers or (most if gpus else max(1, cpus - 1)), len(items))
        if size > most:  # Ray would wait for ever
            raise InputError(
                f"workers: {size} asked of a Ray cluster of {cpus} CPUs and {gpus} GPUs; expected 1 to {most}"
            )
        of_actor = ray.remote(
            num_cpus=1, num_gpus=1 if gpus else 0, max_restarts=-1, max_task_retries=3
        )
        # The function itself: Ray warns of a restart that finds a reference's object gone.
        actors = [of_actor(_Actor).remote(function) for _ in range(size)]
        calls = 2 * [actor.call.remote for actor in actors]  # one is worked on, one waits
    else:
        task = ray.remote(num_cpus=1, max_retries=3)(_answer)
        calls = [partial(task.remote, ray.put(function))] * max(64, 4 * cpus)
    try:
        for said, result in _in_flight(ray, calls, items):
            if not said:
                raise result
            yield result
    except _deaths(ray):
        raise Unfinished(_DIED) from None


def _in_flight(
    ray: Any, calls: Sequence[Callable[[Any], Any]], items: Sequence[Any]
) -> Iterator[Any]:
    """Yield what remote calls return, in the order of the items, as many at a time as there are calls.

    An item is looked up only when a call is free for it, and its memory is free when that is done.
    """
    free, ahead = deque(calls), deque[Any]()
    running: dict[Any, Callable[[Any], Any]] = {}
    for number in range(len(items)):
        if not free:
            for reference in ray.wait(list(running))[0]:
                free.append(running.pop(reference))
        call = free.popleft()
        ahead.append(call(items[number]))
        running[ahead[-1]] = call
        while ahead[0] not in running:
            yield ray.get(ahead.popleft())
    while ahead:
        yield ray.get(ahead.popleft())


def _deaths(ray: Any) -> tuple[type[Exception], ...]:
    errors = ray.exceptions
    return errors.WorkerCrashedError, errors.RayActorError, errors.OutOfMemoryError


class _Actor:
    """A process of Ray that keeps what the function keeps between calls."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def call(self, item: Any) -> tuple[bool, Any]:
        return _answer(self._function, item)

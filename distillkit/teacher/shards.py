"""What there is to label, cut into shards, and which process labels which."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from distillkit.data.files import HeldError, hold
from distillkit.data.keys import KeyIndex
from distillkit.data.logits import shard_name, shard_path

WAIT_SECONDS = 0.5


@dataclass(frozen=True, eq=False)
class Shard:
    """Rows written together: the shard's name and their numbers in the table, rising, int64."""

    name: str
    rows: np.ndarray


def plan_shards(keys: pa.Array, stored: pa.Array, shard_rows: int) -> list[Shard]:
    """Cut the distinct rows that are not stored yet into shards, in the order of the table.

    Every process that plans the same table gets the same shards. Only whole shards are missing, all
    full but the last, so the rest is cut in the same places.

    Args:
        keys: Each row's content key.
        stored: Keys that there are logits for.
        shard_rows: Rows a shard; the last may have fewer.
    """
    index = KeyIndex(keys)
    new, slots = np.ones(len(index), bool), index.slots(stored)
    new[slots[slots >= 0]] = False
    rows = np.sort(index.first[new])
    parts = (rows[start : start + shard_rows] for start in range(0, len(rows), shard_rows))
    return [Shard(shard_name(keys.take(pa.array(part))), part) for part in parts]


class Turns:
    """Hands out the shards of a plan, each to one process at a time, until all are written.

    A shard is taken by a lock on a file beside it. The system lets go of it when a process ends,
    however it ends, and another process takes the shard over.

    Args:
        folder: The teacher's folder in the store; made if absent.
        shards: The plan.
        rank: This process among `world`; each begins at its own part of the plan.
        world: Processes that were started together.
        on_other: Called with the rows of a shard that another process has written.
    """

    def __init__(
        self,
        folder: Path,
        shards: Sequence[Shard],
        rank: int = 0,
        world: int = 1,
        on_other: Callable[[int], object] | None = None,
    ) -> None:
        start = len(shards) * rank // world
        self._folder = folder
        self._left = {shard.name: shard for shard in [*shards[start:], *shards[:start]]}
        self._held: dict[str, AbstractContextManager[None]] = {}
        self._on_other = on_other

    def __enter__(self) -> "Turns":
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._held):
            self._release(name)
        # What killed processes have left: a lock that can be had is nobody's.
        for lock in self._folder.glob(".shard-*.parquet.lock"):
            name = lock.name.removeprefix(".shard-").removesuffix(".parquet.lock")
            if self._take(name):
                self._release(name)

    def take(self, *, wait: bool) -> Shard | None:
        """Return a shard for this process to write and hand to `done`; no other process has it.

        Args:
            wait: Where others hold all that is left, wait until they have written it, or have died.

        Returns:
            None: every shard is written, or, without `wait`, none is free now.
        """
        while True:
            for name, shard in list(self._left.items()):
                free = not self._written(name) and self._take(name)
                # Looked at again: the lock may be free because its holder has just written the
                # shard.
                if self._written(name):
                    self._release(name)
                    del self._left[name]
                    if self._on_other is not None:
                        self._on_other(len(shard.rows))
                elif free:
                    del self._left[name]
                    return shard
            if not (wait and self._left):
                return None
            time.sleep(WAIT_SECONDS)

    def done(self, shard: Shard) -> None:
        """Let go of a shard that is written."""
        self._release(shard.name)

    def _written(self, name: str) -> bool:
        return shard_path(self._folder, name).is_file()

    def _take(self, name: str) -> bool:
        held = hold(shard_path(self._folder, name))
        try:
            held.__enter__()
        except HeldError:
            return False
        self._held[name] = held
        return True

    def _release(self, name: str) -> None:
        if name in self._held:
            self._held.pop(name).__exit__(None, None, None)

"""What there is to label, cut into shards, and which process labels which."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from distillkit.data.files import HeldError, hold
from distillkit.data.keys import KeyIndex, in_parts
from distillkit.data.logits import shard_name, shard_path
from distillkit.data.scratch import TEMPORARY, Scratch

WAIT_SECONDS = 0.5
_BLOCK = 2**17  # rows or keys looked at together


@dataclass(frozen=True, eq=False)
class Shard:
    """Rows written together.

    Attributes:
        name: The shard's.
        new: Which rows of the table are to be written, (N,) bool; shared by all shards.
        start: Its first row.
        stop: The row after its last.
    """

    name: str
    new: np.ndarray
    start: int
    stop: int

    @property
    def rows(self) -> np.ndarray:
        """Their numbers in the table, rising, int64."""
        return self.start + np.flatnonzero(self.new[self.start : self.stop])


def plan_shards(
    keys: pa.Array, stored: pa.Array, shard_rows: int, scratch: Scratch = TEMPORARY
) -> list[Shard]:
    """Cut the distinct rows that are not stored yet into shards, in the order of the table.

    Every process that plans the same table gets the same shards. Only whole shards are missing, all
    full but the last, so the rest is cut in the same places.

    Args:
        keys: Each row's content key.
        stored: Keys that there are logits for.
        shard_rows: Rows a shard; the last may have fewer.
        scratch: Where the plan is kept.
    """
    new = scratch.array((len(keys),), bool)
    blocks = (stored.slice(start, _BLOCK) for start in range(0, len(stored), _BLOCK))
    others = ((block, np.zeros(len(block), bool)) for block in blocks)
    for rows, mine, theirs in in_parts(keys, others, scratch):
        index = KeyIndex(mine)
        wanted = np.ones(len(index), bool)
        for block, _ in theirs:
            slots = index.slots(block)
            wanted[slots[slots >= 0]] = False
        new[rows[index.first[wanted]]] = True
    return [
        Shard(shard_name(keys.take(pa.array(rows))), new, int(rows[0]), int(rows[-1]) + 1)
        for rows in _cut(new, shard_rows)
    ]


def _cut(new: np.ndarray, shard_rows: int) -> Iterator[np.ndarray]:
    """Yield the numbers of so many new rows at a time."""
    held = np.empty(0, np.int64)
    for start in range(0, len(new), _BLOCK):
        held = np.concatenate([held, start + np.flatnonzero(new[start : start + _BLOCK])])
        whole = len(held) // shard_rows * shard_rows
        yield from (held[i : i + shard_rows] for i in range(0, whole, shard_rows))
        held = held[whole:]
    if len(held):
        yield held


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

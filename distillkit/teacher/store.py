"""Fill a teacher's folder of a logit store, whoever gives the logits."""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit import processes
from distillkit.data.files import disk_errors, hold, whole_file
from distillkit.data.keys import count_distinct
from distillkit.data.labels import HEADS
from distillkit.data.logits import (
    FORMAT,
    MANIFEST,
    keys_of,
    read_manifest,
    rounding_error,
    stored_keys,
    write_shard,
)
from distillkit.data.scratch import Scratch
from distillkit.data.tables import take_rows
from distillkit.errors import InputError
from distillkit.processes import progress_bar
from distillkit.recipe import SCORES, LabelConfig, Task
from distillkit.teacher.logits_file import LOGITS
from distillkit.teacher.shards import Shard, Turns, plan_shards

# Writes the shards of a plan into a folder, and tells how many rows are done.
Write = Callable[[Path, pa.Table, list[Shard], Callable[[int], object]], None]


def fill_store(
    table: pa.Table,
    folder: Path,
    manifest: dict[str, Any],
    config: LabelConfig,
    write: Write,
    score: float | None,
) -> dict[str, Any]:
    """Have every missing shard written.

    Args:
        table: Canonical table.
        folder: The teacher's folder in the store.
        manifest: What the logits depend on.
        config: Shards and storage.
        write: Writes the shards.
        score: Of the labelled rows; None: there are none.

    Returns:
        The summary that `label_table` describes.

    Raises:
        InputError: The folder has another manifest.
    """
    names = [name for name in ("text", "text_pair", LOGITS) if name in table.column_names]
    table = table.select(names)
    scratch = Scratch(folder.parent)
    keys = keys_of(table, scratch)
    with disk_errors(folder):
        keep_manifest(folder, manifest)
        plan = plan_shards(keys, stored_keys(folder, scratch), config.shard_rows, scratch)
        todo = sum(len(shard.rows) for shard in plan)
        name = "" if processes.rank() else "label"
        with progress_bar(total=todo, desc=name, unit="row", unit_scale=True) as bar:
            write(folder, table, plan, bar.update)
    summary = {
        "rows": len(keys),
        "distinct": count_distinct(keys, scratch),
        "labelled_now": todo,
        "labels": manifest["labels"],
        "rounding_error": rounding_error(folder),
    }
    task = next(task for task, head in HEADS.items() if head == manifest["head"])
    return summary if score is None else summary | {f"{SCORES[task]}_on_labelled": score}


def write_here(
    prepare: Callable[[pa.Table], Any],
    answer: Callable[[Any, Callable[[int], object]], np.ndarray],
    shard_of: Callable[[pa.Table, np.ndarray], pa.Table],
    folder: Path,
    table: pa.Table,
    plan: list[Shard],
    on_rows: Callable[[int], object],
) -> None:
    """While a shard is answered, prepare the next one and write the last one.

    Args:
        prepare: Makes of a table's rows what `answer` takes; runs in another thread.
        answer: Returns logits, (N, C) float32, and calls its second argument with rows done.
        shard_of: Puts rows and logits together as the store has them.
        folder: The teacher's folder in the store.
        table: Canonical table.
        plan: Shards to write.
        on_rows: Called with the number of rows that are done.
    """
    with (
        Turns(folder, plan, processes.rank(), processes.world(), on_rows) as turns,
        # one thread each: a tokenizer is not for two at once
        ThreadPoolExecutor(1) as preparer,
        ThreadPoolExecutor(1) as writer,
    ):

        def ready(shard: Shard) -> tuple[pa.Table, Any]:
            part = take_rows(table, shard.rows)
            return part, prepare(part)

        def begin(*, wait: bool) -> tuple[Shard, Future[Any]] | None:
            shard = turns.take(wait=wait)
            return None if shard is None else (shard, preparer.submit(ready, shard))

        def save(part: pa.Table, logits: np.ndarray) -> None:
            write_shard(folder, shard_of(part, logits))

        def finish() -> None:
            while writing:
                shard, write = writing.pop()
                write.result()
                turns.done(shard)

        writing: list[tuple[Shard, Future[Any]]] = []
        ahead = begin(wait=False)
        while True:
            if ahead is None:
                finish()  # others may wait for what this process holds
                ahead = begin(wait=True)
            if ahead is None:
                break
            shard, rows = ahead
            ahead = begin(wait=False)
            part, prepared = rows.result()
            logits = answer(prepared, on_rows)
            finish()
            writing.append((shard, writer.submit(save, part, logits)))


def manifest_of(labels: list[str], task: Task, storage: str, **own: Any) -> dict[str, Any]:
    """Say what logits depend on: those of another teacher are never mixed in."""
    every = {
        "format": FORMAT,
        "weights": None,
        "tokenizer": None,
        "labels": labels,
        "max_tokens": None,
        "precision": None,
        "head": HEADS[task],
        "mask": "",
        "storage": storage,
    }
    return every | own


def check_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse a folder that was made with another teacher, or with other settings.

    Raises:
        InputError: It was; the message names the first field that differs.
    """
    if not (folder / MANIFEST).is_file():
        return
    old = read_manifest(folder)
    for key, value in manifest.items():
        if old.get(key) != value:
            raise InputError(
                f"{folder / MANIFEST}: made with {key} {old.get(key)!r}, now {value!r}; choose another --name, or delete this folder to label anew"
            )


def keep_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a teacher's manifest unless it is there; refuse as `check_manifest` does."""
    # Written only now: a teacher that is refused must not keep its successor out of the store.
    with hold(folder / MANIFEST, wait=True):
        check_manifest(folder, manifest)  # again: another process may have been faster
        if not (folder / MANIFEST).is_file():
            text = json.dumps(manifest, ensure_ascii=False, indent=1) + "\n"
            with whole_file(folder / MANIFEST) as partial:
                partial.write_text(text, encoding="utf-8")

"""Give text a teacher's logits: processes fill one store, shard by shard."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from distillkit.data.batches import Encoded, encode, word_pieces
from distillkit.data.checked import fingerprint
from distillkit.data.content import texts_of
from distillkit.data.gold import labels_in
from distillkit.data.labels import labels_of, task_of_labels, task_of_model
from distillkit.data.logits import (
    MANIFEST,
    read_manifest,
    shard_table,
    teacher_folder,
    write_shard,
)
from distillkit.data.tables import mask_of, take_rows
from distillkit.data.workers import each
from distillkit.recipe import Engine, LabelConfig, Task
from distillkit.teacher.chance import has_labels, refuse_chance
from distillkit.teacher.checkpoint import load_classifier, match_labels, max_tokens_of, resolve
from distillkit.teacher.logits_file import LogitsFile, logits_in
from distillkit.teacher.shards import Shard
from distillkit.teacher.store import Write, check_manifest, fill_store, manifest_of, write_here
from distillkit.training.inference import predict_logits
from distillkit.training.precision import pick_device
from distillkit.training.precision import resolve as resolve_precision

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_WEIGHTS = ("config.json", "*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json")
_TOKENIZER = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "*.model",
)


class Labeller:
    """A fine-tuned teacher, loaded once, that turns tables into shards.

    It is built from plain values, so any process can have its own.

    Args:
        teacher: Checkpoint of a fine-tuned classifier, as for `checkpoint.resolve`.
        config: Batches, precision, storage.
        mask: The transfer set's mask word, replaced by the teacher's own mask token; empty: nothing
            is replaced.
        labels: What the logits mean, in their order; empty: what the checkpoint says.

    Raises:
        InputError: The teacher is no classifier.
    """

    def __init__(
        self, teacher: str, config: LabelConfig, mask: str = "", labels: Sequence[str] = ()
    ) -> None:
        device = pick_device()
        self.teacher, self.config, self.mask = teacher, config, mask
        self.precision = resolve_precision(config.precision, device)
        self.model, self.tokenizer = load_classifier(teacher)
        # Cast once: autocast would cast the same weights in every pass, a tenth of the time.
        self.model.to(device, _DTYPES[self.precision])
        self.task = task_of_model(self.model.config)
        self.labels = list(labels) or labels_of(self.model)
        self.max_tokens = max_tokens_of(self.model, self.tokenizer)
        self._pieces = word_pieces(self.tokenizer, self.max_tokens)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Make the shard of a canonical table; it depends on nothing but these rows."""
        return self.shard(table, self.logits(self.encode(table)))

    def encode(self, table: pa.Table) -> Encoded:
        """Tokenise a canonical table; may run in another thread than `logits`."""
        return encode(
            self.tokenizer, *texts_of(table), self.max_tokens, mask=self.mask, pieces=self._pieces
        )

    def logits(self, rows: Encoded, on_rows: Callable[[int], object] | None = None) -> np.ndarray:
        """Return logits, (N, C) float32; `on_rows` gets the number of rows of each forward pass."""
        budget = self.config.max_batch_tokens
        return predict_logits(
            self.model, rows, max_batch_tokens=budget, even=True, on_rows=on_rows
        ).numpy()

    def shard(self, table: pa.Table, logits: np.ndarray) -> pa.Table:
        """Put a table and its logits together as the store has them."""
        return shard_table(table, logits, self.config.kept_as(self.task), self.teacher, self.labels)

    def manifest(self) -> dict[str, Any]:
        """Say what the logits depend on."""
        path = Path(resolve(self.teacher))
        weights, tokenizer = (
            _print(path, kinds) if path.is_dir() else str(path) for kinds in (_WEIGHTS, _TOKENIZER)
        )
        return manifest_of(
            self.labels,
            self.task,
            self.config.kept_as(self.task),
            weights=weights,
            tokenizer=tokenizer,
            max_tokens=self.max_tokens,
            precision=self.precision,
            mask=self.mask,
        )


def label_table(
    table: pa.Table,
    store: Path,
    teacher: str,
    config: LabelConfig,
    mask: str = "",
    name: str = "teacher",
    *,
    engine: Engine = "local",
    workers: int = 0,
) -> dict[str, Any]:
    """Give every row of a table the teacher's logits, in a store that grows shard by shard.

    Content that the store has is not labelled again: an interrupted run resumes, and a larger table
    adds only what is new. Processes that label the same table at the same time share the work; the
    files are the same whoever writes them.

    Args:
        table: Canonical table, its labels of the teacher's kind of task; labelled rows are used to
            check that the teacher knows the task.
        store: Folder of the store; made if absent.
        teacher: As for `Labeller`.
        config: Batches, precision, shards.
        mask: As for `Labeller`; empty: that of the store, which may have one from a transfer set.
        name: The teacher's folder in the store.
        engine: `local`: this process, and whichever others do the same; `ray`: actors that hold the
            teacher, on a file system with the store.
        workers: On Ray, how many; 0: one per GPU; without GPUs, one per CPU except one.

    Returns:
        `rows`, `distinct`, `labelled_now`, `labels`, `rounding_error` (the largest in the store)
        and, where there were labelled rows, `accuracy_on_labelled` (`micro_f1_on_labelled`,
        `pearson_on_labelled`).

    Raises:
        InputError: The teacher is no classifier, has other labels, is at chance, or is not the one
            that the folder was made with.
    """
    folder = teacher_folder(store, name)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    mask = mask or _mask_in(folder)
    labeller = Labeller(teacher, config, mask)
    if has_labels(table):
        labeller.labels = match_labels(labeller.labels, labels_in(table), teacher)
    manifest = labeller.manifest()
    check_manifest(folder, manifest)

    def logits(rows: pa.Table) -> np.ndarray:
        return labeller.logits(labeller.encode(rows))

    order = "id2label in its config.json"
    score = refuse_chance(table, logits, labeller.labels, labeller.task, teacher, order=order)
    write: Write = partial(write_here, labeller.encode, labeller.logits, labeller.shard)
    if engine == "ray":
        path = Path(resolve(teacher))  # actors may stand elsewhere
        model = str(path.absolute()) if path.is_dir() else teacher
        # What `auto` means is settled here: on an actor's machine it may mean something else than
        # the manifest says.
        own = replace(config, precision=labeller.precision)
        step = partial(_label_shard, model, own, mask, tuple(labeller.labels), folder.absolute())
        write = partial(_write_on_ray, step, workers)
    return fill_store(table, folder, manifest, config, write, score)


def label_from_file(
    table: pa.Table,
    store: Path,
    file: LogitsFile,
    config: LabelConfig,
    labels: Sequence[str] = (),
    name: str = "teacher",
) -> dict[str, Any]:
    """Give every row of a table logits from a file, joined by content; else as `label_table`.

    Args:
        table: Canonical table; the type of its labels says what kind of task the logits are for,
            and labelled rows are used to check them.
        store: Folder of the store; made if absent.
        file: The logits.
        config: Shards and storage.
        labels: What the logits mean, in their order; empty: what the file says, or the table's
            labels.
        name: The teacher's folder in the store.

    Raises:
        InputError: A row has no logits in the file, the labels are not known or not as many as the
            logits, or the logits are at chance.
    """
    folder = teacher_folder(store, name)
    task: Task = (
        task_of_labels(table["label"].type) if "label" in table.column_names else "classification"
    )
    known = labels_in(table) if task == "regression" or has_labels(table) else []
    names = file.name_labels(labels, known)
    mask = mask_of(table) or _mask_in(folder)
    manifest = manifest_of(names, task, config.kept_as(task), weights=file.fingerprint(), mask=mask)
    check_manifest(folder, manifest)
    table = file.join(table)
    score = refuse_chance(
        table, logits_in, names, task, file.source, order="--labels or in the file"
    )
    shard = partial(shard_table, storage=config.kept_as(task), source=file.source, labels=names)

    def found(logits: np.ndarray, on_rows: Callable[[int], object]) -> np.ndarray:
        on_rows(len(logits))
        return logits

    write = partial(write_here, logits_in, found, shard)
    return fill_store(table, folder, manifest, config, write, score)


def _mask_in(folder: Path) -> str:
    """Return the mask word that a teacher's folder was begun with; empty: none."""
    begun = (folder / MANIFEST).is_file()
    return (read_manifest(folder).get("mask") or "") if begun else ""


def _write_on_ray(
    step: Callable[[pa.Table], int],
    workers: int,
    folder: Path,
    table: pa.Table,
    plan: list[Shard],
    on_rows: Callable[[int], object],
) -> None:
    """Have actors write the shards; `step` knows the folder."""
    for rows in each(step, _Parts(table, plan), engine="ray", workers=workers, holds_model=True):
        on_rows(rows)


class _Parts(Sequence[pa.Table]):
    """The rows of each shard of a plan, looked up one shard at a time."""

    def __init__(self, table: pa.Table, plan: list[Shard]) -> None:
        self._table, self._plan = table, plan

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, number: Any) -> Any:
        return take_rows(self._table, self._plan[number].rows)


def _label_shard(
    teacher: str,
    config: LabelConfig,
    mask: str,
    labels: tuple[str, ...],
    folder: Path,
    part: pa.Table,
) -> int:
    """Write the shard of rows and return their number; the teacher stays loaded for the next."""
    write_shard(folder, _loaded(teacher, config, mask, labels)(part))
    return len(part)


_loaded = lru_cache(maxsize=1)(Labeller)


def _print(folder: Path, kinds: Sequence[str]) -> str:
    files = {path for kind in kinds for path in folder.glob(kind) if path.is_file()}
    return fingerprint(*sorted(files))

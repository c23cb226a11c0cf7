"""The logit store: a folder of teachers, each of Parquet shards, joined to text by content.

STORE/<name>/manifest.json             what the logits were made by, and the order of their labels
STORE/<name>/shard-<16 hex>.parquet    key, text, [text_pair], logits; named by the hash of its keys
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit.data.checked import open_parquet, readable
from distillkit.data.content import KEY_BYTES, content_keys, texts_alone, texts_of
from distillkit.data.keys import KeyColumn, Keyed, KeyIndex, look_up
from distillkit.data.labels import HEADS
from distillkit.data.scratch import TEMPORARY, Scratch
from distillkit.data.tables import BLOCK_ROWS, blocks_of, write_table
from distillkit.errors import InputError, library_errors
from distillkit.recipe import TEACHER_NAME, Task

FORMAT = 2
MANIFEST = "manifest.json"
LABELS, ROUNDING_ERROR = b"distillkit.labels", b"distillkit.rounding_error"

_MOST_BYTES = 2**31  # of a column's text in one array


def teacher_folder(store: Path, name: str) -> Path:
    """Return the folder of a teacher in a store.

    Raises:
        InputError: `name` cannot be a folder's.
    """
    if not re.fullmatch(TEACHER_NAME, name):
        raise InputError(f"--name {name!r}: expected letters, digits, - _ . and no . in front")
    return store / name


def read_store(store: Path) -> dict[str, dict[str, Any]]:
    """Return the manifest of every teacher in a store, by name, in the order of the names.

    Raises:
        InputError: The folder is no logit store.
    """
    if (store / MANIFEST).is_file():
        raise InputError(
            f"{store}: a logit store of an older form; delete the folder and label again"
        )
    found = {
        path.parent.name: read_manifest(path.parent) for path in sorted(store.glob(f"*/{MANIFEST}"))
    }
    if not found:
        raise InputError(
            f"{store}: not a logit store: no folder in it has a {MANIFEST}; make one with distillkit label"
        )
    return found


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what a teacher's folder says of it.

    Raises:
        InputError: It is not there, or no manifest.
    """
    path = folder / MANIFEST
    mend = "delete the folder and label again"
    with library_errors(str(path), "not JSON", f"; {mend}"):
        manifest = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(manifest, dict) or not isinstance(manifest.get("labels"), list):
        raise InputError(f"{path}: not the manifest of a teacher's logits; {mend}")
    if manifest.get("format") != FORMAT:
        raise InputError(
            f"{path}: its format is {manifest.get('format')!r}, expected {FORMAT}; {mend}"
        )
    if _head(manifest) not in HEADS.values():
        raise InputError(
            f"{path}: its head is {_head(manifest)!r}, expected {', '.join(HEADS.values())}; {mend}"
        )
    return manifest


def keys_of(table: pa.Table, scratch: Scratch = TEMPORARY) -> pa.Array:
    """Hash each row's content, block by block.

    Args:
        table: Canonical table of N rows.
        scratch: Where the keys are kept.

    Returns:
        N keys as `content.content_keys` has them, fixed_size_binary[16].
    """
    found = KeyColumn(scratch)
    for block in blocks_of(texts_alone(table)):
        found.append(pa.array(content_keys(*texts_of(block)), pa.binary(KEY_BYTES)))
    return found.whole()


def shard_name(keys: pa.Array) -> str:
    """Name a shard by its keys, so that a name stands for one content whoever writes it."""
    return hashlib.blake2b(b"".join(keys.to_pylist()), digest_size=8).hexdigest()


def shard_path(folder: Path, name: str) -> Path:
    """Return the file of a shard in a teacher's folder."""
    return folder / f"shard-{name}.parquet"


def shard_table(
    table: pa.Table, logits: np.ndarray, storage: str, source: str, labels: Sequence[str]
) -> pa.Table:
    """Put texts and their logits together as a shard has them.

    Args:
        table: Canonical table of N rows; its other columns are left out.
        logits: (N, C) float32.
        storage: fp16 or fp32.
        source: Whose logits they are, for errors.
        labels: C labels in the order of the logits; kept in the metadata, so that a shard alone
            says what it holds.

    Returns:
        `key`, `text`, `text_pair` (pairs), `logits`; the metadata has the largest rounding error of
        a stored logit.

    Raises:
        InputError: A logit is not finite, or not in the form it is stored in.
    """
    with np.errstate(over="ignore"):  # refused below, in words
        stored = logits.astype(np.float16 if storage == "fp16" else np.float32)
    finite = np.isfinite(stored).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        text, values = table["text"][row].as_py(), logits[row]
        if np.isfinite(values).all():
            raise InputError(
                f"{source}: logits of {text!r} are too large for fp16 ({values[np.abs(values).argmax()]:g}); store them with --label.storage fp32"
            )
        raise InputError(
            f"{source}: the logits are not finite for {text!r}; label with --label.precision fp32"
        )
    texts = texts_alone(table)
    columns = {"key": keys_of(table)} | {name: _joined(texts[name]) for name in texts.column_names}
    columns["logits"] = pa.FixedSizeListArray.from_arrays(pa.array(stored.ravel()), stored.shape[1])
    error = float(np.abs(stored.astype(np.float64) - logits).max(initial=0))
    return pa.table(columns).replace_schema_metadata(
        {LABELS: json.dumps(list(labels), ensure_ascii=False), ROUNDING_ERROR: repr(error)}
    )


def _joined(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column of text in one piece, unless that were more than a string array can hold."""
    return column if column.nbytes >= _MOST_BYTES else column.combine_chunks()


def write_shard(folder: Path, shard: pa.Table) -> Path:
    """Write a shard under the name that its keys give it, whole or not at all.

    Args:
        folder: A teacher's folder.
        shard: What `shard_table` made.
    """
    path = shard_path(folder, shard_name(shard["key"].combine_chunks()))
    write_table(shard, path)
    return path


def stored_keys(folder: Path, scratch: Scratch = TEMPORARY) -> pa.Array:
    """Return the content keys that a teacher's folder has logits for, fixed_size_binary[16]."""
    found = KeyColumn(scratch)
    for shard in _shards(folder, ["key"]):
        found.append(shard["key"].combine_chunks())
    return found.whole()


def stored_rows(table: pa.Table, folder: Path) -> np.ndarray:
    """Say which rows of a canonical table a teacher's folder has logits for, (N,) bool."""
    keys = keys_of(table)
    index = KeyIndex(keys)
    there = np.zeros(len(index), bool)
    for shard in _shards(folder, ["key"]):
        slots = index.slots(shard["key"].combine_chunks())
        there[slots[slots >= 0]] = True
    return there[index.slots(keys)]


def rounding_error(folder: Path) -> float:
    """Return the largest difference between a logit as the teacher gave it and as it is stored."""
    return max(
        (float((shard.schema.metadata or {})[ROUNDING_ERROR]) for shard in _shards(folder, [])),
        default=0.0,
    )


def _shards(folder: Path, columns: list[str]) -> Iterator[pa.Table]:
    """Read shards in the order of their names."""
    for path in sorted(folder.glob("shard-*.parquet")):
        with readable(path, "delete this shard and label again"):
            table = open_parquet(path).read(columns)
            of_lists = all(
                pa.types.is_fixed_size_list(f.type) for f in table.schema if f.name == "logits"
            )
            if (
                table.column_names != columns
                or not of_lists
                or ROUNDING_ERROR not in (table.schema.metadata or {})
            ):
                raise KeyError("not what distillkit label writes")
        yield table


def join_logits(
    table: pa.Table,
    store: Path,
    weights: Mapping[str, float] | None = None,
    scratch: Scratch = TEMPORARY,
    *,
    as_targets: bool = False,
) -> np.ndarray:
    """Look up each row's logits by its content, and average the teachers'.

    Args:
        table: Canonical table of N rows, in any order.
        store: A logit store.
        weights: Weight of each teacher by name, above 0; they are scaled to sum to 1. None or
            empty: all, alike.
        scratch: Where the logits are kept.
        as_targets: Take from each row of a classifier's log-probabilities its mean: what they are
            less than logits is a number a row, which the squared error would make a student learn
            in vain.

    Returns:
        Logits, (N, C) float32, in the order of the table and of `joined_labels`.

    Raises:
        InputError: A row has no logits, a teacher is unknown, or the teachers' labels are not the
            same.
    """
    out = scratch.array((len(table), len(joined_labels(store, weights))), np.float32)
    parts = [slice(start, start + BLOCK_ROWS) for start in range(0, len(table), BLOCK_ROWS)]
    as_targets = as_targets and store_task(store, weights) == "classification"
    for _, share, logits in _each_teacher(table, store, weights, scratch):
        centred = as_targets and all(_are_log_probabilities(logits[part]) for part in parts)
        for part in parts:
            mean = logits[part].mean(axis=1, keepdims=True) if centred else 0
            out[part] += np.float32(share) * (logits[part] - mean)
    return out


def _are_log_probabilities(logits: np.ndarray) -> bool:
    """Say whether the probabilities of every row sum to 1, but for rounding, or to less.

    Less: the mean of several prompts' log-probabilities.
    """
    return bool((np.logaddexp.reduce(logits, axis=1) < 0.01).all())


def _each_teacher(
    table: pa.Table, store: Path, weights: Mapping[str, float] | None, scratch: Scratch
) -> Iterator[tuple[str, float, np.ndarray]]:
    """Yield each teacher's name, share in the mean, and logits, as `join_logits` has them."""
    keys, labels = keys_of(table, scratch), joined_labels(store, weights)
    for name, share in teacher_shares(store, weights).items():
        yield name, share, _teacher_logits(table, keys, store / name, labels, scratch)


def with_logits(table: pa.Table, store: Path) -> pa.Table:
    """Give a table the logits of every teacher of a store as columns.

    Args:
        table: Canonical table.
        store: A logit store.

    Returns:
        The table with a column `logits_<name>` a teacher, fixed_size_list<float>[C], labels in the
        order of `joined_labels`.

    Raises:
        InputError: As for `join_logits`.
    """
    for name, _, values in _each_teacher(table, store, None, TEMPORARY):
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        table = table.append_column(f"logits_{name}", column)
    return table


def joined_labels(store: Path, weights: Mapping[str, float] | None = None) -> list[str]:
    """Return what each joined logit means: the labels of the first teacher by name.

    Raises:
        InputError: A teacher is unknown, or the teachers' labels, or kinds of task, are not the
            same.
    """
    manifests = read_store(store)
    first, *others = teacher_shares(store, weights)
    labels = list(manifests[first]["labels"])
    for name in others:
        if _head(manifests[name]) != _head(manifests[first]):
            raise InputError(
                f"{store}: teacher {name!r} has the head {_head(manifests[name])}, teacher {first!r} {_head(manifests[first])}; "
                f"choose some with --loss.teachers"
            )
        theirs = manifests[name]["labels"]
        if sorted(theirs) != sorted(labels):
            raise InputError(
                f"{store}: teacher {name!r} has the labels {', '.join(theirs)}, teacher {first!r} {', '.join(labels)}; choose some with --loss.teachers"
            )
    return labels


def store_task(store: Path, weights: Mapping[str, float] | None = None) -> Task:
    """Return the task of a store's first teacher by name, or of the first with a weight."""
    manifests = read_store(store)
    head = _head(manifests[next(iter(teacher_shares(store, weights)))])
    return next(task for task, name in HEADS.items() if name == head)


def _head(manifest: Mapping[str, Any]) -> str:
    return manifest.get("head", HEADS["classification"])


def teacher_shares(store: Path, weights: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the shares, 1 in all, of the teachers that are joined, in the order of their names."""
    known = read_store(store)
    for name in weights or ():
        if name not in known:
            raise InputError(f"{store}: no teacher {name!r}; there is {', '.join(known)}")
    weights = weights or dict.fromkeys(known, 1.0)
    total = sum(weights.values())
    return {name: weights[name] / total for name in known if name in weights}


def _teacher_logits(
    table: pa.Table, keys: pa.Array, folder: Path, labels: Sequence[str], scratch: Scratch
) -> np.ndarray:
    """Return a teacher's logits for a table's rows, (N, C) float32, in the order of `labels`.

    Args:
        table: Canonical table of N rows.
        keys: Their N keys.
        folder: The teacher's folder.
        labels: C labels.
        scratch: Where the logits are kept.
    """
    stored = _stored_logits(folder, labels)
    out, missing, first = look_up(keys, stored, len(labels), scratch)
    if missing:
        text = table["text"][first].as_py()
        raise InputError(
            f"{folder}: {missing} of {len(table)} rows have no logits, the first is {text!r}; run distillkit label on this table"
        )
    return out


def _stored_logits(folder: Path, labels: Sequence[str]) -> Iterator[Keyed]:
    """Yield a teacher's keys and logits shard by shard: a store may be larger than memory."""
    own = read_manifest(folder)["labels"]
    order = [own.index(name) for name in labels]
    for shard in _shards(folder, ["key", "logits"]):
        logits = shard["logits"].combine_chunks().flatten().to_numpy().reshape(len(shard), -1)
        if logits.shape[1] != len(own):
            raise InputError(
                f"{folder}: {logits.shape[1]} logits a row, but {MANIFEST} names {len(own)} labels; make the store anew"
            )
        yield shard["key"].combine_chunks(), logits[:, order]

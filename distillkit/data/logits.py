"""Read a logit store and join it to a table by content."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distillkit.data.tables import KEY_BYTES, content_keys, texts_of
from distillkit.errors import InputError

MANIFEST = "manifest.json"


def read_store(store: Path) -> dict[str, Any]:
    """Return a store's manifest: teacher fingerprint, labels in the order of the logits, max_tokens, precision, mask.

    Raises:
        InputError: The folder is no logit store.
    """
    try:
        manifest = json.loads((store / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{store}: not a logit store: it has no {MANIFEST}; make one with distillkit label") from None
    except ValueError as error:
        raise InputError(f"{store / MANIFEST}: not JSON: {error}; delete the folder and label again") from None
    if not isinstance(manifest, dict) or "labels" not in manifest:
        raise InputError(f"{store / MANIFEST}: not the manifest of a logit store; delete the folder and label again")
    return manifest


def _shards(store: Path, columns: list[str]) -> list[pa.Table]:
    tables = []
    for path in sorted(store.glob("shard-*.parquet")):
        try:
            tables.append(pq.read_table(path, columns=columns))
        except (pa.ArrowInvalid, KeyError) as error:
            raise InputError(f"{path}: damaged: {error}; delete this shard and label again") from None
    return tables


def stored_keys(store: Path) -> set[bytes]:
    """Return the content keys that a store has logits for."""
    return {key for table in _shards(store, ["key"]) for key in table["key"].to_pylist()}


def join_logits(table: pa.Table, store: Path) -> np.ndarray:
    """Look up each row's logits by its content.

    Args:
        table: Canonical table of N rows, in any order.
        store: A logit store.

    Returns:
        Logits, (N, C) float32, in the order of the table.

    Raises:
        InputError: A row has no logits.
    """
    shards = _shards(store, ["key", "logits"])
    wanted = _as_void(content_keys(*texts_of(table)))
    keys = _as_void([key for shard in shards for key in shard["key"].to_pylist()])
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], wanted)
    found = np.zeros(len(wanted), bool)
    inside = place < len(keys)
    found[inside] = keys[order][place[inside]] == wanted[inside]
    if not found.all():
        row = int(np.flatnonzero(~found)[0])
        count, first = int((~found).sum()), table["text"][row].as_py()
        raise InputError(
            f"{store}: {count} of {len(table)} rows have no logits, the first is {first!r}; run distillkit label on this table"
        )
    values = np.concatenate([s["logits"].combine_chunks().flatten().to_numpy().reshape(len(s), -1) for s in shards])
    return values[order[place]]


def _as_void(keys: list[bytes]) -> np.ndarray:
    # "S16" would drop trailing zero bytes; two big-endian integers compare like the bytes and sort fast.
    pairs = np.frombuffer(b"".join(keys), dtype=">u8").reshape(-1, KEY_BYTES // 8).astype("u8")
    out = np.empty(len(pairs), dtype=[("high", "u8"), ("low", "u8")])
    out["high"], out["low"] = pairs[:, 0], pairs[:, 1]
    return out

"""The logit store: a folder of Parquet shards, joined to text by content and never by position."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.metrics import balanced_accuracy_score
from torch import Tensor
from tqdm import tqdm

from distillkit.data.batches import encode
from distillkit.data.files import whole_file
from distillkit.data.logits import MANIFEST, read_store, stored_keys
from distillkit.data.tables import check_labels_known, content_keys, label_ids, label_names, texts_of, write_table
from distillkit.errors import InputError
from distillkit.recipe import LabelConfig
from distillkit.teacher.checkpoint import labels_of, load_classifier, match_labels, max_tokens_of
from distillkit.training.inference import predict_logits

CHECKED_ROWS = 2000


def label_table(
    table: pa.Table, store: Path, teacher: str, teacher_fingerprint: str, config: LabelConfig, mask: str = ""
) -> dict[str, Any]:
    """Give every row of a table the teacher's logits, in a store that grows shard by shard.

    Rows whose content the store has already are not done again, so an interrupted run resumes and a larger table adds only
    what is new.

    Args:
        table: Canonical table; rows with a label are used to check that the teacher knows the task.
        store: Folder of the store; made if absent.
        teacher: Checkpoint of a fine-tuned classifier, as for `checkpoint.resolve`.
        teacher_fingerprint: What the store is tied to; logits of another teacher are never mixed in.
        config: Batches, precision, shards.
        mask: The transfer set's mask word, replaced by the teacher's own mask token; empty: nothing is replaced.

    Returns:
        `rows`, `distinct`, `labelled_now`, `labels`, and, where there were labelled rows, `accuracy_on_labelled`.

    Raises:
        InputError: The teacher is no classifier, has other labels, is at chance, or is not the one the store was made with.
    """
    model, tokenizer = load_classifier(teacher)
    labels = _labels(model, table, teacher)
    manifest: dict[str, Any] = {
        "format": 1,
        "teacher": teacher_fingerprint,
        "labels": labels,
        "max_tokens": max_tokens_of(model, tokenizer),
        "precision": config.precision,
        "mask": mask,
    }
    _check_store(store, manifest)
    score = _refuse_chance(model, tokenizer, table, labels, manifest["max_tokens"], config, teacher)
    if not (store / MANIFEST).is_file():
        # Only now: a teacher that is refused must not keep its successor out of the store.
        with whole_file(store / MANIFEST) as partial:
            partial.write_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    texts, pairs = texts_of(table)
    keys = content_keys(texts, pairs)
    done = stored_keys(store)
    todo = list({key: i for i, key in reversed(list(enumerate(keys))) if key not in done}.values())[::-1]
    number = 1 + max((int(path.stem.removeprefix("shard-")) for path in store.glob("shard-*.parquet")), default=-1)
    with tqdm(total=len(todo), desc="label", unit="row", unit_scale=True, disable=None) as bar:
        for start in range(0, len(todo), config.shard_rows):
            part = todo[start : start + config.shard_rows]
            part_texts, part_pairs = [texts[i] for i in part], None if pairs is None else [pairs[i] for i in part]
            rows = encode(tokenizer, part_texts, part_pairs, manifest["max_tokens"], mask=mask)
            logits = predict_logits(
                model, rows, max_batch_tokens=config.max_batch_tokens, precision=config.precision, on_rows=bar.update
            )
            write_table(
                _shard([keys[i] for i in part], part_texts, part_pairs, logits, store),
                store / f"shard-{number:05}.parquet",
            )
            number += 1
    summary: dict[str, Any] = {
        "rows": len(keys),
        "distinct": len(set(keys)),
        "labelled_now": len(todo),
        "labels": labels,
    }
    return summary if score is None else summary | {"accuracy_on_labelled": score}


def _labels(model: Any, table: pa.Table, teacher: str) -> list[str]:
    own = labels_of(model)
    if "label" not in table.column_names or table["label"].null_count == len(table):
        return own
    return match_labels(own, label_names(table), teacher)


def _check_store(store: Path, manifest: dict[str, Any]) -> None:
    if not (store / MANIFEST).is_file():
        return
    old = read_store(store)
    for key, value in manifest.items():
        if old.get(key) != value:
            made, mend = (
                f"made with {key} {old.get(key)!r}, now {value!r}",
                "choose another folder, or delete this one to label anew",
            )
            raise InputError(f"{store / MANIFEST}: {made}; {mend}")


def _refuse_chance(
    model: Any,
    tokenizer: Any,
    table: pa.Table,
    labels: Sequence[str],
    max_tokens: int,
    config: LabelConfig,
    teacher: str,
) -> float | None:
    """Return the teacher's accuracy on the labelled rows, or None without any.

    Raises:
        InputError: Its balanced accuracy is within two standard errors of guessing.
    """
    if "label" not in table.column_names:
        return None
    labelled = table.filter(table["label"].is_valid())
    if not len(labelled):
        return None
    check_labels_known(labelled, labels, "the labelled rows")
    if len(labelled) > CHECKED_ROWS:
        labelled = labelled.take(np.linspace(0, len(labelled) - 1, CHECKED_ROWS).astype(int))
    rows = encode(tokenizer, *texts_of(labelled), max_tokens)
    found = (
        predict_logits(model, rows, max_batch_tokens=config.max_batch_tokens, precision=config.precision)
        .argmax(1)
        .numpy()
    )
    gold = np.array(label_ids(labelled, labels))
    # Balanced, so that a teacher that always says the commonest label is at chance whatever its share.
    classes = len(set(gold.tolist()))
    chance = 1 / max(classes, 2)
    score = float(balanced_accuracy_score(gold, found))
    bound = chance + 2 * math.sqrt(chance * (1 - chance) / len(gold))
    if score < bound:
        raise InputError(
            f"{teacher}: the teacher is at chance on the labelled rows: balanced accuracy {score:.3f} over {len(gold)} rows, "
            f"{chance:.3f} is guessing and {bound:.3f} the least accepted; fine-tune it on this task (distillkit train-teacher)"
        )
    return float((gold == found).mean())


def _shard(keys: list[bytes], texts: list[str], pairs: list[str] | None, logits: Tensor, store: Path) -> pa.Table:
    values = logits.numpy()
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise InputError(
            f"{store}: the teacher's logits are not finite for {texts[row]!r}; label with --label.precision fp32"
        )
    columns: dict[str, Any] = {"key": pa.array(keys, pa.binary(16)), "text": texts}
    if pairs is not None:
        columns["text_pair"] = pairs
    columns["logits"] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), pa.float32()), values.shape[1])
    return pa.table(columns)

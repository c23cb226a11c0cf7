"""A dev split out of training rows."""

import hashlib
from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from distillkit.data.content import content_keys, texts_of
from distillkit.data.labels import LABEL_TYPES
from distillkit.data.normal import normal_rows
from distillkit.errors import InputError


def split_dev(table: pa.Table, fraction: float, seed: int) -> tuple[pa.Table, pa.Table]:
    """Set aside a fraction of each class's rows, or of all rows; equal texts stay together.

    Training keeps a row of every label: the only text of a class is never set aside.

    Args:
        table: Canonical, labelled.
        fraction: Share set aside, above 0.
        seed: Which rows.

    Returns:
        What is left to train on, and the dev rows, both in their old order.

    Raises:
        InputError: No text could be set aside, or there are more labels than half of the texts.
    """
    keys = content_keys(*texts_of(table))
    classes = table["label"].type == LABEL_TYPES["classification"]
    given = table["label"].to_pylist()
    labels = given if classes else [""] * len(table)
    # Rows that differ in case and white space alone are of one group, known by its first row.
    groups = normal_rows(table)
    first = {group: i for i, group in reversed(list(enumerate(groups)))}
    keys = [keys[first[group]] for group in groups]
    by_label: dict[str, list[bytes]] = defaultdict(list)
    for i in first.values():
        by_label[labels[i]].append(keys[i])
    if 2 * len(by_label) > len(first):
        raise InputError(
            f"{len(by_label):,} labels of {len(first):,} texts: too few of each to set some aside as dev; give --data.dev or another --data.columns.label"
        )
    chosen: set[bytes] = set()
    for label in sorted(by_label):
        # Ranked by a keyed hash, so that a row added later moves at most one other.
        mine = sorted(
            (hashlib.blake2b(k, key=str(seed).encode(), digest_size=8).digest(), k)
            for k in by_label[label]
        )
        count = min(max(1, round(fraction * len(mine))), len(mine) - 1)
        chosen.update(key for _, key in mine[:count])
    if table["label"].type != LABEL_TYPES["regression"]:
        # Of equal texts with several labels the first one has been counted alone.
        sets = [[name] for name in given] if classes else given
        known = {
            name
            for key, names in zip(keys, sets, strict=True)
            if key not in chosen
            for name in names
        }
        for key, names in zip(keys, sets, strict=True):
            if key in chosen and not known.issuperset(names):  # training must have every label
                chosen.remove(key)
                known.update(names)
    if not chosen:
        raise InputError(
            f"none of {len(first):,} texts can be set aside as dev: training would lack a label; give --data.dev"
        )
    in_dev = pa.array([key in chosen for key in keys])
    return table.filter(pc.invert(in_dev)), table.filter(in_dev)

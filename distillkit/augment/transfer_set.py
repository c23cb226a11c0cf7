"""Originals, unlabelled text and variants in one table, duplicates and leaks left out and counted."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from distillkit.augment.augmenter import Augmenter, refuse_mask
from distillkit.data.tables import paired, texts_of, with_mask
from distillkit.errors import InputError

Content = tuple[str, str | None]


def build_transfer_set(
    source: pa.Table, augmenter: Augmenter, unlabelled: Sequence[pa.Table] = (), held_out: Sequence[pa.Table] = ()
) -> tuple[pa.Table, dict[str, Any]]:
    """Build the transfer set of a training table.

    Args:
        source: Canonical table; its texts come back byte for byte, each once, with `origin` "original" and their label.
            A text that stands there with two labels comes back with none.
        augmenter: Makes the variants of `source` and, where its configuration says so, of `unlabelled`.
        unlabelled: More texts; they are part of the transfer set themselves.
        held_out: Dev and test tables; an added row equal to one of theirs, case and space aside, is left out.

    Returns:
        Canonical table with `origin`; and the counts `rows`, `original`, `unlabelled`, `augmented`, `duplicates`, `leaks`.

    Raises:
        InputError: Pairs and single texts are mixed, or a text holds the mask word.
    """
    tables = [source, *unlabelled, *held_out]
    if len({"text_pair" in table.column_names for table in tables}) > 1:
        raise InputError("some tables have pairs and some single texts; give all of them the same columns")
    guarded = {_normal(row) for table in held_out for row in _rows(table)}
    labels: dict[Content, str | None] = {}
    for row, label in zip(
        _rows(source),
        source["label"].to_pylist() if "label" in source.column_names else [None] * len(source),
        strict=True,
    ):
        labels[row] = label if labels.get(row, label) == label else None
    origin = dict.fromkeys(labels, "original")
    names = ["text", "text_pair"] if "text_pair" in source.column_names else ["text"]
    more = pa.concat_tables([table.select(names) for table in (source.slice(0, 0), *unlabelled)])
    refuse_mask((text for row in _rows(more) for text in row if text is not None), augmenter.config.mask)
    varied = pa.concat_tables([source.select(names), more]) if augmenter.config.vary_unlabelled else source
    added = {"unlabelled": _rows(more), "augmented": augmenter.variants(*texts_of(varied), progress="augment")}
    duplicates = leaks = 0
    for name, rows in added.items():
        for row in rows:
            if row in origin:
                duplicates += 1
            elif _normal(row) in guarded:
                leaks += 1
            else:
                origin[row] = name
    columns: dict[str, Any] = {name: [row[i] for row in origin] for i, name in enumerate(names)}
    columns["label"] = [labels.get(row) for row in origin]
    columns["origin"] = list(origin.values())
    counts = {name: columns["origin"].count(name) for name in ("original", *added)}
    table = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
    return with_mask(table, augmenter.config.mask), {
        "rows": len(origin),
        **counts,
        "duplicates": duplicates,
        "leaks": leaks,
    }


def _rows(table: pa.Table) -> list[Content]:
    return paired(*texts_of(table))


def _normal(row: Content) -> Content:
    text, pair = row
    return " ".join(text.casefold().split()), None if pair is None else " ".join(pair.casefold().split())

"""What a transfer set yields: rows by origin, rule and length."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distillkit.augment.rules import RULES
from distillkit.augment.variants import ORIGINS
from distillkit.data.words import splitter


def count_rows(table: pa.Table) -> dict[str, int]:
    """Count rows by origin, by rule (`rule mask`) and by length in words (`length 7`).

    Args:
        table: Rows of `variants.schema`.
    """
    counts: Counter[str] = Counter()
    for entry in pc.value_counts(table["origin"].combine_chunks()).to_pylist():
        counts[entry["values"]] += entry["counts"]
    for entry in pc.value_counts(table["rules"].combine_chunks()).to_pylist():
        for rule in filter(None, entry["values"].split("+")):
            counts[f"rule {rule}"] += entry["counts"]
    counts.update(f"length {words}" for words in _lengths(table).tolist())
    return dict(counts)


def _lengths(table: pa.Table) -> np.ndarray:
    """Return each row's number of words; of what was tagged, the tagger's words that were kept."""
    sides = ("", "_pair") if "text_pair" in table.column_names else ("",)
    total = np.zeros(len(table), np.int64)
    for side in sides:
        words = pc.subtract(table[f"stop{side}"], table[f"start{side}"])
        untagged = words.is_null()
        if pc.any(untagged).as_py():
            texts = table[f"text{side}"].filter(untagged).to_pylist()
            split = splitter(texts)
            own = pa.array([len(split(text)) for text in texts], pa.int32())
            words, untagged = words.combine_chunks(), untagged.combine_chunks()
            words = pc.replace_with_mask(words, untagged, own)
        total += words.to_numpy()
    return total


def yield_report(total: Mapping[str, int], candidates: int) -> dict[str, Any]:
    """Return the yield, as `transfer_set.build_transfer_set` reports it.

    Args:
        total: Sum of what `count_rows` counted, and `distinct` rows before `leaks` were left out.
        candidates: Rows made, duplicates and all.
    """
    origins = {name: total.get(name, 0) for name in ORIGINS}
    by_bin: Counter[int] = Counter()
    for name, n in total.items():
        if name.startswith("length "):
            by_bin[max(int(name.removeprefix("length ")) - 1, 0).bit_length()] += n
    return {
        "rows": sum(origins.values()),
        **origins,
        "duplicates": candidates - total.get("distinct", 0),
        "leaks": total.get("leaks", 0),
        "rules": {rule: k for rule in RULES.values() if (k := total.get(f"rule {rule}"))},
        "lengths": {_bin_name(b): by_bin[b] for b in sorted(by_bin)},
    }


def _bin_name(b: int) -> str:
    low, high = (2 ** (b - 1) + 1 if b else 0, 2**b)
    return str(high) if high - low < 1 and b else f"{low}-{high}"

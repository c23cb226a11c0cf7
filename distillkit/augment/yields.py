"""What a transfer set yields: rows by origin and by rule."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distillkit.augment.rules import RULES
from distillkit.augment.variants import ORIGINS


def count_rows(table: pa.Table) -> dict[str, int]:
    """Count rows by origin and by rule (`rule mask`).

    Args:
        table: Rows of `variants.schema`.
    """
    counts: Counter[str] = Counter()
    for entry in pc.value_counts(table["origin"].combine_chunks()).to_pylist():
        counts[entry["values"]] += entry["counts"]
    for entry in pc.value_counts(table["rules"].combine_chunks()).to_pylist():
        for rule in filter(None, entry["values"].split("+")):
            counts[f"rule {rule}"] += entry["counts"]
    return dict(counts)


def yield_report(total: Mapping[str, int], candidates: int) -> dict[str, Any]:
    """Return the yield, as `transfer_set.build_transfer_set` reports it.

    Args:
        total: Sum of what `count_rows` counted, and `distinct` rows before `leaks` were left out.
        candidates: Rows made, duplicates and all.
    """
    origins = {name: total.get(name, 0) for name in ORIGINS}
    return {
        "rows": sum(origins.values()),
        **origins,
        "duplicates": candidates - total.get("distinct", 0),
        "leaks": total.get("leaks", 0),
        "rules": {rule: k for rule in RULES.values() if (k := total.get(f"rule {rule}"))},
    }

"""What a transfer set yields: rows by origin, rule and length."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distillkit.augment.rules import RULES
from distillkit.augment.variants import ORIGINS
from distillkit.data.words import is_unsegmented, split_characters, split_words


def count_rows(table: pa.Table) -> dict[str, int]:
    """Count rows by origin, by rule (`rule mask`) and by length in words (`length 7`).

    Args:
        table: Rows of `variants.schema`.
    """
    counts: Counter[str] = Counter()
    origins, rules = (pc.value_counts(table[name].combine_chunks()) for name in ("origin", "rules"))
    counts.update({entry["values"].as_py(): entry["counts"].as_py() for entry in origins})
    for entry in rules:
        counts.update(
            {
                f"rule {rule}": entry["counts"].as_py()
                for rule in entry["values"].as_py().split("+")
                if rule
            }
        )
    counts.update({f"length {words}": n for words, n in Counter(_lengths(table).tolist()).items()})
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
            split = split_characters if is_unsegmented(texts) else split_words
            words = pc.replace_with_mask(
                words.combine_chunks(),
                untagged.combine_chunks(),
                pa.array([len(split(t)) for t in texts], pa.int32()),
            )
        total += words.to_numpy()
    return total


def yield_report(total: Mapping[str, int], candidates: int) -> dict[str, Any]:
    """Say what a transfer set yielded.

    Args:
        total: What `count_rows` counted over all of it, and `distinct` rows before `leaks` were
            left out.
        candidates: Rows made, duplicates and all.

    Returns:
        As `transfer_set.build_transfer_set` has it.
    """
    origins = {name: total.get(name, 0) for name in ORIGINS}
    lengths = {
        int(name.removeprefix("length ")): n
        for name, n in total.items()
        if name.startswith("length ")
    }
    by_bin: Counter[int] = Counter()
    for words, n in lengths.items():
        by_bin[max(words - 1, 0).bit_length()] += n
    return {
        "rows": sum(origins.values()),
        **origins,
        "duplicates": candidates - total.get("distinct", 0),
        "leaks": total.get("leaks", 0),
        "rules": {
            rule: total[f"rule {rule}"] for rule in RULES.values() if total.get(f"rule {rule}")
        },
        "lengths": {_bin_name(b): by_bin[b] for b in sorted(by_bin)},
    }


def _bin_name(b: int) -> str:
    low, high = (2 ** (b - 1) + 1 if b else 0, 2**b)
    return str(high) if high - low < 1 and b else f"{low}-{high}"

"""Names of columns that a source is likely to have, for sources that have not the usual ones."""

from collections.abc import Sequence
from dataclasses import replace

from distillkit.recipe import ColumnsConfig

_TEXTS = [
    "text",
    "sentence",
    "review",
    "content",
    "comment",
    "body",
    "tweet",
    "message",
    "document",
    "question",
    "title",
]
_PAIRS = (
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
)
_LABELS = [
    "label",
    "labels",
    "stars",
    "rating",
    "sentiment",
    "class",
    "category",
    "target",
    "score",
]


def find_columns(names: Sequence[str], columns: ColumnsConfig) -> tuple[ColumnsConfig, str]:
    """Find the columns of text and label among a table's, where the usual ones are not there.

    A name that the user gave is never replaced, and of several candidates none is taken.

    Args:
        names: The table's columns.
        columns: What is known of them.

    Returns:
        The same with the columns found, and in words what was found; empty for nothing.

    >>> find_columns(["Review", "stars"], ColumnsConfig())[1]
    'text is Review, label is stars'
    """
    usual, found = ColumnsConfig(), {}
    if columns.text == usual.text not in names:
        pairs = [pair for pair in (_all_of(pair, names) for pair in _PAIRS) if pair]
        texts = [name for name in names if name.lower() in _TEXTS]
        if not columns.text_pair and len(pairs) == 1:
            found["text"], found["text_pair"] = pairs[0]
        elif len(texts) == 1:
            found["text"] = texts[0]
    labels = [name for name in names if name.lower() in _LABELS]
    if columns.label == usual.label not in names and len(labels) == 1:
        found["label"] = labels[0]
    said = ", ".join(f"{what} is {name}" for what, name in found.items())
    return replace(columns, **found), said


def _all_of(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that are wanted, in that order, whatever their case; empty if one lacks."""
    by_lower = {name.lower(): name for name in names}
    return [by_lower[name] for name in wanted] if all(name in by_lower for name in wanted) else []

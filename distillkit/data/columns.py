"""Names of columns that a source is likely to have, and the texts in its columns."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distillkit.errors import InputError, MissingValue
from distillkit.recipe import ColumnsConfig

_TEXTS = (
    *("text", "sentence", "review", "content", "comment", "body", "tweet", "message"),
    *("document", "question", "title", "headline", "utterance"),
    *("文本", "内容", "正文", "评论", "句子", "标题", "问题"),
)
_PAIRS = (
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    *(("句子1", "句子2"), ("问题1", "问题2"), ("文本1", "文本2")),
)
_LABELS = (
    *("label", "labels", "stars", "rating", "sentiment", "class", "category", "target"),
    *("score", "intent", "topic", "emotion"),
    *("标签", "类别", "情感", "评分"),
)


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
        one = [n for n in names if n.lower() in _TEXTS and n != columns.text_pair]
        mates = [first for first, second in pairs if second == columns.text_pair]
        if not columns.text_pair and len(pairs) == 1:
            found["text"], found["text_pair"] = pairs[0]
        elif mates:
            found["text"] = mates[0]
        elif len(one) == 1:
            found["text"] = one[0]
    texts = [columns.text, columns.text_pair, *found.values()]
    labels = [name for name in names if name.lower() in _LABELS and name not in texts]
    if columns.label == usual.label not in names and len(labels) == 1:
        found["label"] = labels[0]
    said = ", ".join(f"{what} is {name}" for what, name in found.items())
    return replace(columns, **found), said


def _all_of(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that are wanted, in that order, whatever their case; empty if one lacks."""
    by_lower = {name.lower(): name for name in names}
    return [by_lower[name] for name in wanted] if all(name in by_lower for name in wanted) else []


def no_column(row: dict[str, Any], column: str, place: str, settings: str) -> InputError:
    """Return the error of a row without a column, which `settings` name."""
    return InputError(
        f"{place}: no column {column!r}; there is {', '.join(map(repr, row))}: name yours with {settings}"
    )


def parse_text(row: dict[str, Any], column: str, place: str) -> str:
    """Read a row's text.

    Raises:
        InputError: The column is missing, or its value is empty or no text.
    """
    if column not in row:
        raise no_column(row, column, place, "--data.columns.text or --data.columns.text-pair")
    value = row[column]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        what = f"column {column!r} is empty (null or NaN)"
        raise MissingValue(place, what, "; expected text: fill or drop the row")
    if not isinstance(value, str):
        raise InputError(f"{place}: column {column!r} is {value!r}; expected text")
    if not value.strip():
        raise MissingValue(place, f"column {column!r} is empty", "; fill or drop the row")
    return value

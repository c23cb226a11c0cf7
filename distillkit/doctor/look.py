"""What a file of labelled text holds: columns, task, language."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from distillkit.data.columns import find_columns
from distillkit.data.readers import read_rows
from distillkit.data.tables import are_halves, is_second_name
from distillkit.data.words import (
    is_chinese,
    is_english,
    is_unsegmented,
    splitter,
)
from distillkit.errors import InputError
from distillkit.pipeline.student_choice import choose_student
from distillkit.recipe import ColumnsConfig, Task
from distillkit.recipe.bounds import number_in

Row = Mapping[str, Any]

MOST_ROWS = 200_000  # that are looked at
_CLASSES = 200  # most labels of a classification
_MANY_INTEGERS = 20  # more different whole numbers are scores
_SEPARATORS = "|;、，；"  # of labels, beside the one that is set
_LONGEST_NAME = 30  # characters; a column's name is shorter
_LOOKED_AT = 2_000  # rows that say how much text a column has
_ADDRESS = re.compile(r"(?:\w+://|www\.)\S+")
_SPLITS = {"train", "training", "dev", "development", "val", "valid", "validation", "test"}


@dataclass(frozen=True)
class Seen:
    """What a file of labelled text holds.

    Attributes:
        rows: Those that have a text and a label, of the first 200,000.
        lacking: Those that lack one.
        columns: Where text and label are.
        task: What a label is.
        labels: How many rows have each label; of scores, none.
        tokens: Words of a row, or characters of a script without spaces, that 99 % do not exceed.
        language: English, Chinese or other.
        student: The shelf's name of the one that suits, and why.
        labelled: Whether there are labels, or their names alone.
        other_text: A column of text that is not read, about as long as the text; or none.
        other_labels: Where the label is 0 or 1: columns that are not read and hold 0 and 1, too.
    """

    rows: int
    lacking: int
    columns: ColumnsConfig
    task: Task
    labels: dict[str, int]
    tokens: int
    language: str
    student: tuple[str, str]
    labelled: bool = True
    other_text: str = ""
    other_labels: tuple[str, ...] = ()


def look(source: str, columns: ColumnsConfig, labels: Sequence[str] = ()) -> Seen:
    """Find out what a file of labelled text holds; with `labels`, of text alone.

    Raises:
        InputError: It cannot be read, or no columns look like text and label.
    """
    if len(labels) == 1:
        raise InputError(f"--labels {labels[0]}: one label only; name two or more")
    rows = [row for _, row in islice(read_rows(source), MOST_ROWS)]
    if not rows:
        raise InputError(f"{source}: no rows")
    columns = _columns(source, rows, columns, labelled=not labels)
    sides = [name for name in (columns.text, columns.text_pair) if name]
    whole = [row for row in rows if all(_is_there(row.get(name)) for name in sides)]
    task: Task = "classification"
    counts, label = dict.fromkeys(labels, 0), columns.label
    if not labels:
        labelled = [row for row in whole if _is_there(row.get(label))]
        if labelled:
            task, counts, columns = _task(source, [row[label] for row in labelled], columns)
        if task == "multi-label":  # no label at all is an answer: none fits
            labelled = [row for row in whole if row.get(label) == "" or _is_there(row.get(label))]
        whole = labelled
    if not whole:
        wanted = sides if labels else [*sides, label]
        raise InputError(f"{source}: no row has {' and '.join(map(repr, wanted))}")
    _check_texts(source, whole, columns, counts)
    if task == "classification" and len(counts) < 2:
        raise InputError(
            f"{source}: column {columns.label!r} has one label only, {next(iter(counts))!r}; name another with --data.columns.label"
        )
    texts = [" ".join(str(row[name]) for name in sides) for row in whole]
    split = splitter(texts)
    words = [split(text) for text in texts]
    lengths = sorted(map(len, words))
    chinese, english = is_chinese(texts), is_english(texts)
    return Seen(
        rows=len(whole),
        lacking=len(rows) - len(whole),
        columns=columns,
        task=task,
        labels=counts,
        tokens=lengths[int(0.99 * (len(lengths) - 1))],
        language="Chinese" if chinese else "English" if english else "other",
        student=choose_student(texts, pairs=bool(columns.text_pair)),
        labelled=not labels,
        other_text="" if columns.text_pair else _other_text(whole, columns),
        other_labels=_other_labels(whole, columns, counts),
    )


def _is_there(value: Any) -> bool:
    text = "" if value is None else str(value).strip()
    return bool(text) and text.lower() != "nan"


def _columns(
    source: str, rows: Sequence[Row], columns: ColumnsConfig, *, labelled: bool
) -> ColumnsConfig:
    """Find text and label by their names, or else by what stands in the columns."""
    given = vars(columns).values()
    names = [name for name in rows[0] if name in given or not _are_splits(rows, name)]
    columns, _ = find_columns(names, columns)
    if columns.text not in names:
        others = [name for name in names if name not in (columns.label, columns.text_pair)]
        longest = max(others, key=lambda name: _mean_length(rows, name), default="")
        first = next((name for name in others if are_halves(name, longest)), "")
        columns = replace(columns, text=first if first and not columns.text_pair else longest)
    others = [name for name in names if name != columns.text]
    second = next((name for name in others if is_second_name(name, columns.text)), "")
    columns = replace(columns, text_pair=columns.text_pair or second)
    if not labelled:
        return replace(columns, text_pair="")  # nothing but labelled rows tells pairs apart
    if columns.label not in names:
        kinds = {name: len({str(row.get(name)) for row in rows}) for name in names}
        few = [name for name in names if 1 < kinds[name] <= min(_CLASSES, len(rows) / 2)]
        few = [name for name in few if name not in (columns.text, columns.text_pair)]
        if not few:
            raise InputError(
                f"{source}: no column looks like a label; there is {', '.join(map(repr, names))}: name yours with --data.columns.label"
            )
        columns = replace(columns, label=min(few, key=lambda name: kinds[name]))
    return columns


def _are_splits(rows: Sequence[Row], name: str) -> bool:
    return all(str(row.get(name)).lower() in _SPLITS for row in rows)


def _mean_length(rows: Sequence[Row], name: str) -> float:
    """Return the letters of a column's mean text; dates, numbers and addresses have few or none."""
    some = rows[:: max(1, len(rows) // _LOOKED_AT)]
    texts = [_ADDRESS.sub("", value) for row in some if isinstance(value := row.get(name), str)]
    return sum(sum(map(str.isalpha, text)) for text in texts) / len(some)


def _other_text(rows: Sequence[Row], columns: ColumnsConfig) -> str:
    """Return a column, beside text and label, that looks like the other half of pairs, or none."""
    enough = _mean_length(rows, columns.text) / 2
    for name in rows[0]:
        if name in (columns.text, columns.label) or _mean_length(rows, name) < enough:
            continue
        some = [str(row.get(name)) for row in rows[:1000]]
        words = sum(len(text.split()) for text in some)
        different = len(set(some)) > len(some) / 2
        if different and (words > 2 * len(some) or is_unsegmented(some)):
            return name
    return ""


def _check_texts(
    source: str, rows: Sequence[Row], columns: ColumnsConfig, labels: Mapping[str, int]
) -> None:
    """Refuse a file without a header, and texts that are no text."""
    for name in filter(None, (columns.text, columns.text_pair)):
        other = next((row[name] for row in rows if isinstance(row[name], list | dict)), None)
        if other is not None:
            raise InputError(
                f"{source}: column {name!r} has {str(other)[:60]!r}; expected text: name another with --data.columns.text"
            )
    # Chinese sentences are short, but a label called 0 beside a text that is none has no header.
    number = number_in(columns.label) is not None and number_in(columns.text) is None
    if columns.label in labels and (number or len(columns.text) > _LONGEST_NAME):
        raise InputError(
            f"{source}: the first line looks like a row: its label, {columns.label!r}, occurs again; put a line with the columns' names first"
        )


def _other_labels(
    rows: Sequence[Row], columns: ColumnsConfig, labels: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the columns beside a label of 0 and 1 that hold 0 and 1 as well."""
    binary = {"0", "1"}
    if set(labels) != binary:
        return ()
    others = (name for name in rows[0] if name != columns.label)
    return tuple(name for name in others if {str(row.get(name)) for row in rows} == binary)


def _task(
    source: str, labels: Sequence[Any], columns: ColumnsConfig
) -> tuple[Task, dict[str, int], ColumnsConfig]:
    """Say what the labels are, how many rows have each, and what separates several in a row."""
    if any(isinstance(label, list) for label in labels):
        names = Counter(str(name) for label in labels if isinstance(label, list) for name in label)
        return "multi-label", dict(names), columns
    texts = [str(label).strip().removesuffix(".0") for label in labels]
    counts = dict(Counter(texts).most_common())
    numbers = [number for text in texts if (number := number_in(text)) is not None]
    if len(numbers) == len(texts):
        whole = all(number.is_integer() for number in numbers)
        if not whole or len(counts) > _MANY_INTEGERS:
            return "regression", {}, columns
    where = f"{source}: column {columns.label!r}"
    if all(text.startswith("[") and text.endswith("]") for text in texts):
        raise InputError(
            f"{where} has lists written as text, such as {texts[0][:40]!r}: write the names alone, with a comma between them"
        )
    own = columns.label_separator
    for separator in dict.fromkeys(
        [own, *(_SEPARATORS if own == ColumnsConfig().label_separator else "")]
    ):
        rows = [[part.strip() for part in text.split(separator)] for text in texts]
        parts = Counter(part for row in rows for part in row if part)
        if max(map(len, rows)) == 1 or len(parts) > len(counts):
            continue
        if separator == "," and _are_decimals(rows):
            comma = next(text for text in texts if "," in text)
            raise InputError(
                f"{where} has numbers with a decimal comma, such as {comma!r}: write them with a point"
            )
        return "multi-label", dict(parts.most_common()), replace(columns, label_separator=separator)
    return "classification", counts, columns


def _are_decimals(rows: Sequence[Sequence[str]]) -> bool:
    """Say whether what a comma splits are the halves of numbers, and not tags that are numbers."""
    if max(map(len, rows)) > 2 or any(number_in(part) is None for row in rows for part in row):
        return False
    twice = any(len(set(row)) < len(row) for row in rows)
    zeros = any(len(row) == 2 and len(row[1]) > 1 and row[1][0] == "0" for row in rows)
    return twice or zeros or len({part for row in rows for part in row}) > _MANY_INTEGERS

"""Task kinds: what a label is in each, and how a model says which it was trained for.

A classification has one class a row, a multi-label task any number of labels, a regression a
number. Ordinal tasks are regressions over integers: MSE knows that 1 star is nearer to 2 than to 5,
which cross-entropy does not.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from distillkit.data.columns import no_column
from distillkit.errors import InputError, MissingValue
from distillkit.recipe import ColumnsConfig, Task

# Type of the canonical column `label`.
LABEL_TYPES: dict[Task, pa.DataType] = {
    "classification": pa.string(),
    "multi-label": pa.list_(
        pa.field("element", pa.string())
    ),  # the name that Parquet gives a list's items
    "regression": pa.float64(),
}
# transformers' word for each in a model's configuration.
PROBLEM_TYPES: dict[Task, str] = {
    "classification": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
# What turns a model's logits into an answer: the word of a logit store's manifest.
HEADS: dict[Task, str] = {
    "classification": "softmax",
    "multi-label": "sigmoid",
    "regression": "none",
}
_NEEDED = "; every row here needs a label"
_WHOLE = re.compile(r"[+-]?\d+\.0+")
SCORE = "score"  # the only label of a regression

Label = str | list[str] | float


def task_of_model(config: Any) -> Task:
    """Say which kind of task a model was trained for.

    Args:
        config: Its transformers configuration. One that says nothing is a classifier, or, having
            one output alone, a regression: what transformers itself would train it as.
    """
    for task, name in PROBLEM_TYPES.items():
        if config.problem_type == name:
            return task
    return "regression" if config.num_labels == 1 else "classification"


def labels_of(model: Any) -> list[str]:
    """List a model's labels in the order of its logits; of a regression, "score" alone."""
    if task_of_model(model.config) == "regression":
        return [SCORE]
    return names_of(model.config)


def unnamed(labels: Sequence[str]) -> bool:
    """Say whether labels are transformers' own names, which stand for the data's in their order."""
    return all(name == f"LABEL_{i}" for i, name in enumerate(labels))


def names_of(config: Any) -> list[str]:
    """List the names of a classifier's logits, in their order, as its configuration has them.

    Raises:
        InputError: They are not numbered from 0 on.
    """
    if sorted(config.id2label) != list(range(config.num_labels)):
        raise InputError(
            f"config.json: id2label has the numbers {', '.join(map(str, sorted(config.id2label)))}; expected 0 to {config.num_labels - 1}, one a logit"
        )
    return [str(config.id2label[i]) for i in range(config.num_labels)]  # some are numbers


def named(labels: Sequence[str]) -> dict[str, Any]:
    """Return what a model's configuration says of C labels, in the order of the logits."""
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def task_of_labels(kind: pa.DataType) -> Task:
    """Say which kind of task a canonical `label` column of this type is of."""
    return next(task for task, label_type in LABEL_TYPES.items() if label_type == kind)


def parse_label(
    row: dict[str, Any],
    columns: ColumnsConfig,
    place: str,
    task: Task,
    known: Sequence[str],
    *,
    required: bool,
) -> Label | None:
    """Read a row's label as the task has it.

    Args:
        row: Raw values by column.
        columns: Names the label's column.
        place: Where the row stands, for errors.
        task: What a label is. An empty text is a missing label, but no label at all (an answer) in
            a multi-label task.
        known: Labels that training saw; empty: any will do.
        required: Refuse a missing label.

    Returns:
        A class; labels, distinct and by code point; or a finite number. None where it is missing.

    Raises:
        InputError: The label is missing, no label of this task, or not `known`.
    """
    column = columns.label
    if column not in row:
        if required:
            raise no_column(row, column, place, "--data.columns.label")
        return None
    value, where = row[column], f"{place}: column {column!r}"
    blank = isinstance(value, str) and not value.strip()
    if value is None or (blank and task != "multi-label"):
        if required:
            raise MissingValue(place, f"column {column!r} is empty", _NEEDED)
        return None
    if task == "regression":
        return _number(value, where)
    names = (
        _names(value, where, columns.label_separator)
        if task == "multi-label"
        else [_class_name(value, where)]
    )
    unknown = next((name for name in names if known and name not in known), None)
    if unknown is not None:
        raise unknown_label(place, unknown, known)
    return names if task == "multi-label" else names[0]


def unknown_label(place: str, label: str, known: Sequence[str]) -> InputError:
    """Return the error of a label that training never saw."""
    shown = ", ".join(map(repr, known[:20])) + (" ..." if len(known) > 20 else "")
    return InputError(
        f"{place}: label {label!r} was never seen in training; known: {shown}. Correct it, or add such rows to the training data"
    )


def _names(value: Any, where: str, separator: str) -> list[str]:
    # Of two, [0, 1] may be the names of two labels; one name does not stand in a row twice.
    several = isinstance(value, list) and (len(value) > 2 or len({*map(str, value)}) < len(value))
    if several and all(one in (0, 1) for one in value):
        raise InputError(
            f"{where} is {str(value)[:60]}, zeros and ones; expected the names of the row's labels, such as ['food', 'price']"
        )
    items = (
        value.split(separator)
        if isinstance(value, str)
        else value
        if isinstance(value, list)
        else [value]
    )
    return sorted({_class_name(item, where).strip() for item in items} - {""})


def _class_name(value: Any, where: str) -> str:
    if not isinstance(value, str | int | float | None) or value in (math.inf, -math.inf):
        raise InputError(
            f"{where} is {value!r}; expected a class, by name or integer; for lists of labels give --data.task multi-label"
        )
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if _WHOLE.fullmatch(text):  # as pandas writes integers beside a missing value
        text = text.partition(".")[0]
    if value is None or text.lower() == "nan":
        place, _, column = where.rpartition(": ")
        raise MissingValue(place, f"{column} is NaN", _NEEDED)
    if _is_fraction(text):
        raise InputError(
            f"{where} is {text}, a number with a fraction; expected a class, by name or integer; for scores give --data.task regression"
        )
    return text


def _is_fraction(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and not float(text).is_integer()
    except ValueError:
        return False


def _number(value: Any, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if str(value).strip().lower() == "nan":
        place, _, column = where.rpartition(": ")
        raise MissingValue(place, f"{column} is NaN", _NEEDED)
    if not math.isfinite(number):
        raise InputError(
            f"{where} is {value!r}; expected a finite number, as --data.task regression has it; for classes give --data.task classification"
        )
    return number

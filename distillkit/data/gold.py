"""The labels of a table: their names, their numbers, and whether they fit a model."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from distillkit.data.labels import LABEL_TYPES, SCORE, task_of_labels, unknown_label
from distillkit.errors import InputError
from distillkit.recipe import Task


def label_names(table: pa.Table, source: str = "training data") -> list[str]:
    """List the labels of a training table, as `labels_in` does.

    Args:
        table: Canonical, labelled.
        source: Named in the error.

    Raises:
        InputError: There are fewer than two classes or different scores, or no label at all.
    """
    found = _flat(table["label"]).unique().to_pylist()
    if not found:
        raise InputError(f"{source}: no row has a label; a classifier is trained on labelled rows")
    task = task_of_labels(table["label"].type)
    if len(found) < 2 and task != "multi-label":
        what = "one class only" if task == "classification" else "one score only"
        raise InputError(
            f"{source}: {what} ({', '.join(map(repr, found))}); a {'classifier' if task == 'classification' else task} needs at least two: "
            f"check --data.columns.label"
        )
    return labels_in(table)


def labels_in(table: pa.Table) -> list[str]:
    """List the labels of a canonical table in the order of their ids.

    Integers are ordered by value, names by code point.

    Returns:
        The labels that any row has; of a regression "score" alone.
    """
    if task_of_labels(table["label"].type) == "regression":
        return [SCORE]
    found = _flat(table["label"]).unique().to_pylist()
    try:
        return sorted(found, key=lambda name: (int(name), name))  # 1 and 01 are two names
    except ValueError:
        return sorted(found)


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return every label of every row; what is missing is left out."""
    flat = pa.compute.list_flatten(column) if pa.types.is_list(column.type) else column
    return flat.drop_null()


def check_labels_known(table: pa.Table, names: Sequence[str], source: str) -> None:
    """Refuse a table with a label that training never saw; a score is never unknown.

    Raises:
        InputError: There is one; the message says the first row with it.
    """
    task = task_of_labels(table["label"].type)
    if task == "regression":
        return
    known = set(names)
    if known.issuperset(_flat(table["label"]).unique().to_pylist()):
        return
    for number, label in enumerate(table["label"].to_pylist(), start=1):
        for name in [label] if task == "classification" else label or []:
            if name is not None and name not in known:
                raise unknown_label(f"{source} row {number}", name, names)


def check_task(table: pa.Table, task: Task, source: str) -> None:
    """Refuse a table whose labels are of another task.

    Raises:
        InputError: They are.
    """
    if table["label"].type != LABEL_TYPES[task]:
        raise InputError(
            f"{source}: its labels are of a {task_of_labels(table['label'].type)} task, the model is for {task}; give labels of its kind"
        )


def label_ids(table: pa.Table, names: Sequence[str]) -> list[int]:
    """Return each row's label as its place in `names`; -100, which losses ignore, for none."""
    place = {name: i for i, name in enumerate(names)}
    return [-100 if label is None else place[label] for label in table["label"].to_pylist()]


def gold_of(table: pa.Table, names: Sequence[str], task: Task) -> np.ndarray:
    """Return the labels of N rows as a loss or a metric takes them.

    Args:
        table: Canonical, with a `label` column.
        names: C labels in the order of the logits.
        task: What the labels are expected to be.

    Returns:
        Of a classification class numbers, (N,) int64, -100 where there is none; of a multi-label
        task 0 and 1, (N, C) float32, and of a regression scores, (N,) float32: NaN where there is
        none.

    Raises:
        InputError: The labels are of another task.
    """
    check_task(table, task, "the table")
    column = table["label"]
    if task == "classification":
        return np.array(label_ids(table, names), np.int64)
    if task == "regression":
        return column.to_numpy().astype(np.float32)
    place = {name: i for i, name in enumerate(names)}
    gold = np.zeros((len(table), len(names)), np.float32)
    for row, labels in enumerate(column.to_pylist()):
        gold[row, [] if labels is None else [place[name] for name in labels]] = 1
    gold[column.is_null().to_numpy()] = np.nan
    return gold


def class_counts(table: pa.Table) -> dict[str, int]:
    """Count each label, most frequent first; equal counts by name."""
    counts: Iterable[tuple[str, int]] = Counter(_flat(table["label"]).to_pylist()).items()
    return dict(sorted(counts, key=lambda item: (-item[1], item[0])))


def label_summary(table: pa.Table) -> dict[str, float]:
    """Return how many rows have each label, or the `least`, `mean` and `most` of scores."""
    if task_of_labels(table["label"].type) != "regression":
        return dict(class_counts(table))
    scores = table["label"].drop_null().to_numpy()
    return {"least": float(scores.min()), "mean": float(scores.mean()), "most": float(scores.max())}

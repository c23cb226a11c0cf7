"""A teacher that tells labelled rows apart no better than guessing is refused in every task."""

import numpy as np
import pyarrow as pa
import pytest

from distillkit.data.labels import LABEL_TYPES
from distillkit.errors import InputError
from distillkit.teacher.chance import refuse_chance

RNG = np.random.default_rng(0)
ROWS = 200
GOLD = {
    "classification": ["x" if i % 4 else "y" for i in range(ROWS)],
    "multi-label": [["a"] * (i % 10 == 0) + ["b"] * (i % 3 == 0) for i in range(ROWS)],
    "regression": [float(i % 6) for i in range(ROWS)],
}
NAMES = {"classification": ["x", "y"], "multi-label": ["a", "b"], "regression": ["score"]}
KNOWS = {
    "classification": np.array(
        [[label == "x", label == "y"] for label in GOLD["classification"]], float
    ),
    "multi-label": np.array([["a" in row, "b" in row] for row in GOLD["multi-label"]]) * 2.0 - 1,
    "regression": np.array(GOLD["regression"])[:, None],
}


def check(task, logits, labels=None):
    gold = pa.array(GOLD[task] if labels is None else labels, LABEL_TYPES[task])
    table = pa.table({"text": [f"t{i}" for i in range(len(gold))], "label": gold})
    return refuse_chance(table, lambda rows: logits[: len(rows)], NAMES[task], task, "teacher")


@pytest.mark.parametrize("task", GOLD)
def test_a_teacher_that_knows_the_task_gets_its_score(task):
    assert check(task, KNOWS[task]) == pytest.approx(1)


@pytest.mark.parametrize("task", GOLD)
@pytest.mark.parametrize("how", ["guesses", "always says the same", "says the opposite"])
def test_a_teacher_that_does_not_is_refused(task, how):
    logits = {
        "guesses": RNG.normal(size=KNOWS[task].shape),
        "always says the same": np.tile(np.arange(KNOWS[task].shape[1]), (ROWS, 1)) * 1.0,
        "says the opposite": -KNOWS[task],
    }[how]
    with pytest.raises(
        InputError,
        match=r"teacher: the teacher is at chance on the labelled rows: .* over 200 rows",
    ):
        check(task, logits)


def test_labels_in_another_order_are_named_where_somebody_ordered_them():
    gold = pa.array([str(i % 4) for i in range(ROWS)])
    table = pa.table({"text": [f"t{i}" for i in range(ROWS)], "label": gold})
    logits, labels = np.eye(4)[np.arange(ROWS) % 4], ["0", "2", "1", "3"]

    def checked(**order):
        return refuse_chance(table, lambda rows: logits, labels, "classification", "t", **order)

    assert checked() == 0.5
    with pytest.raises(
        InputError, match=r"but on 200 labelled rows rather of 0, 1, 2, 3; .* with here"
    ):
        checked(order="here")
    same = np.tile(np.arange(4.0), (ROWS, 1))
    with pytest.raises(InputError, match="at chance"):
        refuse_chance(table, lambda rows: same, labels, "classification", "t", order="here")


def test_a_teacher_that_ranks_rare_labels_right_may_stay_below_a_half():
    assert check("multi-label", KNOWS["multi-label"] - 5) == 0  # micro-F1: it names no label


def test_labels_that_tell_no_rows_apart_cannot_be_checked():
    assert check("regression", KNOWS["regression"], [2.0] * ROWS) == 0
    assert check("multi-label", np.ones((ROWS, 2)), [["a", "b"]] * ROWS) == 1


def test_a_recall_of_few_rows_is_not_sure():
    """Recalls of 0.52 and 0.56 are within two standard errors of guessing where 100 rows are y."""
    labels = ["x"] * 1900 + ["y"] * 100
    says_y = np.r_[np.arange(1900) >= 988, np.arange(100) < 56].astype(float)
    with pytest.raises(InputError, match="at chance on the labelled rows"):
        check("classification", np.stack([1 - says_y, says_y], 1), labels)


def test_of_three_rows_a_teacher_that_is_right_is_no_guesser():
    assert check("classification", KNOWS["classification"], ["y", "x", "x"]) == 1


@pytest.mark.parametrize("task", GOLD)
def test_logits_that_are_no_numbers_are_not_called_guesses(task):
    with pytest.raises(InputError, match=r"teacher: a logit is nan, expected a finite .*'t0'"):
        check(task, np.full_like(KNOWS[task], np.nan))


def test_rows_without_a_label_do_not_count():
    labels = [None if i < ROWS // 2 else value for i, value in enumerate(GOLD["regression"])]
    assert check(
        "regression", np.array(GOLD["regression"])[ROWS // 2 :][:, None], labels
    ) == pytest.approx(1)
    assert check("regression", np.zeros((ROWS, 1)), [None] * ROWS) is None

"""Several teachers become one by given weights, by their dev scores, or by how sure they are of a row."""

import json

import numpy as np
import pyarrow as pa
import pytest

from distillkit.data.labels import LABEL_TYPES
from distillkit.data.logits import shard_table, write_shard
from distillkit.data.weighting import certainty, teacher_targets
from distillkit.errors import InputError
from distillkit.recipe import LossConfig

ROWS = pa.table({"text": ["a", "b"]})
DEV = pa.table({"text": ["d0", "d1", "d2", "d3"], "label": ["no", "yes", "yes", "no"]})
LABELS = ["no", "yes"]


@pytest.fixture
def store(tmp_path):
    """Write teachers, each with logits for ROWS and, where they are given, for DEV."""

    def build(head="softmax", labels=LABELS, **teachers):
        for name, (rows, dev) in teachers.items():
            folder = tmp_path / name
            folder.mkdir()
            (folder / "manifest.json").write_text(
                json.dumps({"format": 2, "labels": labels, "head": head})
            )
            for table, logits in ((ROWS, rows), (DEV, dev)):
                if logits is not None:
                    write_shard(
                        folder,
                        shard_table(table, np.array(logits, np.float32), "fp32", name, labels),
                    )
        return tmp_path

    return build


def says(*answers):
    """Logits of a teacher that gives these class numbers."""
    return (np.eye(2, dtype=np.float32)[list(answers)] * 4).tolist()


def test_given_weights_are_scaled_to_sum_to_one(store):
    folder = store(x=([[2, 0], [2, 0]], None), y=([[0, 4], [0, 4]], None))
    logits, weights = teacher_targets(ROWS, folder, LossConfig(teachers=("x=3", "y")), DEV)
    assert logits.tolist() == [[1.5, 1], [1.5, 1]]
    assert weights == {"x": 0.75, "y": 0.25}
    assert teacher_targets(ROWS, folder, LossConfig(), DEV)[0].tolist() == [[1, 2], [1, 2]]


def test_a_teacher_weighs_what_its_dev_score_is_above_chance(store):
    # The commonest class has half of dev; the teachers have 4, 3 and 2 of 4 right: half, a quarter
    # and nothing above chance.
    folder = store(
        all=([[8, 0], [8, 0]], says(0, 1, 1, 0)),
        most=([[0, 8], [0, 8]], says(0, 1, 1, 1)),
        none=([[99, 99], [99, 99]], says(0, 0, 1, 1)),
    )
    logits, weights = teacher_targets(ROWS, folder, LossConfig(teacher_weighting="dev"), DEV)
    assert weights == pytest.approx({"all": 2 / 3, "most": 1 / 3})
    np.testing.assert_allclose(logits, [[16 / 3, 8 / 3]] * 2, rtol=1e-6)
    two = LossConfig(teacher_weighting="dev", teachers=("most", "none"))
    assert teacher_targets(ROWS, folder, two, DEV)[1] == {"most": 1}


def test_weighting_by_dev_needs_dev_logits_and_a_teacher_above_chance(store):
    folder = store(x=([[1, 0], [1, 0]], None), y=([[1, 0], [1, 0]], None))
    dev = LossConfig(teacher_weighting="dev")
    with pytest.raises(
        InputError, match=r"loss\.teacher_weighting is dev, .*4 of 4 rows have no logits"
    ):
        teacher_targets(ROWS, folder, dev, DEV)
    # One teacher alone has all the weight there is.
    assert teacher_targets(ROWS, folder, LossConfig(teacher_weighting="dev", teachers=("x",)), DEV)[
        1
    ] == {"x": 1}


def test_teachers_at_chance_are_refused(store):
    folder = store(x=([[1, 0], [1, 0]], says(0, 0, 0, 0)), y=([[1, 0], [1, 0]], says(1, 0, 0, 1)))
    with pytest.raises(
        InputError,
        match=r"no teacher is above 0\.500, which is chance, on dev: x 0\.500, y 0\.000; choose given",
    ):
        teacher_targets(ROWS, folder, LossConfig(teacher_weighting="dev"), DEV)


def test_scores_are_weighted_by_correlation(store):
    dev = DEV.set_column(1, "label", pa.array([1.0, 2.0, 3.0, 4.0], LABEL_TYPES["regression"]))
    folder = store(
        "none",
        ["score"],
        x=([[3], [3]], [[1], [2], [3], [4]]),
        y=([[9], [9]], [[4], [3], [2], [1]]),
    )
    logits, weights = teacher_targets(ROWS, folder, LossConfig(teacher_weighting="dev"), dev)
    assert (logits.tolist(), weights) == ([[3], [3]], {"x": 1})
    with pytest.raises(
        InputError, match=r"loss\.teacher_weighting is confidence, but the task is regression"
    ):
        teacher_targets(ROWS, folder, LossConfig(teacher_weighting="confidence"), dev)


def test_the_surer_teacher_of_a_row_has_the_say(store):
    folder = store(x=([[50, 0], [1, 1]], None), y=([[2, 2], [0, 50]], None))
    logits, weights = teacher_targets(ROWS, folder, LossConfig(teacher_weighting="confidence"), DEV)
    np.testing.assert_allclose(logits, [[50, 0], [0, 50]], atol=1e-3)
    assert weights == {}


def test_where_nobody_knows_anything_the_mean_is_left(store):
    folder = store(x=([[3, 3], [3, 3]], None), y=([[1, 1], [1, 1]], None))
    logits, _ = teacher_targets(ROWS, folder, LossConfig(teacher_weighting="confidence"), DEV)
    np.testing.assert_allclose(logits, [[2, 2], [2, 2]], rtol=1e-4)


def test_certainty_is_what_entropy_leaves_of_the_most_there_is():
    half = np.log([[0.9, 0.1]])
    entropy = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1)) / np.log(2)
    assert certainty(half) == pytest.approx(1 - entropy)
    assert certainty(np.zeros((1, 5))) == pytest.approx(0)
    # Two labels, one at 0.9 and one without doubt.
    odds = np.array([[np.log(9), 99.0]])
    assert certainty(odds, sigmoid=True) == pytest.approx(1 - entropy / 2)


def test_certainty_in_three_classes_is_of_their_own_most_entropy():
    assert certainty(np.array([[0.0, 0.0, -99.0]])) == pytest.approx(1 - np.log(2) / np.log(3))


def test_teachers_of_another_kind_of_task_are_not_averaged(store):
    store(x=([[1, 0], [1, 0]], None))
    folder = store("sigmoid", y=([[1, 0], [1, 0]], None))
    with pytest.raises(InputError, match=r"teacher 'y' has the head sigmoid, teacher 'x' softmax"):
        teacher_targets(ROWS, folder, LossConfig(), DEV)

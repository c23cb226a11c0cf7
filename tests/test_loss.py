"""The losses against hand calculations, and what must not change them."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.testing import assert_close

from distillkit.errors import InputError
from distillkit.loss import (
    DistillationLoss,
    gold_loss,
    hard_label_loss,
    logits_mse_loss,
    soft_multi_label_loss,
    soft_target_loss,
)
from distillkit.recipe import LossConfig
from distillkit.recipe.kinds import LOSSES

# Every kind and mix that a recipe may ask for.
CONFIGS = [
    LossConfig(name, alpha, temperature)
    for (name, kind), alpha in product(LOSSES.items(), (0.0, 0.3, 1.0))
    for temperature in ((1.0, 4.0) if kind.softens else (1.0,))
]
MATCHING = [
    logits_mse_loss,
    soft_target_loss,
    lambda student, teacher: soft_target_loss(student, teacher, 4.0),
    soft_multi_label_loss,
    lambda student, teacher: soft_multi_label_loss(student, teacher, 4.0),
]


@pytest.fixture
def logits():
    """Student and teacher logits, (5, 3), the student's with gradient."""
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 5, 3, generator=generator)
    return student.requires_grad_(), teacher.requires_grad_()


def test_mse_by_hand():
    student = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    teacher = torch.tensor([[1.0, 0.0, 4.0], [2.0, -1.0, 0.0]])
    assert logits_mse_loss(student, teacher).item() == ((0 + 4 + 1) + (4 + 1 + 0)) / 2


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_soft_targets_by_hand(temperature):
    # The logits are T times the logarithms of the wanted odds, so the softened distributions are
    # known fractions.
    target, found = [[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]], [[0.25, 0.5, 0.25], [0.2, 0.4, 0.4]]
    teacher, student = (temperature * torch.tensor(odds).log() for odds in (target, found))
    divergence = 0.5 * math.log(0.5 / 0.25) + 0.25 * math.log(0.25 / 0.5)
    expected = temperature**2 * (divergence + 0) / 2
    assert_close(soft_target_loss(student, teacher, temperature), torch.tensor(expected))


def test_hard_labels_by_hand():
    student = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
    expected = -(math.log(0.5) + math.log(0.2)) / 2
    assert_close(hard_label_loss(student, None, torch.tensor([0, 1])), torch.tensor(expected))


def test_soft_targets_go_from_teacher_to_student():
    teacher, student = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.5, 0.5]]).log()
    forward = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    backward = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert abs(forward - backward) > 0.1
    assert_close(soft_target_loss(student, teacher), torch.tensor(forward))


@pytest.mark.parametrize("loss", MATCHING)
def test_zero_when_equal_and_positive_when_not(loss, logits):
    student, teacher = logits
    assert abs(loss(teacher, teacher).item()) < 1e-6
    assert loss(student, teacher).item() > 0.1


@settings(deadline=None)
@given(
    st.lists(st.floats(-5, 5, width=32), min_size=5, max_size=5), st.sampled_from([0.5, 1.0, 8.0])
)
def test_constant_added_to_a_row_leaves_soft_targets_as_they_are(constants, temperature):
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 5, 3, generator=generator)
    row = torch.tensor(constants)[:, None]
    before = soft_target_loss(student, teacher, temperature)
    assert_close(
        soft_target_loss(student + row, teacher, temperature), before, atol=1e-4, rtol=1e-4
    )
    assert_close(
        soft_target_loss(student, teacher + row, temperature), before, atol=1e-4, rtol=1e-4
    )


def test_constant_added_to_a_row_changes_the_distance_of_logits(logits):
    _, teacher = logits
    assert logits_mse_loss(teacher + 1, teacher).item() == pytest.approx(3)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize(
    "labels", [None, torch.tensor([0, -100, 2, -100, 1])], ids=["unlabelled", "some labels"]
)
def test_gradient_reaches_the_student_and_never_the_teacher(config, labels, logits):
    student, teacher = logits
    DistillationLoss(config)(student, teacher, labels).backward()
    assert student.grad.abs().sum() > 0
    assert teacher.grad is None


@pytest.mark.parametrize(("kind", "temperature"), [("mse", 1.0), ("soft", 4.0)])
def test_alpha_one_is_exactly_cross_entropy(kind, temperature, logits):
    student, teacher = logits
    labels = torch.tensor([0, 1, 2, 1, 0])
    loss = DistillationLoss(LossConfig(kind, 1.0, temperature))
    expected = functional.cross_entropy(student, labels)
    assert torch.equal(loss(student, teacher, labels), expected)
    assert torch.equal(loss(student, None, labels), expected)


def test_alpha_zero_is_exactly_the_distance_of_the_logits_whatever_the_labels(logits):
    student, teacher = logits
    loss = DistillationLoss()
    assert torch.equal(loss(student, teacher), logits_mse_loss(student, teacher))
    assert torch.equal(
        loss(student, teacher, torch.tensor([0, 1, 2, 1, 0])), logits_mse_loss(student, teacher)
    )


def test_alpha_weighs_the_hard_term_and_the_rest_the_soft_one(logits):
    student, teacher = logits
    labels = torch.tensor([0, 1, 2, 1, 0])
    expected = 0.3 * functional.cross_entropy(student, labels) + 0.7 * soft_target_loss(
        student, teacher, 4.0
    )
    assert_close(DistillationLoss(LossConfig("soft", 0.3, 4.0))(student, teacher, labels), expected)


def test_teachers_argmax_stands_in_where_the_label_is_missing():
    student = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 3.0]])
    teacher = torch.tensor([[0.0, 9.0, 0.0], [9.0, 0.0, 0.0]])
    found = hard_label_loss(student, teacher, torch.tensor([-100, 2]))
    assert torch.equal(found, functional.cross_entropy(student, torch.tensor([1, 2])))
    assert torch.equal(
        hard_label_loss(student, teacher, None),
        functional.cross_entropy(student, torch.tensor([1, 0])),
    )


@pytest.mark.parametrize("loss", [soft_target_loss, soft_multi_label_loss])
def test_gradient_keeps_its_size_when_the_temperature_doubles(loss):
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(64, 3, generator=generator)
    norms = []
    for temperature in (8.0, 16.0):
        student = torch.zeros(64, 3, requires_grad=True)
        loss(student, teacher, temperature).backward()
        norms.append(student.grad.norm().item())
    assert norms[0] / norms[1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    "labels", [None, torch.tensor([0, 1, 2, 1, 0])], ids=["unlabelled", "labelled"]
)
def test_temperature_squared_applies_with_and_without_labels(labels, logits):
    student, teacher = logits
    bare = functional.kl_div(
        (student / 4).log_softmax(1),
        (teacher / 4).log_softmax(1),
        reduction="batchmean",
        log_target=True,
    )
    assert_close(
        DistillationLoss(LossConfig("soft", 0.0, 4.0))(student, teacher, labels), 16 * bare
    )


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_loss_of_half_precision_logits_is_a_float32_number(config, logits):
    student, teacher = (x.detach().bfloat16() for x in logits)
    found = DistillationLoss(config)(student, teacher)
    assert (found.dtype, found.shape) == (torch.float32, ())
    assert_close(found, DistillationLoss(config)(student.float(), teacher.float()))


@pytest.mark.parametrize("loss", MATCHING)
def test_shapes_that_would_broadcast_are_refused(loss):
    with pytest.raises(ValueError, match=r"student logits are \(4, 3\), teacher logits \(1, 3\)"):
        loss(torch.zeros(4, 3), torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"expected the same \(B, C\)"):
        loss(torch.zeros(4), torch.zeros(4))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("loss", [soft_target_loss, soft_multi_label_loss])
def test_a_temperature_that_is_not_finite_and_positive_is_refused(loss, temperature):
    with pytest.raises(ValueError, match=f"temperature is {temperature}: expected a finite number"):
        loss(torch.zeros(1, 2), torch.zeros(1, 2), temperature)
    with pytest.raises(
        InputError, match=f"loss.temperature is {temperature}: expected .*more than 0"
    ):
        LossConfig(temperature=temperature)


@pytest.mark.parametrize("config", [*CONFIGS[:2], LossConfig(alpha=1.0)], ids=str)
def test_an_empty_batch_is_refused(config):
    none = torch.zeros(0, 2)
    with pytest.raises(ValueError, match="the batch is empty: expected at least 1 row"):
        DistillationLoss(config)(none, none, torch.zeros(0, dtype=torch.int64))


def test_an_unknown_task_is_refused():
    with pytest.raises(InputError, match="task is 'multilabel': expected one of classification, m"):
        DistillationLoss(task="multilabel")


def test_missing_label_without_a_teacher_is_refused():
    with pytest.raises(ValueError, match="neither a gold label nor a teacher's logits"):
        DistillationLoss(LossConfig(alpha=1.0))(torch.zeros(2, 2), None, torch.tensor([0, -100]))


def test_missing_teacher_is_refused_unless_labels_alone_teach():
    with pytest.raises(ValueError, match=r"alpha is 0\.5, so the teacher's logits are needed"):
        DistillationLoss(LossConfig(alpha=0.5))(torch.zeros(2, 2), None, torch.tensor([0, 1]))


# ---- several labels, and scores


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_soft_labels_by_hand(temperature):
    # Logits are T times the log odds of the wanted probabilities.
    def logits(p):
        return temperature * torch.tensor([[math.log(x / (1 - x)) for x in p]])

    def divergence(p, q):
        return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))

    expected = temperature**2 * (divergence(0.8, 0.5) + divergence(0.25, 0.75))
    found = soft_multi_label_loss(logits([0.5, 0.75]), logits([0.8, 0.25]), temperature)
    assert_close(found, torch.tensor(expected))


def test_the_gradient_of_soft_labels_is_that_of_their_cross_entropy(logits):
    student, teacher = logits
    soft_multi_label_loss(student, teacher, 2.0).backward()
    bare = student.detach().clone().requires_grad_()
    target = (teacher / 2).sigmoid().detach()
    (
        4
        * functional.binary_cross_entropy_with_logits(bare / 2, target, reduction="none")
        .sum(1)
        .mean()
    ).backward()
    assert_close(student.grad, bare.grad)


def test_labels_by_hand():
    student, gold = (
        torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]),
        torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
    )
    # Probabilities 1/2 and 3/4; 1/2 and 1/2.
    expected = -(math.log(0.5) + math.log(0.25) + 2 * math.log(0.5)) / 2
    assert_close(gold_loss("multi-label", student, gold), torch.tensor(expected))
    assert_close(gold_loss("multi-label", student, gold.long()), torch.tensor(expected))


def test_scores_by_hand():
    assert (
        gold_loss("regression", torch.tensor([[1.0], [4.0]]), torch.tensor([3.0, 3.0])).item()
        == (4 + 1) / 2
    )


GOLD = {
    "classification": torch.tensor([0, 1, 2, 1, 0]),
    "multi-label": torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1]]),
    "regression": torch.tensor([0.5, -1.0, 2.0, 0.0, 3.0]),
}
NONE = {"classification": -100, "multi-label": math.nan, "regression": math.nan}


def of_task(task, logits):
    return tuple(x.detach()[:, :1] if task == "regression" else x.detach() for x in logits)


@pytest.mark.parametrize("task", GOLD)
def test_alpha_one_is_the_gold_loss_and_alpha_zero_never_looks_at_labels(task, logits):
    student, teacher = of_task(task, logits)
    hard, soft = DistillationLoss(LossConfig(alpha=1.0), task), DistillationLoss(LossConfig(), task)
    assert torch.equal(hard(student, None, GOLD[task]), gold_loss(task, student, GOLD[task]))
    assert torch.equal(soft(student, teacher, GOLD[task]), logits_mse_loss(student, teacher))


@pytest.mark.parametrize("task", GOLD)
def test_the_teachers_own_answer_stands_in_for_a_missing_label(task, logits):
    student, teacher = of_task(task, logits)
    answer = {
        "classification": teacher.argmax(1),
        "multi-label": (teacher.sigmoid() > 0.5).float(),
        "regression": teacher[:, 0],
    }
    some, filled = GOLD[task].clone(), GOLD[task].clone()
    some[[1, 3]], filled[[1, 3]] = NONE[task], answer[task][[1, 3]]
    found = hard_label_loss(student, teacher, some, task=task)
    assert torch.equal(found, gold_loss(task, student, filled))
    assert torch.equal(
        hard_label_loss(student, teacher, None, task=task), gold_loss(task, student, answer[task])
    )
    for labels in (some, None):
        with pytest.raises(ValueError, match="neither a gold label nor a teacher's logits"):
            hard_label_loss(student, None, labels, task=task)


@pytest.mark.parametrize("task", GOLD)
@pytest.mark.parametrize("labels", [None, GOLD], ids=["unlabelled", "labelled"])
def test_gradient_reaches_the_student_alone_in_every_task(task, labels, logits):
    student, teacher = (x.clone().requires_grad_() for x in of_task(task, logits))
    DistillationLoss(LossConfig(alpha=0.5), task)(
        student, teacher, labels and labels[task]
    ).backward()
    assert student.grad.isfinite().all()
    assert student.grad.abs().sum() > 0
    assert teacher.grad is None


def test_soft_targets_of_several_labels_are_those_of_each_label(logits):
    student, teacher = logits
    found = DistillationLoss(LossConfig("soft", temperature=3.0), "multi-label")(student, teacher)
    assert torch.equal(found, soft_multi_label_loss(student, teacher, 3.0))


def test_what_a_score_has_no_meaning_for_is_refused_with_the_reason():
    with pytest.raises(
        InputError, match=r"loss\.kind is soft, but the task is regression, and a score"
    ):
        DistillationLoss(LossConfig("soft"), "regression")


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("classification", torch.tensor([0])),
        ("regression", torch.zeros(3, 1)),
        ("multi-label", torch.zeros(2)),
    ],
)
def test_labels_of_another_shape_are_refused_and_never_stretched(task, labels):
    student = torch.zeros(3, 1 if task == "regression" else 2)
    for loss in (LossConfig(alpha=1.0), LossConfig(alpha=0.5)):
        with pytest.raises(ValueError, match="labels are"):
            DistillationLoss(loss, task)(student, student, labels)

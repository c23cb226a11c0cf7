import copy

import pyarrow as pa
import pytest
import torch

from distillkit.data.batches import encode
from distillkit.errors import InputError
from distillkit.recipe import LossConfig, StudentConfig, TrainingConfig
from distillkit.student.build import build_student
from distillkit.student.states import LearnsStates, StatesLoss, with_states
from distillkit.student.train import DistillationTask, prepare, training_rows
from distillkit.training.inference import predict_logits
from distillkit.training.loop import fit
from distillkit.training.plan import FitPlan
from tests.student.conftest import LABELS, TEXTS


def cut(bert, layers=2, hidden_size=0):
    config = StudentConfig("transformer", hidden_size=hidden_size, layers=layers, dropout=0.0)
    return build_student([], LABELS, config, 1, teacher=bert)[0]


@pytest.fixture
def inputs(bert):
    return dict(bert[1](["a b c d", "x"], padding=True, return_tensors="pt"))


def test_a_student_that_is_its_teacher_has_nothing_to_learn(bert, inputs):
    student = cut(bert, layers=4)
    logits, extra = StatesLoss(student, bert[0], 1.0, 1.0)(inputs)
    assert extra.abs().max() < 1e-9
    torch.testing.assert_close(logits, bert[0](**inputs).logits)


@pytest.mark.parametrize(("hidden", "attention"), [(2.0, 0.0), (0.0, 3.0)])
def test_the_loss_is_that_of_the_layers_by_hand(bert, inputs, hidden, attention):
    student = cut(bert).eval()
    _, extra = StatesLoss(student, bert[0], hidden, attention)(inputs)
    teacher = copy.deepcopy(bert[0])
    teacher.set_attn_implementation("eager")
    student.set_attn_implementation("eager")
    mine, theirs = (
        net(**inputs, output_hidden_states=True, output_attentions=True)
        for net in (student, teacher)
    )
    for row, length in enumerate(inputs["attention_mask"].sum(1).tolist()):
        expected = 0.0
        for i, j in ((0, 0), (1, 2), (2, 4)):
            difference = mine.hidden_states[i][row, :length] - theirs.hidden_states[j][row, :length]
            expected += hidden * difference.square().mean().item()
        for i, j in ((0, 1), (1, 3)):  # scores are log-probabilities but for one number a row
            scores = []
            for net, layer, states in ((student, i, mine), (teacher, j, theirs)):
                attend = net.bert.encoder.layer[layer].attention.self
                q, k = (
                    f(states.hidden_states[layer][row, :length]).view(length, 2, 4).transpose(0, 1)
                    for f in (attend.query, attend.key)
                )
                scores.append(q @ k.transpose(1, 2) / 2)
                given = states.attentions[layer][row, :, :length, :length]
                torch.testing.assert_close(scores[-1].softmax(2), given, atol=1e-5, rtol=0)
            expected += attention * (scores[0] - scores[1]).square().mean().item()
        assert extra[row].item() == pytest.approx(expected, rel=1e-4)


def test_a_copy_learns_the_same_and_answering_keeps_nothing(bert, inputs):
    learner = with_states(cut(bert), bert[0], LossConfig(hidden=1.0, attention=2.0))
    copied = copy.deepcopy(learner)  # as fsdp and deepspeed train it
    extra = learner.train()(**inputs).logits[:, -1]
    torch.testing.assert_close(copied.train()(**inputs).logits[:, -1], extra)
    assert extra.min() > 0
    queries = [module for name, module in learner.named_modules() if name.endswith("query")]
    assert len(queries) == 2
    assert not any(module._forward_hooks for module in queries)


def test_a_narrower_student_learns_a_projection_and_the_teacher_learns_nothing(bert, inputs):
    states = StatesLoss(cut(bert, hidden_size=6), bert[0], 1.0, 0.0)
    _, extra = states(inputs)
    extra.mean().backward()
    assert states.projection.weight.shape == (8, 6)
    assert states.projection.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in bert[0].parameters())
    assert [name for name, _ in states.named_parameters()] == ["projection.weight"]


def test_another_number_of_heads_is_refused_for_attention(bert):
    with pytest.raises(InputError, match="student has 1 attention heads and the teacher 2"):
        StatesLoss(cut(bert, hidden_size=6), bert[0], 0.0, 1.0)


def test_training_brings_the_states_nearer_and_dev_sees_logits_alone(bert):
    student = cut(bert)
    rows = encode(bert[1], TEXTS[:2] + TEXTS[3:], None, 20)
    inputs = rows.batch(torch.arange(4))
    learner = LearnsStates(student, StatesLoss(student, bert[0], 1.0, 1.0))
    before = learner.states(inputs)[1].mean().item()
    widths = []

    def loss(batch, found):
        widths.append(found.shape[1])
        return found[:, -1].mean()

    def score(logits):
        widths.append(logits.shape[1])
        return 0.0

    how = TrainingConfig(epochs=30, batch_size=4, learning_rate=0.01, precision="fp32")
    fit(learner, FitPlan(rows, loss, how, 1, "test", dev=rows, score=score))
    assert set(widths) == {4, 3}
    assert learner.states(inputs)[1].mean().item() < 0.7 * before


def test_the_default_asks_for_no_states():
    assert (LossConfig().hidden, LossConfig().attention) == (0.0, 0.0)


def test_a_student_that_learns_states_as_well_ends_nearer_to_them(bert):
    table = pa.table(
        {"text": ["a b c", "d e", "f g h a", "x"] * 4, "label": ["bad", "so-so", "good", "bad"] * 4}
    )
    rows = encode(bert[1], table["text"].to_pylist(), None, 20)
    logits = predict_logits(bert[0], rows).numpy()
    how = TrainingConfig(epochs=20, batch_size=4, learning_rate=0.01, precision="fp32")
    left = {}
    for weight in (0.0, 1.0):
        student, tokenizer = build_student(
            [], LABELS, StudentConfig("transformer", hidden_size=0, layers=2), 1, teacher=bert
        )
        loss = LossConfig(hidden=weight, attention=weight)
        learnt = training_rows(student, tokenizer, table, logits, loss, how)
        task = DistillationTask(
            student, tokenizer, learnt, table, loss, how, 1, teacher_model=bert[0]
        )
        fit(*prepare(task))
        # the student alone
        assert [*dict(student.named_parameters())] == [*dict(cut(bert).named_parameters())]
        left[weight] = (
            StatesLoss(student.eval(), bert[0], 1.0, 1.0)(rows.batch(torch.arange(4)))[1]
            .mean()
            .item()
        )
    assert left[1.0] < 0.5 * left[0.0]


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("transformer", False, "give --teacher"),
        ("textcnn", True, "this student is a distillkit-textcnn"),
    ],
)
def test_states_are_refused_where_there_are_none(bert, student, kind, given, message):
    model, _ = student(kind)
    with pytest.raises(InputError, match=message):
        with_states(model, bert[0] if given else None, LossConfig(hidden=1.0))

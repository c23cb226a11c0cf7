import pytest
import torch
from torch import nn

from distillkit.training.averaging import MovingAverage


def test_the_average_is_the_formula_and_early_on_follows_faster():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(4.0)
    average = MovingAverage(model, 0.5)
    expected = 4.0
    for step, value in enumerate([1.0, 2.0, -3.0, 5.0, 7.0, 1.0, 0.0, 2.0, 9.0, 4.0], start=1):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
    assert (1 + 10) / (10 + 10) > 0.5 > (1 + 1) / (10 + 1)  # both sides of the minimum were met
    with average.in_place():
        assert model.weight.item() == pytest.approx(expected, rel=1e-6)
    assert model.weight.item() == 4.0


def test_the_weights_come_back_whatever_happens_in_between():
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    average = MovingAverage(model, 0.9)
    with torch.no_grad():
        model.weight.add_(1)

    def fail():
        with average.in_place():
            assert torch.equal(model.weight, before)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.equal(model.weight, before + 1)


def test_frozen_weights_have_no_average():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    assert list(MovingAverage(model, 0.9).state()) == ["average.weight"]

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.lamb import Lamb
from distillkit.training.optimizers import make_optimizer, parameter_groups, scaled_learning_rate


class Tied(nn.Module):
    """An embedding whose table is the output layer too, a norm over two axes, a bias of two axes, an LSTM."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.lstm = nn.LSTM(4, 3)
        self.norm = nn.LayerNorm((2, 4))
        self.out = nn.Linear(4, 7)
        self.out.weight = self.embedding.weight
        self.position = nn.Module()
        self.position.bias = nn.Parameter(torch.zeros(2, 4))
        self.scale = nn.Parameter(torch.ones(()))


def names_of(model, group):
    return {
        name for name, p in model.named_parameters() if any(p is other for other in group["params"])
    }


def test_matrices_decay_and_biases_norms_and_vectors_do_not():
    model = Tied()
    decayed, others = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert names_of(model, decayed) == {
        "embedding.weight",
        "lstm.weight_ih_l0",
        "lstm.weight_hh_l0",
    }
    assert names_of(model, others) == {
        *(
            "lstm.bias_ih_l0",
            "lstm.bias_hh_l0",
            "norm.weight",
            "norm.bias",
            "out.bias",
            "position.bias",
            "scale",
        )
    }


def test_a_tied_weight_is_listed_once():
    model = Tied()
    listed = [p for group in parameter_groups(model, 0.1) for p in group["params"]]
    assert sum(p is model.out.weight for p in listed) == 1
    assert len(listed) == len(list(model.parameters()))


def test_frozen_parameters_and_empty_groups_are_left_out():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    assert [names_of(model, group) for group in parameter_groups(model, 0.1)] == [
        {"1.weight"},
        {"1.bias"},
    ]
    model[1].weight.requires_grad_(False)
    assert [names_of(model, group) for group in parameter_groups(model, 0.1)] == [{"1.bias"}]
    model[1].bias.requires_grad_(False)
    assert parameter_groups(model, 0.1) == []


@pytest.mark.parametrize(
    ("rule", "rows", "wanted"),
    [
        ("none", 4096, 0.01),
        ("sqrt", 256, 0.02),
        ("sqrt", 16, 0.005),
        ("linear", 256, 0.04),
        ("linear", 64, 0.01),
    ],
)
def test_learning_rates_follow_the_batch(rule, rows, wanted):
    assert scaled_learning_rate(0.01, rows, 64, rule) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("adamw", torch.optim.AdamW, {"fused": True, "betas": (0.9, 0.999)}),
        ("lamb", Lamb, {"always_adapt": True, "bias_correction": True}),
        ("adadelta", torch.optim.Adadelta, {"rho": 0.95}),
        ("sgd", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_every_name_builds_its_optimizer_that_learns(name, kind, options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 1))
    config = TrainingConfig(
        optimizer=name,
        learning_rate=0.5 if name == "adadelta" else 0.01,
        weight_decay=0.02,
        batch_size=32,
        accumulation_steps=8,
        learning_rate_scaling="sqrt",
        reference_batch=64,
    )
    optimizer = make_optimizer(model, config)
    assert type(optimizer) is kind
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.02, 0.0]
    # Four times the reference batch, accumulation included.
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2 * config.learning_rate)
    assert {key: optimizer.param_groups[0][key] for key in options} == options
    rows = torch.randn(64, 3)
    losses = []
    for _ in range(60):
        loss = nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("always_adapt", [False, True])
def test_lamb_adapts_matrices_with_any_decay_and_the_rest_if_asked(weight_decay, always_adapt):
    model = nn.Linear(3, 2)
    nn.init.constant_(model.weight, 50.0)
    nn.init.constant_(model.bias, 50.0)
    before = [p.detach().clone() for p in model.parameters()]
    how = {"weight_decay": weight_decay, "always_adapt": always_adapt, "learning_rate": 0.1}
    optimizer = make_optimizer(model, TrainingConfig(optimizer="lamb", **how))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    moved = [
        float((p.detach() - start).norm() / start.norm())
        for p, start in zip(model.parameters(), before, strict=True)
    ]
    # An adapted tensor moves by its own length times the learning rate, another by 0.1 an element.
    assert moved == pytest.approx([0.1, 0.1 if always_adapt else 0.1 / 50], rel=1e-4)


def test_only_lamb_adapts():
    with pytest.raises(
        InputError, match=r"always_adapt is for lamb, but .* is adamw; leave it out"
    ):
        TrainingConfig(always_adapt=True)


def test_lamb_leaves_clipping_to_the_loop():
    model = nn.Linear(3, 2)
    assert (
        make_optimizer(model, TrainingConfig(optimizer="lamb", max_grad_norm=0.1)).max_grad_norm
        is None
    )


def test_apexs_lamb_is_chosen_by_its_name_and_refused_where_it_cannot_run(monkeypatch):
    config = TrainingConfig(optimizer="lamb-apex")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        InputError, match=r"^training\.optimizer lamb-apex needs a GPU; choose lamb,"
    ):
        make_optimizer(nn.Linear(3, 2), config)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "apex.optimizers", None)
    with pytest.raises(InputError, match=r"training\.optimizer lamb-apex: .* needs NVIDIA's apex"):
        make_optimizer(nn.Linear(3, 2), config)
    monkeypatch.setitem(sys.modules, "apex", ModuleType("apex"))
    monkeypatch.setitem(sys.modules, "apex.optimizers", SimpleNamespace(FusedLAMB=object))
    assert make_optimizer(nn.Linear(3, 2), config).path == "apex"
    with pytest.raises(InputError, match=r"training\.strategy is fsdp, which divides tensors"):
        TrainingConfig(optimizer="lamb-apex", strategy="fsdp")


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(ValueError, match="empty parameter list"):
        make_optimizer(nn.Linear(2, 2).requires_grad_(False), TrainingConfig())

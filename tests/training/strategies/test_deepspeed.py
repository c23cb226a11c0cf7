"""ZeRO on two real processes against one plain one."""

import importlib.util
import sys

import pytest
import torch

from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.strategies import start
from tests.training.launch import losses, torchrun, train
from tests.training.strategies.same import assert_loads, assert_same

pytestmark = pytest.mark.slow

STEPS = {"n": 320, "batch_size": 16, "epochs": 10, "learning_rate": 3e-3}  # 200 steps
# 33 batches, the last of one row; the last step of an epoch has but one of them.
TAILS = {
    "n": 161,
    "batch_size": 5,
    "accumulation_steps": 4,
    "epochs": 5,
    "learning_rate": 3e-3,
    "dev": 1000,
    "max_grad_norm": 0.2,
}
BERT = {
    "model": "bert",
    "n": 96,
    "batch_size": 16,
    "epochs": 3,
    "learning_rate": 5e-3,
    "frozen": "bert.embeddings",
}
EPOCHS = {"n": 163, "batch_size": 16, "epochs": 4, "learning_rate": 3e-3}
PLAIN = {
    "steps": STEPS,
    "tails": TAILS,
    "sgd": STEPS | {"optimizer": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0, "epochs": 2},
    "adadelta": STEPS | {"optimizer": "adadelta", "learning_rate": 10.0, "epochs": 2},
    "bert": BERT,
    "bf16": BERT | {"precision": "bf16"},
}
ZERO = [(name, stage) for name in ("steps", "tails") for stage in (1, 2, 3)]
ZERO += [("sgd", 2), ("adadelta", 1), ("bert", 3), ("bf16", 2)]


def zero(stage):
    return {"strategy": "deepspeed", "zero_stage": stage}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("zero")


@pytest.fixture(scope="module")
def two(folders):
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed")
    configurations = {(name, stage): PLAIN[name] | zero(stage) for name, stage in ZERO}
    configurations["bert", 3] |= {"saved": str(folders / "saved")}
    # Told to end at each epoch's end; each goes on with what another strategy has left.
    relay = EPOCHS | {"checkpoints": str(folders / "relay")}
    stop = {"stop": "epoch"}
    configurations |= {
        "ddp": relay | stop,
        "zero 3": relay | zero(3) | stop,
        "zero 1": relay | zero(1) | stop,
    }
    configurations["zero 2"] = relay | zero(2)
    configurations["left"] = EPOCHS | {"checkpoints": str(folders / "left")} | zero(3) | stop

    def quietly(*arguments, processes):
        done = torchrun(*arguments, processes=processes)
        assert done.stdout == ""
        assert "eepspeed" not in done.stderr
        return done

    found = train(folders, *configurations.values(), start=quietly)
    return dict(zip(configurations, found, strict=True))


@pytest.fixture(scope="module")
def one(two, folders, tmp_path_factory):
    configurations = PLAIN | {
        "whole": EPOCHS,
        "resumed": EPOCHS | {"checkpoints": str(folders / "left")},
    }
    configurations["alone"] = EPOCHS | zero(2)
    found = train(tmp_path_factory.mktemp("one"), *configurations.values(), processes=1)
    return dict(zip(configurations, found, strict=True))


@pytest.mark.parametrize(("name", "stage"), ZERO)
def test_two_processes_compute_what_one_does(one, two, name, stage):
    rounding = {"losses_within": 1e-3, "weights_within": 2e-2} if name == "bf16" else {}
    assert_same(two[name, stage], one[name], **rounding)
    seen = losses(one[name])
    assert max(seen) - min(seen) > 1e-2  # something has happened


def test_bf16_is_what_it_computes_in(one, two):
    # Before the first step all weights are equal still, so that only the format can make a
    # difference.
    found, rounded, exact = (losses(run)[0] for run in (two["bf16", 2], one["bf16"], one["bert"]))
    assert abs(found - rounded) < 2e-6 < abs(rounded - exact)


def test_the_model_is_saved_as_any_other(two, folders):
    assert_loads(folders / "saved", two["bert", 3])


def test_checkpoints_are_taken_over_by_other_stages_strategies_and_numbers_of_processes(one, two):
    assert all(
        "saved at step" in two[name][0]["error"] for name in ("ddp", "zero 3", "zero 1", "left")
    )
    expected = one["whole"][0]["weights"]
    for found in (two["zero 2"][0], two["zero 2"][1], one["resumed"][0]):
        assert len(found["passes"]) in (11, 33)  # of 44
        for key, value in expected.items():
            torch.testing.assert_close(found["weights"][key], value, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "lamb"}, "one trust ratio for all; choose adamw"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        start(TrainingConfig(strategy="deepspeed", **options))


def test_a_process_alone_is_told_how_to_start_more(one):
    assert "takes several processes: torchrun --nproc-per-node N" in one["alone"][0]["error"]


def test_without_deepspeed_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(InputError, match=r"pip install 'distillkit\[deepspeed\]'"):
        start(TrainingConfig(strategy="deepspeed"))

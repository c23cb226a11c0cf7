"""Horovod on two real processes against a plain one, where it is built."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.strategies import start
from tests.training.launch import ENVIRONMENT, losses, train
from tests.training.strategies.same import assert_same

pytestmark = pytest.mark.slow

built = pytest.mark.skipif(
    importlib.util.find_spec("horovod") is None, reason="Horovod is not built here"
)
STEPS = {"n": 320, "batch_size": 16, "epochs": 10, "learning_rate": 3e-3}  # 200 steps
PLAIN = {
    "steps": STEPS,
    # 33 batches, the last of one row; the last step of an epoch has but one of them.
    "tails": {
        "n": 161,
        "batch_size": 5,
        "accumulation_steps": 4,
        "epochs": 5,
        "learning_rate": 3e-3,
        "dev": 1000,
        "max_grad_norm": 0.2,
    },
    "lamb": STEPS | {"optimizer": "lamb", "max_grad_norm": 0.0, "epochs": 4},
    "bert": {
        "model": "bert",
        "n": 96,
        "batch_size": 16,
        "epochs": 2,
        "learning_rate": 1e-3,
        "frozen": "bert.embeddings",
    },
}
EPOCHS = {"n": 163, "batch_size": 16, "epochs": 3, "learning_rate": 3e-3}


def horovodrun(*arguments, processes):
    """Run `horovodrun --gloo -np ... python ARGUMENTS` to its end."""
    program = Path(sys.executable).with_name("horovodrun")
    command = [program, "--gloo", "-np", str(processes), sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=os.environ | ENVIRONMENT
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("horovod")


@pytest.fixture(scope="module")
def two(folders):
    configurations = {name: settings | {"strategy": "horovod"} for name, settings in PLAIN.items()}
    checkpoints = EPOCHS | {"strategy": "horovod", "checkpoints": str(folders / "checkpoints")}
    configurations |= {
        "told": checkpoints | {"stop": "epoch"},
        "resumed": checkpoints,
        "ddp": EPOCHS,
    }
    found = train(folders, *configurations.values(), start=horovodrun)
    return dict(zip(configurations, found, strict=True))


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    configurations = PLAIN | {"whole": EPOCHS}
    found = train(tmp_path_factory.mktemp("one"), *configurations.values(), processes=1)
    return dict(zip(configurations, found, strict=True))


@built
@pytest.mark.parametrize("name", PLAIN)
def test_two_processes_compute_what_one_does(one, two, name):
    assert_same(two[name], one[name])
    seen = losses(one[name])
    assert max(seen) - min(seen) > 1e-2  # something has happened


@built
def test_a_training_told_to_end_goes_on_as_if_never_stopped(one, two):
    assert "saved at step" in two["told"][0]["error"]
    for found in two["resumed"]:
        assert len(found["passes"]) == 22  # of 33
        for key, value in one["whole"][0]["weights"].items():
            torch.testing.assert_close(found["weights"][key], value, atol=1e-6, rtol=0)


@built
def test_another_strategy_under_horovodrun_is_refused(two):
    for found in two["ddp"]:
        assert "2 processes were started, but this one sees 1" in found["error"]


@built
def test_horovod_under_torchrun_is_refused(tmp_path):
    found = train(tmp_path, EPOCHS | {"strategy": "horovod"})
    assert all("horovodrun -np N" in process["error"] for process in found[0])


def test_without_horovod_the_error_says_how_to_build_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)
    with pytest.raises(InputError, match=r"HOROVOD_WITH_GLOO=1 CXX=.* -std=c\+\+17"):
        start(TrainingConfig(strategy="horovod"))

"""Horovod on two real processes against a plain one, where it is built; how often it exchanges."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.strategies import start
from tests.training.launch import ENVIRONMENT, losses, train
from tests.training.strategies.same import assert_same
from tests.training.worker import train as train_here


def built(test):
    """Mark a test that starts Horovod's own processes."""
    absent = importlib.util.find_spec("horovod") is None
    return pytest.mark.slow(pytest.mark.skipif(absent, reason="Horovod is not built here")(test))


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


class CountingOptimizer:
    """Counts backward passes by Horovod's rule: one more than it was told of, and it raises."""

    exchanged = 0

    def __init__(self, optimizer, named_parameters, backward_passes_per_step=1):
        self.passes = backward_passes_per_step
        self.left = {p: backward_passes_per_step for _, p in named_parameters}
        for p in self.left:
            p.register_post_accumulate_grad_hook(self.count)

    def set_backward_passes_per_step(self, passes):
        self.passes, self.left = passes, dict.fromkeys(self.left, passes)

    def count(self, p):
        assert self.left[p] > 0, "Gradients were computed more than backward_passes_per_step times"
        self.left[p] -= 1

    def synchronize(self):
        assert not any(self.left.values())  # all were on their way during the backward pass
        self.left = dict.fromkeys(self.left, self.passes)
        CountingOptimizer.exchanged += 1


@pytest.fixture
def counted(monkeypatch):
    package, module = ModuleType("horovod"), ModuleType("horovod.torch")
    module.DistributedOptimizer = CountingOptimizer
    module.init = module.barrier = lambda: None
    module.size, module.rank, module.local_rank = (lambda: 1), (lambda: 0), (lambda: 0)
    module.broadcast_parameters = lambda state, root_rank: None
    module.broadcast = lambda value, root_rank: value
    package.torch = module
    monkeypatch.setitem(sys.modules, "horovod", package)
    monkeypatch.setitem(sys.modules, "horovod.torch", module)
    monkeypatch.setattr(CountingOptimizer, "exchanged", 0)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"n": 1000, "batch_size": 600}, 2),  # 5 passes over parts of 200 rows: 3 and 2
        ({"n": 161, "batch_size": 5, "accumulation_steps": 4}, 9),  # the last has one pass
    ],
)
def test_gradients_are_exchanged_once_a_step_however_many_passes_it_has(counted, options, steps):
    options |= {"epochs": 1, "learning_rate": 3e-3}
    _, found = train_here(strategy="horovod", **options)
    assert CountingOptimizer.exchanged == steps
    assert found == train_here(**options)[1]

"""What two real processes must agree on."""

import json

import pytest

from tests.training.launch import train
from tests.training.strategies.same import assert_same

pytestmark = pytest.mark.slow

# 20 steps an epoch, each with weights that stand still.
STILL = {"n": 320, "batch_size": 16, "epochs": 2, "learning_rate": 0.0}

# Classifiers with parameters that their answer does not depend on.
BIG_BIRD = {"model": "big_bird", "n": 96, "batch_size": 16, "epochs": 2, "learning_rate": 1e-3}
UNUSED = {
    "big_bird": BIG_BIRD,
    "esm": BIG_BIRD | {"model": "esm", "batch_size": 8, "accumulation_steps": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def two(folder):
    told = {"pause": 2.5, "stop": "pass", "checkpoints": str(folder / "told")}
    configurations = {
        "still": STILL | {"checkpoints": str(folder / "still")},
        "told": STILL | told,
        **UNUSED,
    }
    return dict(zip(configurations, train(folder, *configurations.values()), strict=True))


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    found = train(tmp_path_factory.mktemp("one"), *UNUSED.values(), processes=1)
    return dict(zip(UNUSED, found, strict=True))


def test_the_log_has_the_mean_loss_over_all_processes(folder, two):
    lines = [json.loads(line) for line in (folder / "still" / "log.jsonl").read_text().splitlines()]
    reports, epochs = (
        [line["loss"] for line in lines if line["kind"] == kind] for kind in ("report", "epoch")
    )
    assert len(reports) == len(epochs) == 2
    assert reports == pytest.approx(epochs, rel=1e-5)


def test_of_slow_steps_none_is_waited_for_when_another_process_is_told_to_end(two):
    # torchrun would kill them after 30 s.
    assert [process["error"] for process in two["told"]] == [
        "worker: interrupted, saved at step 2"
    ] * 2


@pytest.mark.parametrize("name", UNUSED)
def test_parameters_without_a_gradient_are_left_as_one_process_leaves_them(name, one, two):
    assert_same(two[name], one[name])

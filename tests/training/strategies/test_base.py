"""DDP, and what it shares with local SGD: two real processes against one."""

import pytest
import torch

from tests.training.launch import losses, train
from tests.training.strategies.same import assert_goes_on
from tests.training.worker import rows

pytestmark = pytest.mark.slow

STEPS = {"n": 320, "batch_size": 16, "epochs": 10, "learning_rate": 3e-3}  # 200 steps
CONFIGURATIONS = {
    "ddp": STEPS,
    "accumulated": STEPS | {"batch_size": 4, "accumulation_steps": 4, "n": 318},
    "uneven": STEPS | {"n": 323, "batch_size": 7, "epochs": 2},
    "large": STEPS
    | {
        "n": 1700,
        "batch_size": 512,
        "accumulation_steps": 2,
    },  # in two parts; the last batch has one
    "lamb": STEPS | {"optimizer": "lamb"},
    "fast": STEPS | {"learning_rate": 0.03},
    "fp16-hook": STEPS | {"learning_rate": 0.03, "gradient_compression": "fp16"},
    "powersgd": STEPS | {"learning_rate": 0.03, "gradient_compression": "powersgd"},
    "bf16-hook": STEPS | {"gradient_compression": "bf16"},
    "local-sgd": STEPS | {"learning_rate": 0.03, "strategy": "local-sgd", "local_sgd_steps": 4},
}
REFUSED = ["bf16-hook"]
GO_ON = ["ddp", "local-sgd"]
SAME = ["ddp", "accumulated", "uneven", "lamb"]


@pytest.fixture(scope="module")
def two(tmp_path_factory, checkpoints):
    stopped = [
        CONFIGURATIONS[name] | {"checkpoints": str(checkpoints / name), "stop": "report"}
        for name in GO_ON
    ]
    found = train(tmp_path_factory.mktemp("two"), *CONFIGURATIONS.values(), *stopped)
    return dict(zip([*CONFIGURATIONS, *(f"{name}, stopped" for name in GO_ON)], found, strict=True))


@pytest.fixture(scope="module")
def again(tmp_path_factory, checkpoints, two):
    started = [CONFIGURATIONS[name] | {"checkpoints": str(checkpoints / name)} for name in GO_ON]
    return dict(zip(GO_ON, train(tmp_path_factory.mktemp("again"), *started), strict=True))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    names = [*SAME, "large"]
    found = train(
        tmp_path_factory.mktemp("one"), *(CONFIGURATIONS[name] for name in names), processes=1
    )
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", SAME)
def test_two_processes_compute_what_one_does(one, two, name):
    expected, found = losses(one[name]), losses(two[name])
    assert len(found) == len(expected) >= 40
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), atol=1e-5, rtol=0)
    assert abs(expected[-1] - expected[0]) > 1e-2  # it has learnt something


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if name not in REFUSED])
def test_both_processes_end_with_the_same_weights(two, name):
    first, second = (process["weights"] for process in two[name])
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_the_rows_of_a_large_batch_are_dealt_out_level(one, two):
    (alone,), (first, second) = (
        [len(run["passes"]) for run in runs["large"]] for runs in (one, two)
    )
    # An epoch's 7 parts are 4 batches; two processes compute each in one pass or two.
    assert alone == 70
    assert 40 <= first == second <= 70
    lengths = rows(1700).lengths
    work = [
        sum(len(own) * int(lengths[own].max()) for own, _ in run["passes"]) for run in two["large"]
    ]
    assert max(work) < 1.1 * min(work)
    for name, tensor in two["large"][0]["weights"].items():
        torch.testing.assert_close(tensor, one["large"][0]["weights"][name], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [*SAME, "large"])
def test_the_dev_scores_and_the_best_epoch_are_those_of_one_process(one, two, name):
    (expected,) = one[name]
    for process in two[name]:
        assert process["best_epoch"] == expected["best_epoch"]
        for key in ("loss", "dev"):
            scores = [[epoch[key] for epoch in found["history"]] for found in (process, expected)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-5)


@pytest.mark.parametrize("name", ["fp16-hook", "powersgd", "local-sgd"])
def test_what_saves_on_traffic_still_learns(two, name):
    found = losses(two[name])
    assert sum(found[-20:]) < 0.9 * sum(found[:20])


@pytest.mark.parametrize("name", ["fp16-hook", "powersgd", "local-sgd"])
def test_what_saves_on_traffic_is_not_exact(two, name):
    exact, found = (two[key][0]["weights"]["out.weight"] for key in ("fast", name))
    assert (exact - found).abs().max() > 1e-5


def test_gloo_cannot_carry_bf16(two):
    for process in two["bf16-hook"]:
        assert "gradient_compression bf16 needs NCCL" in process["error"]


@pytest.mark.parametrize("name", GO_ON)
def test_processes_that_are_told_to_end_go_on_to_the_same_end(two, again, name):
    assert_goes_on(two[f"{name}, stopped"], again[name], two[name])

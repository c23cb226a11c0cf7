"""Tensor parallelism: two real processes against one."""

import pytest

from tests.training.launch import losses
from tests.training.strategies.same import assert_equal, assert_goes_on, assert_loads, assert_same

pytestmark = pytest.mark.slow

STRATEGY = "tensor-parallel"


@pytest.mark.parametrize("name", ["steps", "lamb", "uneven", "distilbert"])
def test_two_processes_compute_what_one_does(one, two, name):
    assert_same(two[STRATEGY, name], one[name], weights_within=1e-6 if name == "steps" else 1e-5)


def test_bf16_computes_as_one_process_does(one, two):
    assert_same(two[STRATEGY, "bf16"], one["bf16"], losses_within=1e-3, weights_within=1e-2)
    assert (
        losses(two[STRATEGY, "bf16"])[0] != losses(two[STRATEGY, "steps"])[0]
    )  # of the same weights and rows


def test_dropout_leaves_what_every_process_has_the_same(two):
    first, second = (process["weights"] for process in two[STRATEGY, "dropout"])
    assert_equal(first, second)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("student", "this model is a Linear; choose ddp or fsdp"),
        ("one-head", "1 attention heads cannot be sharded over 2 processes"),
    ],
)
def test_what_cannot_be_cut_is_refused(two, name, message):
    assert all(message in process["error"] for process in two[STRATEGY, name])


def test_the_model_is_saved_as_any_other(runs, two):
    assert_loads(runs / f"{STRATEGY}-steps", two[STRATEGY, "steps"])


def test_fresh_processes_go_on_exactly(two, again):
    assert_goes_on(two[STRATEGY, "stopped"], again[STRATEGY], two[STRATEGY, "uneven"])

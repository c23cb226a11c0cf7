"""FSDP2: two real processes against one."""

import pytest
import torch

from tests.training.launch import losses
from tests.training.strategies.conftest import RESUMED
from tests.training.strategies.same import assert_goes_on, assert_loads, assert_same

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["steps", "lamb", "uneven", "linear", "frozen"])
def test_two_processes_compute_what_one_does(one, two, name):
    assert_same(two["fsdp", name], one[name], weights_within=1e-6 if name == "steps" else 1e-5)


def test_bf16_computes_as_one_process_does(one, two):
    assert_same(two["fsdp", "bf16"], one["bf16"], losses_within=1e-3, weights_within=1e-2)
    assert (
        losses(two["fsdp", "bf16"])[0] != losses(two["fsdp", "steps"])[0]
    )  # of the same weights and rows


def test_the_model_is_saved_as_any_other(runs, two):
    assert_loads(runs / "fsdp-steps", two["fsdp", "steps"])


def test_fresh_processes_go_on_exactly(two, again):
    assert_goes_on(two["fsdp", "stopped"], again["fsdp"], two["fsdp", "uneven"])


def test_one_process_goes_on_where_two_stopped(one, two):
    for name, tensor in one[RESUMED][0]["weights"].items():
        torch.testing.assert_close(
            tensor, two["fsdp", "uneven"][0]["weights"][name], atol=1e-6, rtol=0
        )

import pytest
import torch

from distillkit.errors import InputError
from distillkit.training.precision import autocast, pick_device, resolve

CPU = torch.device("cpu")


def test_fp16_on_a_cpu_is_refused_with_what_works():
    with pytest.raises(InputError, match="fp16 needs a GPU; on a CPU choose bf16, fp32 or auto"):
        resolve("fp16", CPU)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_was_asked_for_is_what_runs(precision):
    assert resolve(precision, CPU) == precision


def test_auto_is_settled_for_good():
    assert resolve("auto", CPU) in ("fp32", "bf16")


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_a_forward_pass_computes_in_its_precision(precision, dtype):
    with autocast(precision, CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def test_the_device_is_a_gpu_where_there_is_one():
    assert pick_device().type == ("cuda" if torch.cuda.is_available() else "cpu")

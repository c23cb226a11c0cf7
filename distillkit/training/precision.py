"""Where to compute and in which number format."""

import contextlib

import torch

from distillkit.errors import InputError
from distillkit.recipe import Precision


def pick_device() -> torch.device:
    """Return the first GPU, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def resolve(precision: Precision, device: torch.device) -> Precision:
    """Turn `auto` into bf16 where the device computes in it, else fp32; refuse what it cannot.

    Raises:
        InputError: fp16 on a CPU.
    """
    if precision in ("apex-o1", "apex-o2"):
        # apex.amp was removed upstream in 2025; torch's fp16 autocast with fp32 weights does what
        # both levels did.
        precision = "fp16"
    if precision == "fp16" and device.type == "cpu":
        # Raw fp16 autocast is many times slower than fp32 on CPUs, and accelerate silently runs
        # fp32 instead.
        raise InputError("precision fp16 needs a GPU; on a CPU choose bf16, fp32 or auto")
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    # AVX-512 BF16 or AMX: without one of them bf16 is emulated and slower than fp32.
    return (
        "bf16"
        if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        else "fp32"
    )


def autocast(
    precision: Precision, device: torch.device
) -> contextlib.AbstractContextManager[object]:
    """Return the context in which a forward pass runs at a resolved precision."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if precision == "bf16" else torch.float16)

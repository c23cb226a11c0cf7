"""Optimizers by name, what decays, and learning rates for other batches."""

from typing import Any, Literal

import torch
from torch import nn

from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.lamb import Lamb
from distillkit.training.lamb.apex import fused_lamb

# Where torch's AdamW updates all parameters in one kernel.
_FUSED_DEVICES = ("cpu", "cuda")

# The norms whose weights may have more than one dimension.
_NORMS = (nn.LayerNorm, nn.RMSNorm)


def parameter_groups(
    model: nn.Module, weight_decay: float, *, always_adapt: bool | None = None
) -> list[dict[str, Any]]:
    """Split parameters into those that decay and those that do not: biases, norms, all 1-d ones.

    Args:
        model: Parameters that want no gradient are left out; one that is used in several places is
            listed once.
        weight_decay: Of the first group, at least 0.
        always_adapt: For LAMB: adapt the steps of the second group too; a bias that starts at 0 has
            no length to go by. The paper adapts a matrix's step with any decay; NVIDIA's reference
            stops where it is 0. None: for another optimizer.

    Returns:
        One or two groups, none of them empty; no group where nothing is trained.

    Source: Devlin et al. 2019, appendix A.2, and You et al. 2020 (arXiv 1904.00962), algorithm 2.
    """
    matrices, others = _split(model)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay, "always_adapt": True},
        {"params": others, "weight_decay": 0.0, "always_adapt": always_adapt},
    ]
    if always_adapt is None:
        for group in groups:
            del group["always_adapt"]
    return [group for group in groups if group["params"]]


def _split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return what is trained: matrices, and all else."""
    norms = {
        p
        for module in model.modules()
        if isinstance(module, _NORMS)
        for p in module.parameters(recurse=False)
    }
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, p in model.named_parameters():
        if p.requires_grad:
            exempt = p.ndim <= 1 or p in norms or name.rpartition(".")[2] == "bias"
            (others if exempt else matrices).append(p)
    return matrices, others


def scaled_learning_rate(
    learning_rate: float,
    batch_size: int,
    reference_batch: int,
    rule: Literal["none", "sqrt", "linear"],
) -> float:
    """Return the learning rate for another batch than the one that it was chosen for.

    Args:
        learning_rate: Right for `reference_batch`.
        batch_size: Rows an optimizer step, at least 1.
        reference_batch: Rows an optimizer step, at least 1.
        rule: none; sqrt: by the root of the ratio of the batches; linear: by the ratio.

    Source: sqrt: You et al. 2020 (arXiv 1904.00962), section 4; linear: Goyal et al. 2017 (arXiv
    1706.02677), section 2.1.

    >>> scaled_learning_rate(1e-3, 256, 64, "sqrt")
    0.002
    """
    power = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}[rule]
    return learning_rate * (batch_size / reference_batch) ** power


def check_optimizer(config: TrainingConfig, section: str = "training") -> None:
    """Refuse an optimizer that this machine lacks.

    Args:
        config: Names it.
        section: Of the recipe, for the error.

    Raises:
        InputError: It is apex's, and there is no GPU or no apex.
    """
    if config.optimizer != "lamb-apex":
        return
    place = f"{section}.optimizer lamb-apex"
    if not torch.cuda.is_available():
        raise InputError(f"{place} needs a GPU; choose lamb, which computes the same")
    try:
        fused_lamb()
    except ValueError as error:
        raise InputError(f"{place}: {error}; or choose lamb, which computes the same") from None


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Build the optimizer that a configuration names.

    Args:
        model: On the device where it is trained.
        config: Optimizer, learning rate and its scaling, weight decay.

    Raises:
        ValueError: The model has nothing to train.
        InputError: The optimizer cannot run here.
    """
    check_optimizer(config)
    rows = config.batch_size * config.accumulation_steps
    lr = scaled_learning_rate(
        config.learning_rate, rows, config.reference_batch, config.learning_rate_scaling
    )
    if config.optimizer in ("lamb", "lamb-apex"):
        groups = parameter_groups(model, config.weight_decay, always_adapt=config.always_adapt)
        # The loop has clipped already, and logs the norm: a second norm would cost another pass
        # over the gradients.
        apex = config.optimizer == "lamb-apex"
        return Lamb(groups, lr=lr, max_grad_norm=None, path="apex" if apex else None)
    groups = parameter_groups(model, config.weight_decay)
    if config.optimizer == "adadelta":
        # rho as in Zeiler 2012 and in Tang et al. 2019.
        return torch.optim.Adadelta(groups, lr=lr, rho=0.95)
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True)
    devices = {p.device.type for group in groups for p in group["params"]}
    return torch.optim.AdamW(groups, lr=lr, fused=devices <= {*_FUSED_DEVICES} or None)

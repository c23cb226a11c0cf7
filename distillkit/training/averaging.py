"""Exponential moving average of the weights (Tarvainen and Valpola 2017, arXiv 1703.01780)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from distillkit.training.state import as_sharded, local, whole


class MovingAverage:
    """Keeps average = decay * average + (1 - decay) * weights, step by step.

    Ours and not torch.optim.swa_utils.AveragedModel: that deep-copies the whole module, which
    FSDP2's and ZeRO's wrapped modules refuse, and holds frozen parameters a second time.

    Early on the decay is (1 + step) / (10 + step), so that the average is not held back by the
    weights that training began with.

    Args:
        model: Its trained parameters are averaged.
        decay: 0 to 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._decay = decay
        self._average = {name: p.detach().clone() for name, p in self._parameters.items()}

    def update(self, step: int) -> None:
        """Take in the weights after an optimizer step, counted from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        # Shard by shard: torch takes no list of DTensors and tensors.
        live = [local(p.detach()) for p in self._parameters.values()]
        torch._foreach_lerp_(
            [local(average) for average in self._average.values()], live, 1 - decay
        )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average in the place of the weights while a block runs."""
        live = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._put(self._average)
        try:
            yield
        finally:
            self._put(live)

    def state(self) -> dict[str, Tensor]:
        """Return the average, whole and on the CPU."""
        return {f"average.{name}": whole(value) for name, value in self._average.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` returned."""
        for name, value in self._average.items():
            value.copy_(as_sharded(value, state[f"average.{name}"]))

    def _put(self, values: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(values[name])

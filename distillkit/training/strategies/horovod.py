"""Horovod (Sergeev and Del Balso 2018, arXiv 1802.05799), started by horovodrun."""

import contextlib
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from distillkit.errors import InputError
from distillkit.training.strategies.base import MakeOptimizer, Strategy

# Horovod's sources ask for an older C++ than torch's headers; the compiler's last -std counts.
_BUILD = (
    "HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_GLOO=1 CXX=WRAPPER "
    'pip install --no-build-isolation horovod, with cmake, where WRAPPER is a script: exec g++ "$@" -std=c++17'
)


class Horovod(Strategy):
    """Every process holds the model; Horovod averages gradients during the backward pass."""

    def join(self) -> Any:
        """Join the processes that horovodrun has started.

        Raises:
            InputError: Horovod is not installed, or torchrun has started the processes.
        """
        try:
            import horovod.torch as hvd
        except ImportError:
            raise InputError(
                f"training.strategy horovod: Horovod is not installed; build it for this torch: {_BUILD}"
            ) from None
        hvd.init()
        self._hvd = hvd
        if hvd.size() != int(os.environ.get("WORLD_SIZE", hvd.size())):
            raise InputError(
                "training.strategy horovod: torchrun started these processes, and Horovod sees one; horovodrun -np N python -m distillkit ..."
            )
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device("cuda", hvd.local_rank())
            torch.cuda.set_device(device)
        return SimpleNamespace(process_index=hvd.rank(), num_processes=hvd.size(), device=device)

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Give every process the weights of process 0, and have gradients averaged."""
        self.engine = self.model = model.to(self.device)
        self._hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.optimizer = make_optimizer(self.model)
        # Horovod makes an optimizer anew from its class and forgets what is not in its groups, so
        # one that does nothing else exchanges gradients.
        trained = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        self._exchange = self._hvd.DistributedOptimizer(
            torch.optim.SGD([p for _, p in trained], lr=0.0),
            named_parameters=trained,
        )

    def learn(
        self,
        inputs: dict[str, Tensor],
        loss_of_logits: Callable[[Tensor], Tensor],
        weight: float,
        *,
        last: bool,
    ) -> Tensor:
        """Add a batch's gradient; see `Strategy.learn`."""
        # Counted anew for each pass: how many a step has follows from the rows of its batches.
        self._exchange.set_backward_passes_per_step(1 if last else 2)
        found = super().learn(inputs, loss_of_logits, weight, last=last)
        if last:
            self._exchange.synchronize()
        return found

    def no_sync(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that does nothing: `learn` tells Horovod when to exchange gradients."""
        return contextlib.nullcontext()

    def sum(self, values: Tensor) -> Tensor:
        """Add up a tensor over the processes."""
        return self._hvd.allreduce(values.to(self.device), op=self._hvd.Sum).to(values.device)

    def broadcast(self, value: float) -> float:
        """Return process 0's value."""
        return float(self._hvd.broadcast(torch.tensor([value], dtype=torch.float64), 0))

    def wait(self) -> None:
        """Wait for the other processes."""
        self._hvd.barrier()

    def close(self) -> nn.Module:
        """Return the model, and let go of the rest."""
        self._exchange = None
        return super().close()

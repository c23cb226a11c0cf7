"""FSDP2: parameters, gradients and optimizer state are sharded; each process computes some rows."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import SequenceClassifierOutput

from distillkit.data.batches import Encoded
from distillkit.training.strategies.parts import InParts


class FullyShardedDataParallel(InParts):
    """torch's `fully_shard`, over gloo or NCCL: a unit a transformer layer, one for the rest.

    bf16 is autocast, as everywhere. FSDP's MixedPrecisionPolicy would round norms, embeddings and
    residual sums to bf16 as well, so that several processes computed something else than one, and a
    head that mixes in fp32 failed. The price: weights travel in fp32.
    """

    def cut(self, model: nn.Module) -> nn.Module:
        """Share out every parameter of a copy by its first dimension."""
        part = copy.deepcopy(model)
        # FSDP looks for tensors in what a forward pass returns, and passes over types that torch
        # does not know.
        part.register_forward_hook(_logits_alone)
        mesh = init_device_mesh(self.device.type, (self.world,))
        for layer in [
            module for module in part.modules() if isinstance(module, GradientCheckpointingLayer)
        ]:
            fully_shard(layer, mesh=mesh)
        fully_shard(part, mesh=mesh)
        return part

    def learn(
        self,
        inputs: dict[str, Tensor],
        loss_of_logits: Callable[[Tensor], Tensor],
        weight: float,
        *,
        last: bool,
    ) -> Tensor:
        """Add a batch's gradient; until the last one of a step each process keeps its own."""
        if self.given is not None:
            self.engine.set_requires_gradient_sync(last)
        return super().learn(inputs, loss_of_logits, weight, last=last)

    def predict(self, rows: Encoded) -> Tensor:
        """Return the logits of rows, (N, C) float32 on the CPU, the same in every process."""
        logits = super().predict(rows)
        if self.given is not None:
            # Where no backward pass follows, the outermost piece stays gathered, and what is then
            # written to the parts is overlooked.
            self.engine.reshard()
        return logits


def _logits_alone(module: nn.Module, inputs: Any, output: Any) -> SequenceClassifierOutput:
    return SequenceClassifierOutput(logits=output.logits)

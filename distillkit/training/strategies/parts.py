"""What the strategies have in common that shard the model itself."""

import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from distillkit.data.batches import Encoded, budget_batches
from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.precision import autocast
from distillkit.training.state import is_dtensor, load_weights
from distillkit.training.strategies.base import MakeOptimizer, Strategy

_MAX_BATCH_TOKENS = 4096  # as `predict_logits` has it


class InParts(Strategy):
    """Every process trains a part of a copy; the given model gets the weights at the end.

    One process alone does what `Strategy` does.

    Raises:
        InputError: The precision is fp16.
    """

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__(config)
        if self.world > 1 and self.precision == "fp16":
            raise InputError(
                f"training.strategy {config.strategy} would not stop every process's step after an overflow of fp16 in one; choose precision bf16 or fp32"
            )
        self.given: Any = None

    @abstractmethod
    def cut(self, model: nn.Module) -> nn.Module:
        """Return this process's part of a copy of a model, on the device.

        Raises:
            InputError: Models like this one are not known here, or it cannot be cut into so many
                parts.
        """

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Split a copy of process 0's model, then build the optimizer of the parts."""
        if self.world == 1:
            super().prepare(model, make_optimizer)
            return
        for tensor in model.state_dict().values():
            here = tensor.to(self.device, copy=True)
            dist.broadcast(here, 0)
            tensor.copy_(here)
        self.given = model
        self.engine = self.model = self.cut(model)
        self.optimizer = make_optimizer(self.model)

    def no_sync(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that does nothing: the passes themselves exchange what they must."""
        return contextlib.nullcontext()

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the global norm, () float32, of gradients, some or all of them DTensors."""
        sharded: list[Any] = [gradient for gradient in gradients if is_dtensor(gradient)]
        norms = [
            get_total_norm([gradient for gradient in gradients if not is_dtensor(gradient)]).to(
                self.device
            )
        ]
        if sharded:
            total: Any = get_total_norm(sharded)
            norms.append(total.full_tensor())
        return torch.linalg.vector_norm(torch.stack(norms))

    def predict(self, rows: Encoded) -> Tensor:
        """Return the logits of rows, (N, C) float32 on the CPU, the same in every process.

        Without gradients, but not in inference mode: a buffer that FSDP first fills there can never
        be trained through again.
        """
        if self.given is None:
            return super().predict(rows)
        training = self.model.training
        self.model.eval()
        batches = list(budget_batches(rows.lengths, _MAX_BATCH_TOKENS))
        lengths, rows = rows.lengths, rows.to(self.device)
        out = torch.empty(0, 0)
        with torch.no_grad():
            for first in range(0, len(batches), self.num_shards):
                # One that has no batch left runs the first again: who missed a pass would leave the
                # others waiting.
                has_one = first + self.shard_index < len(batches)
                batch = batches[first + self.shard_index if has_one else 0]
                longest = int(lengths[batch].max())
                logits = self.logits(rows.batch(batch.to(self.device), longest)).cpu()
                if not len(out):
                    out = logits.new_zeros(len(rows), logits.shape[1])
                if has_one:
                    out[batch] = logits
        self.model.train(training)
        return self.sum_over_shards(out)

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the logits of a batch, (B, C) float32."""
        with autocast(self.precision, self.device):
            logits: Tensor = self.engine(**inputs).logits.float()
        return logits

    def whole_weights(self) -> dict[str, Tensor]:
        """Return the whole model's weights, on the CPU, in every process."""
        return self.weights()

    def close(self) -> nn.Module:
        """Return the model as it was given, with the trained weights."""
        given = self.given
        if given is not None:
            load_weights(given, self.whole_weights())
        model = super().close()
        self.given = None
        return model if given is None else given

"""A pipeline (Huang et al. 2019, arXiv 1811.06965): layers on one process after another."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.layers import encoder_layers
from distillkit.training.precision import autocast
from distillkit.training.state import weights_of
from distillkit.training.strategies.base import MakeOptimizer
from distillkit.training.strategies.parts import InParts

# Micro-batches a process. More of them leave processes idle for less of the time, and each takes
# longer a row.
_MICRO_BATCHES = 2
_PRIME = 1_000_037  # keeps the processes' seeds apart


class Pipeline(InParts):
    """A BERT-class teacher in stages: embeddings on the first process, the head on the last.

    All micro-batches go forward, then all go back, as in GPipe. torch's own schedules ask for a
    loss of every micro-batch alone, and for one shape; here the loss is one of the whole batch,
    whatever it is, and every process knows the shapes, for it sees the batch.
    """

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__(config)
        self.shard_index, self.num_shards = 0, 1
        self.separate = self.world > 1
        self.is_last = self.rank == self.world - 1
        self.entrance = _Entrance()

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Copy the layers that are this process's, then build their optimizer."""
        encoder_layers(model, f"training.strategy {self.config.strategy}", "ddp or fsdp")
        super().prepare(model, make_optimizer)

    def cut(self, model: nn.Module) -> nn.Module:
        """Copy a model without the parts of other processes; parameter names stay."""
        layers = encoder_layers(model, f"training.strategy {self.config.strategy}", "ddp or fsdp")
        if len(layers) < self.world:
            raise InputError(
                f"training.strategy {self.config.strategy}: {len(layers)} layers cannot stand on {self.world} processes; start at most {len(layers)}"
            )
        whole: Any = model
        if whole.get_output_embeddings() is not None:
            raise InputError(
                f"training.strategy {self.config.strategy}: a language model's head has the weights of the embeddings, which stand elsewhere; choose ddp"
            )
        base = whole.base_model
        parts = dict(base.named_children())
        first, end = (len(layers) * rank // self.world for rank in (self.rank, self.rank + 1))
        # By the id of a module, what takes its place in the copy.
        instead: dict[int, Any] = {
            id(layer): _Through() for i, layer in enumerate(layers) if not first <= i < end
        }
        if self.rank:
            instead[id(parts["embeddings"])] = self.entrance
            if "embeddings_project" in parts:
                instead[id(parts["embeddings_project"])] = _Through()
        if not self.is_last:
            instead |= {id(child): _Through() for child in model.children() if child is not base}
            if "pooler" in parts:
                instead[id(parts["pooler"])] = None
        part = copy.deepcopy(model, instead).to(self.device)
        trained = torch.tensor(float(any(p.requires_grad for p in part.parameters())))
        if self.sum(trained) < self.world:
            raise InputError(
                f"training.strategy {self.config.strategy}: one of {self.world} processes would have frozen layers alone; start fewer, or choose ddp"
            )
        # dropout differs from layer to layer
        torch.manual_seed(torch.initial_seed() + self.rank * _PRIME)
        return part

    def learn(
        self,
        inputs: dict[str, Tensor],
        loss_of_logits: Callable[[Tensor], Tensor],
        weight: float,
        *,
        last: bool,
    ) -> Tensor:
        """Add a batch's gradient."""
        if self.given is None:
            return super().learn(inputs, loss_of_logits, weight, last=last)
        received, outputs = self._forward(inputs)
        loss = torch.zeros((), device=self.device)
        gradients: Sequence[Tensor] = []
        if self.is_last:
            found = loss_of_logits(torch.cat(outputs)) * weight
            gradients = torch.autograd.grad(found, outputs)
            loss = found.detach()
        sent = []
        for i, output in enumerate(outputs):
            if self.is_last:
                gradient = gradients[i]
            else:
                gradient = torch.empty_like(output)
                dist.recv(gradient, self.rank + 1)
            if output.requires_grad:
                output.backward(gradient)
            if self.rank and (made := received[i].grad) is not None:
                sent.append(dist.isend(made, self.rank - 1))
        _wait(sent)
        dist.broadcast(loss, self.world - 1)
        return loss

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the global norm over all processes' gradients, () float32."""
        if self.given is None:
            return super().norm(gradients)
        return self.sum(get_total_norm(gradients).square()).sqrt()

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the logits of a batch, (B, C) float32, in every process."""
        _, outputs = self._forward(inputs)
        size, classes = len(inputs["input_ids"]), self.model.config.num_labels
        logits = (
            torch.cat(outputs) if self.is_last else torch.empty(size, classes, device=self.device)
        )
        dist.broadcast(logits, self.world - 1)
        return logits

    def whole_weights(self) -> dict[str, Tensor]:
        """Return the whole model's weights, on the CPU, in every process."""
        own = self.weights()
        return {
            name: self.sum(own.get(name, torch.zeros_like(like)))
            for name, like in weights_of(self.given).items()
        }

    def _forward(self, inputs: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Send a batch through, one micro-batch after another.

        Returns:
            Of each micro-batch what came from the process before, and what this one made of it:
            hidden states, or in the last process logits, float32.
        """
        size, length = inputs["input_ids"].shape
        pieces = {
            name: tensor.tensor_split(min(size, _MICRO_BATCHES * self.world))
            for name, tensor in inputs.items()
        }
        received, outputs, sent = [], [], []
        for i, ids in enumerate(pieces["input_ids"]):
            if self.rank:
                hidden = torch.empty(
                    len(ids), length, self.model.config.hidden_size, device=self.device
                )
                dist.recv(hidden, self.rank - 1)
                self.entrance.states = hidden.requires_grad_(torch.is_grad_enabled())
                received.append(hidden)
            micro = {name: piece[i] for name, piece in pieces.items()}
            with autocast(self.precision, self.device):
                made = (
                    self.model(**micro).logits
                    if self.is_last
                    else self.model.base_model(**micro).last_hidden_state
                )
            outputs.append(made.float())
            if not self.is_last:
                sent.append(dist.isend(outputs[-1].detach(), self.rank + 1))
        self.entrance.states = None
        _wait(sent)
        return received, outputs


def _wait(sent: Sequence[dist.Work | None]) -> None:
    for sending in sent:
        assert sending is not None
        sending.wait()


class _Entrance(nn.Module):
    """Stands for the embeddings where hidden states come from another process."""

    def __init__(self) -> None:
        super().__init__()
        self.states: Tensor | None = None

    def forward(self, *inputs: Any, **named: Any) -> Tensor | None:
        """Return the hidden states (B, T, H) that came."""
        return self.states


class _Through(nn.Module):
    """Stands for what another process has."""

    def forward(self, states: Tensor, *rest: Any, **named: Any) -> Tensor:
        """Return what came, as it is."""
        return states

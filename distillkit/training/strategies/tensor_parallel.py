"""Tensor parallelism (Shoeybi et al. 2019, arXiv 1909.08053): every layer is sharded."""

import copy
from typing import Any

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.layers import encoder_layers, encoder_parts
from distillkit.training.state import is_dtensor
from distillkit.training.strategies.base import MakeOptimizer
from distillkit.training.strategies.parts import InParts


class TensorParallel(InParts):
    """Attention heads and wide layers of a BERT-class teacher are sharded; the rest is replicated.

    Dropout is the same in every process, as what it is applied to is; inside attention one
    process's heads share its pattern with another's.
    """

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__(config)
        self.shard_index, self.num_shards = 0, 1

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Share out the layers of a copy, then build the optimizer of the parts."""
        encoder_parts(model, f"training.strategy {self.config.strategy}", "ddp or fsdp")
        super().prepare(model, make_optimizer)
        # torch's fused kernels take no list of DTensors and tensors: each kind gets groups
        # of its own.
        for group in list(self.optimizer.param_groups):
            sharded = [p for p in group["params"] if is_dtensor(p)]
            if 0 < len(sharded) < len(group["params"]):
                group["params"] = [p for p in group["params"] if not is_dtensor(p)]
                self.optimizer.add_param_group({**group, "params": sharded})

    def cut(self, model: nn.Module) -> nn.Module:
        """Share out every layer."""
        config: Any = model.config
        parts = encoder_parts(model, f"training.strategy {self.config.strategy}", "ddp or fsdp")
        # Each process has some heads, and some of the wide layer; what the processes make is summed.
        columns = (parts.query, parts.key, parts.value, parts.wide)
        rows = (parts.attention_out, parts.narrow)
        for count, what in (
            (config.num_attention_heads, "attention heads"),
            (getattr(config, parts.wide_size), "columns of a wide layer"),
        ):
            if count % self.world:
                raise InputError(
                    f"training.strategy {self.config.strategy}: {count} {what} cannot be sharded over {self.world} processes; start a number that divides them"
                )
        part = copy.deepcopy(model).to(self.device)
        mesh = init_device_mesh(self.device.type, (self.world,))
        plan: Any = {name: ColwiseParallel() for name in columns} | {
            name: RowwiseParallel() for name in rows
        }
        for layer in encoder_layers(part):
            parallelize_module(layer, mesh, plan)
        return part

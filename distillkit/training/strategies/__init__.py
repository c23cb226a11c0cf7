"""How the processes of a training share its work: one module a kind of `base.Strategy`."""

import importlib

from distillkit.recipe import TrainingConfig
from distillkit.training.strategies.base import Strategy

# Imported when asked for: what one of them needs may not be installed.
_KINDS = {
    "auto": "base:Strategy",
    "ddp": "base:Strategy",
    "dp": "data_parallel:DataParallel",
    "fsdp": "fsdp:FullyShardedDataParallel",
    "deepspeed": "deepspeed:DeepSpeed",
    "local-sgd": "local_sgd:LocalSGD",
    "horovod": "horovod:Horovod",
    "tensor-parallel": "tensor_parallel:TensorParallel",
    "pipeline": "pipeline:Pipeline",
}


def start(config: TrainingConfig) -> Strategy:
    """Start the strategy that a configuration names.

    Raises:
        InputError: It cannot run here, with the reason.
    """
    module, _, name = _KINDS[config.strategy].partition(":")
    kind: type[Strategy] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return kind(config)

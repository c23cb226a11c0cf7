"""One process, several GPUs: what DDP replaces."""

import sys

import torch
from torch import nn

from distillkit.training.strategies.base import MakeOptimizer, Strategy


class DataParallel(Strategy):
    """torch's DataParallel: for every batch the model is copied to all GPUs, the rows are split."""

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Wrap the model where there are several GPUs."""
        super().prepare(model, make_optimizer)
        if self.world > 1:
            if self.rank == 0:
                sys.stderr.write(
                    f"training.strategy dp is for one process; these {self.world} train as ddp does\n"
                )
            return
        if torch.cuda.device_count() > 1:
            self.engine = nn.DataParallel(model)
        else:
            sys.stderr.write(
                "training.strategy dp needs several GPUs in one process; this trains as one process does\n"
            )
        sys.stderr.write(
            "training.strategy dp: ddp is faster, torchrun --nproc-per-node N -m distillkit ...\n"
        )

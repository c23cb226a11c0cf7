"""Local SGD (Stich 2019, arXiv 1805.09767): some steps alone, then weights are averaged."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters

from distillkit.training.strategies.base import MakeOptimizer, Strategy


class LocalSGD(Strategy):
    """Weights are averaged every `training.local_sgd_steps` steps; gradients and state are not.

    Between two averages weights differ from process to process, so every process keeps its own part
    of a checkpoint. What is scored, and kept, is the average.
    """

    separate = True
    alike = True

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Give every process the weights of process 0."""
        self.engine = self.model = model.to(self.device)
        for tensor in model.state_dict().values():
            if self.world > 1:
                dist.broadcast(tensor, 0)
        self.optimizer = make_optimizer(self.model)

    def step(self, number: int) -> None:
        """Move this process's weights, and average where it is time to."""
        super().step(number)
        if number % self.config.local_sgd_steps == 0:
            self.settle()

    def settle(self) -> None:
        """Average the weights over the processes."""
        if dist.group.WORLD is not None and self.world > 1:
            with torch.no_grad():
                average_parameters(self.model.parameters(), dist.group.WORLD)

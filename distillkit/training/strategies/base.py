"""What the loop asks of every strategy; this one is one process, or DDP through accelerate."""

import atexit
import contextlib
import gc
import os
import platform
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from distillkit.data.batches import Encoded
from distillkit.errors import InputError
from distillkit.processes import meet, world
from distillkit.recipe import TrainingConfig
from distillkit.training.inference import predict_logits
from distillkit.training.precision import autocast, resolve
from distillkit.training.state import (
    load_optimizer_state,
    load_weights,
    local,
    optimizer_state,
    weights_of,
)

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]

_HOOKS = {
    "none": DDPCommunicationHookType.NO,
    "fp16": DDPCommunicationHookType.FP16,
    "bf16": DDPCommunicationHookType.BF16,
    "powersgd": DDPCommunicationHookType.POWER_SGD,
    "batched-powersgd": DDPCommunicationHookType.BATCHED_POWER_SGD,
}


class Strategy:
    """How the processes of one training divide its work.

    The loop calls `prepare` once, `learn` for every forward pass, `clip` and `step` for every
    optimizer step, and `close` at the end. `predict`, `state` and `load_state` come in between.
    Every process makes every call.

    Args:
        config: How to train.

    Attributes:
        device: Where this process computes.
        rank: Number of this process among `world`.
        shard_index: Which of `num_shards` shares of every batch this process computes.
        num_shards: 1 where every process computes every row.
        model: As it was given to `prepare`; its parameters are what is trained.
        optimizer: Of its parameters.
        example: Returns the inputs of the longest row on the device; the loop sets it before `prepare`.
        separate: Each process holds weights or optimizer state that no other has, so each writes
            its own part of a checkpoint.
        alike: Each process's share is to be a sample of the batch, since it moves weights alone.

    Raises:
        InputError: The strategy cannot run here, with the reason.
    """

    separate = False
    alike = False

    def __init__(self, config: TrainingConfig) -> None:
        self.config = config
        self.accelerator = self.join()
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        self.shard_index, self.num_shards = self.rank, self.world
        self.device: torch.device = self.accelerator.device
        self.precision = resolve(config.precision, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")
        self.model: Any = None
        self.engine: Any = None
        self.optimizer: Any = None
        self.example: Callable[[], dict[str, Tensor]] | None = None

    def join(self) -> Accelerator:
        """Join the other processes, if there are any."""
        return join_processes([ddp_settings(self.config)])

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Move the model to its device, equal in every process, and build its optimizer."""
        self.engine = self.model = model.to(self.device)
        if self.world > 1:
            # DDP waits for the gradient of every parameter, unless it looks for those without one
            # in each pass.
            self.accelerator.ddp_handler.find_unused_parameters = self._any_unused()
            self.engine = self.accelerator.prepare_model(self.model)
            # accelerate has been seen to leave models bare without a word.
            if not isinstance(self.engine, nn.parallel.DistributedDataParallel):
                raise InputError(
                    f"{self.world} processes, but accelerate left the model a {type(self.engine).__name__}"
                )
        self.optimizer = make_optimizer(self.model)

    def _any_unused(self) -> bool:
        """Say whether any process's example leaves a trained parameter without a gradient."""
        unused = self.example is not None and leaves_unused(self.model, self.example())
        return bool(self.sum(torch.tensor(float(unused))))

    def learn(
        self,
        inputs: dict[str, Tensor],
        loss_of_logits: Callable[[Tensor], Tensor],
        weight: float,
        *,
        last: bool,
    ) -> Tensor:
        """Add a batch's gradient.

        Args:
            inputs: What the model takes.
            loss_of_logits: Mean loss of this process's rows, from logits (B, C) float32.
            weight: Of this loss. Training lowers the mean, over the shards, of the weighted losses.
            last: An optimizer step follows, so gradients are exchanged.

        Returns:
            The weighted loss, () without gradient.
        """
        with contextlib.nullcontext() if last else self.no_sync():
            with autocast(self.precision, self.device):
                logits = self.engine(**inputs).logits
            loss = loss_of_logits(logits.float()) * weight
            self.scaler.scale(loss).backward()
        return loss.detach()

    def no_sync(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context of a backward pass whose gradients are not exchanged yet."""
        return self.accelerator.no_sync(self.engine)

    def clip(self, max_norm: float) -> Tensor:
        """Clip the gradients; return their global norm, () float32, not finite on overflow."""
        self.scaler.unscale_(self.optimizer)
        gradients = [
            p.grad
            for group in self.optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        norm = self.norm(gradients)
        # On a GPU the product costs less than asking; on a CPU it is one more way through memory.
        if self.device.type != "cpu" or norm > max_norm:
            # Shard by shard: torch clips no list of DTensors and tensors.
            here = [local(gradient) for gradient in gradients]
            torch._foreach_mul_(here, (max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the global norm over all processes' gradients, () float32."""
        return get_total_norm(gradients)

    def step(self, number: int) -> None:
        """Move the weights, unless fp16 overflowed; drop the gradients. `number` counts from 1."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def settle(self) -> None:
        """Make the weights equal in every process, where the strategy lets them differ."""

    def predict(self, rows: Encoded) -> Tensor:
        """Return the logits of rows, (N, C) float32 on the CPU, the same in every process."""
        logits = predict_logits(
            self.model, rows, precision=self.precision, shard=(self.shard_index, self.num_shards)
        )
        return self.sum(logits) if self.num_shards > 1 else logits

    def sum(self, values: Tensor) -> Tensor:
        """Add up a tensor over the processes."""
        if self.world == 1:
            return values
        total = values.to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(values.device)

    def sum_over_shards(self, values: Tensor) -> Tensor:
        """Add up what each shard has summed; a process that sees all rows has the sum already."""
        return self.sum(values) if self.num_shards > 1 else values

    def broadcast(self, value: float) -> float:
        """Return process 0's value: what decides must be the same everywhere."""
        if self.world == 1:
            return value
        said = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(said, 0)
        return float(said)

    def weights(self) -> dict[str, Tensor]:
        """Return the whole weights on the CPU; of a `separate` strategy this process's part."""
        return weights_of(self.model)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Take over what `weights` returned."""
        load_weights(self.model, weights)

    def state(self) -> dict[str, Tensor]:
        """Return the optimizer's and the loss scaler's state, whole and on the CPU."""
        scaler = self.scaler.state_dict()
        return optimizer_state(self.model, self.optimizer) | {
            f"scaler.{name}": torch.tensor(float(scaler[name]), dtype=torch.float64)
            for name in ("scale", "_growth_tracker")
            if name in scaler
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` returned."""
        load_optimizer_state(self.model, self.optimizer, state)
        if "scaler.scale" in state and self.scaler.is_enabled():
            now = self.scaler.state_dict()
            self.scaler.load_state_dict(
                now
                | {
                    "scale": float(state["scaler.scale"]),
                    "_growth_tracker": int(state["scaler._growth_tracker"]),
                }
            )

    def wait(self) -> None:
        """Wait for the other processes."""
        if self.world > 1:
            dist.barrier()

    def close(self) -> nn.Module:
        """Return the model, whole and outside of any wrapper, and let go of the rest.

        Wrapper and optimizer go together: else gloo aborts now and then when a process ends.
        """
        self.wait()
        model, self.model, self.engine, self.optimizer = self.model, None, None, None
        gc.collect()
        return model


def leaves_unused(model: nn.Module, inputs: dict[str, Tensor]) -> bool:
    """Say whether the logits of some inputs do not depend on a trained parameter.

    Without dropout, so that nothing is drawn from the generator that training draws from. Some
    classifiers of transformers have such parameters: BigBird's pooler, for one.
    """
    was_training = model.training
    model.eval()
    trained = [p for p in model.parameters() if p.requires_grad]
    with torch.enable_grad():
        total = model(**inputs).logits.sum()
    model.train(was_training)
    return any(g is None for g in torch.autograd.grad(total, trained, allow_unused=True))


def join_processes(handlers: Sequence[Any] = ()) -> Accelerator:
    """Start accelerate, and with it the process group where torchrun has started several processes.

    Raises:
        InputError: Every process would train everything.
    """
    on_cpu, wanted = not torch.cuda.is_available(), world()
    if wanted > 1 and "LOCAL_RANK" not in os.environ and "HOROVOD_SIZE" not in os.environ:
        raise InputError(
            f"WORLD_SIZE is {wanted}, but LOCAL_RANK is not set; start with torchrun --nproc-per-node {wanted} -m distillkit ..."
        )
    if wanted > 1 and "LOCAL_RANK" in os.environ and not dist.is_initialized():
        if not on_cpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        meet("gloo" if on_cpu else "nccl")
    accelerator = Accelerator(cpu=on_cpu, mixed_precision="no", kwargs_handlers=list(handlers))
    if wanted != accelerator.num_processes:
        raise InputError(
            f"{wanted} processes were started, but this one sees {accelerator.num_processes} on {platform.node()}: "
            "each would train everything; horovodrun is for strategy horovod, torchrun for all others"
        )
    if wanted > 1:
        _leave_at_exit()
    return accelerator


def ddp_settings(config: TrainingConfig) -> DistributedDataParallelKwargs:
    """Return DDP's settings.

    Raises:
        InputError: The backend cannot compress gradients so.
    """
    if config.gradient_compression == "bf16" and not torch.cuda.is_available():
        raise InputError(
            "training.gradient_compression bf16 needs NCCL, and gloo carries this machine's gradients; choose fp16 or powersgd"
        )
    # Exact gradients for the first steps: PowerSGD's own default of 1,000 is more than many a
    # fine-tuning has.
    state = {"start_powerSGD_iter": 100} if config.gradient_compression.endswith("powersgd") else {}
    return DistributedDataParallelKwargs(
        gradient_as_bucket_view=True,
        comm_hook=_HOOKS[config.gradient_compression],
        comm_state_option=state,
    )


@cache
def _leave_at_exit() -> None:
    atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())

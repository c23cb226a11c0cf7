"""ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054) by DeepSpeed: state sharded over processes."""

import atexit
import contextlib
import copy
import gc
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from distillkit.data.batches import Encoded
from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.inference import predict_logits
from distillkit.training.precision import autocast
from distillkit.training.state import counts_on_device, load_weights, weights_of
from distillkit.training.strategies.base import MakeOptimizer, Strategy, join_processes

# As torch.amp.GradScaler has it: the scale that fp16 begins with, and the steps without overflow
# after which it grows.
_FIRST_SCALE, _GROW_EVERY = 2.0**16, 2000
_MOST_IN_A_BUCKET = 500_000_000  # DeepSpeed's own default, for models that have so many parameters
# Before, a gradient of float32 weights that is infinite or not a number goes unseen.
_OLDEST = (0, 19, 8)


class DeepSpeed(Strategy):
    """ZeRO 1, 2 or 3 by `training.zero_stage`, with float32 state as in the other strategies.

    What is trained is a copy: DeepSpeed marks, hooks and empties the modules and parameters that it
    gets. The model that was given waits on the CPU.

    DeepSpeed is called directly. accelerate drops its plugin where it is told to stay on the CPU,
    and keeps one for the life of a process.
    """

    def __init__(self, config: TrainingConfig) -> None:
        if config.optimizer == "lamb":
            raise InputError(
                "training.optimizer lamb: ZeRO makes one vector of all parameters, which leaves one trust ratio for all; choose adamw, or strategy fsdp"
            )
        super().__init__(config)

    def join(self) -> Accelerator:
        """Join the other processes.

        Raises:
            InputError: There are none, or DeepSpeed is not installed.
        """
        accelerator = join_processes()
        self._deepspeed = _quiet_deepspeed(accelerator.device)
        if accelerator.num_processes == 1:
            raise InputError(
                "training.strategy deepspeed: ZeRO takes several processes: torchrun --nproc-per-node N -m distillkit ...; auto trains in one"
            )
        _leave_at_exit()
        return accelerator

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Hand a copy of the model, and its optimizer, to DeepSpeed."""
        self._given = model.to("cpu")
        self.model = copy.deepcopy(model).to(self.device)
        self.engine, self.optimizer, *_ = self._deepspeed.initialize(
            model=_Logits(self.model, self._autocast),
            optimizer=make_optimizer(self.model),
            config=self._settings(sum(p.numel() for p in model.parameters())),
            dist_init_required=False,
        )
        if "ZeroOptimizer" not in type(self.optimizer).__name__:
            raise InputError(
                f"DeepSpeed was asked for ZeRO and made a {type(self.optimizer).__name__}"
            )
        if self.precision == "fp16":
            # DeepSpeed scales the loss only where the weights themselves are fp16.
            from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

            self.optimizer.loss_scaler = DynamicLossScaler(
                _FIRST_SCALE,
                _GROW_EVERY,
                min_scale=1e-3,
                delayed_shift=1,
                consecutive_hysteresis=False,
                raise_error_at_min_scale=False,
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
        self.engine.set_gradient_accumulation_boundary(last)
        self._clipped = False
        loss = loss_of_logits(self.engine(**inputs).float()) * weight
        self.engine.backward(loss)
        return loss.detach()

    def clip(self, max_norm: float) -> Tensor:
        """Clip the gradients and move the weights, one act here; return the norm they had.

        Where the norm is infinite or not a number the weights stay where they are.
        """
        self.engine.step()
        self._clipped = True
        return torch.as_tensor(
            # without clipping some engines compute none
            self.engine.get_global_grad_norm() or 0.0,
            dtype=torch.float32,
            device=self.device,
        )

    def step(self, number: int) -> None:
        """Move the weights, unless `clip` has."""
        if not self._clipped:
            self.engine.step()

    def predict(self, rows: Encoded) -> Tensor:
        """Return the logits of rows, (N, C) float32 on the CPU, the same in every process."""
        if self.config.zero_stage < 3:
            return super().predict(rows)
        # Of the copy each process holds a part, and its hooks put layers together only if all
        # processes run the same batches.
        load_weights(self._given, self.weights())
        logits = predict_logits(
            self._given, rows, precision=self.precision, shard=(self.shard_index, self.num_shards)
        )
        self._given.to("cpu")
        return self.sum(logits)

    def weights(self) -> dict[str, Tensor]:
        """Return the model's weights, whole and on the CPU."""
        with self._whole():
            return weights_of(self.model)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Take over what `weights` returned."""
        with self._whole(changed=True):
            load_weights(self.model, weights)
        # The optimizer has its own part of the weights to go by.
        self.optimizer.refresh_fp32_params()

    def state(self) -> dict[str, Tensor]:
        """Return the optimizer's and the loss scaler's whole state, on the CPU, by common names."""
        from deepspeed.utils import safe_get_full_optimizer_state

        self._link()
        found = self.optimizer.optimizer.state[self._parts()[0]]
        state = {}
        for name, parameter in self._trained():
            for what, value in found.items():
                if isinstance(value, Tensor) and value.dim():
                    value = safe_get_full_optimizer_state(parameter, what)
                state[f"optimizer.{name}/{what}"] = (
                    torch.as_tensor(value).to("cpu", copy=True).contiguous()
                )
        return state | self._scaler_state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` returned, of however many processes."""
        per_parameter = {name: _below(state, f"optimizer.{name}/") for name, _ in self._trained()}
        # Counts are the same for every parameter; the rest is laid out as the weights are.
        one_of_each = {
            what: value for found in per_parameter.values() for what, value in found.items()
        }
        for part in self._parts():
            for what, value in one_of_each.items():
                count = value.to(
                    self.device if counts_on_device(self.optimizer) else "cpu", copy=True
                )
                self.optimizer.optimizer.state[part][what] = (
                    torch.zeros_like(part.data) if value.dim() else count
                )
        self._link()
        for name, parameter in self._trained():
            for what, value in per_parameter[name].items():
                if value.dim():
                    self._set_optimizer_state(parameter, what, value)
        if "scaler.scale" in state and self.precision == "fp16":
            scaler = self.optimizer.loss_scaler
            scaler.cur_scale = float(state["scaler.scale"])
            scaler.cur_iter, scaler.last_overflow_iter = int(state["scaler._growth_tracker"]), -1

    def close(self) -> nn.Module:
        """Return the model that was given, with the weights that its copy has learnt."""
        load_weights(self._given, self.weights())
        self.engine.destroy()
        self.model = self._given
        return super().close().to(self.device)

    def _settings(self, parameters: int) -> dict[str, Any]:
        """Return DeepSpeed's configuration."""
        return {
            "train_micro_batch_size_per_gpu": 1,  # only used to count rows a second
            "gradient_clipping": self.config.max_grad_norm,
            # Whatever works on each number by itself does not mind how the numbers are laid out.
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {
                "stage": self.config.zero_stage,
                "reduce_bucket_size": min(parameters, _MOST_IN_A_BUCKET),
                "memory_efficient_linear": False,  # it would replace torch's linear for the rest of the process
            },
        }

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        return autocast(self.precision, self.device)

    def _whole(self, *, changed: bool = False) -> contextlib.AbstractContextManager[Any]:
        """Return a context with all weights in every process; `changed`: process 0's are kept."""
        if self.config.zero_stage < 3:
            return contextlib.nullcontext()
        return self._deepspeed.zero.GatheredParameters(
            list(self.model.parameters()), modifier_rank=0 if changed else None
        )

    def _trained(self) -> Iterator[tuple[str, Any]]:
        return ((name, p) for name, p in self.model.named_parameters() if p.requires_grad)

    def _parts(self) -> list[Tensor]:
        """Return the vectors that this process's optimizer works on."""
        if self.config.zero_stage < 3:
            return self.optimizer.single_partition_of_fp32_groups
        return self.optimizer.fp32_partitioned_groups_flat

    def _link(self) -> None:
        """Tell each parameter where its optimizer state is.

        DeepSpeed does so after the first step of the first parameter group, when the second has no
        state yet.
        """
        if self.config.zero_stage < 3:
            self.optimizer._hp_optimizer_states_linked = False
            self.optimizer._lazy_init_hp_params_optimizer_state()

    def _set_optimizer_state(self, parameter: Any, what: str, value: Tensor) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        if self.config.zero_stage < 3:
            safe_set_full_optimizer_state(parameter, value, what)
            return
        # The function for whole values reads past the end of those that do not divide evenly.
        size = parameter.ds_tensor.numel()
        filled = nn.functional.pad(value.flatten(), (0, size * self.world - value.numel()))
        safe_set_local_optimizer_state(
            parameter, filled.narrow(0, size * self.rank, size).to(self.device), what
        )

    def _scaler_state(self) -> dict[str, Tensor]:
        if self.precision != "fp16":
            return {}
        scaler = self.optimizer.loss_scaler
        steady = (scaler.cur_iter - scaler.last_overflow_iter - 1) % _GROW_EVERY
        return {
            "scaler.scale": torch.tensor(scaler.cur_scale, dtype=torch.float64),
            "scaler._growth_tracker": torch.tensor(float(steady), dtype=torch.float64),
        }


class _Logits(nn.Module):
    """A model that returns logits alone and autocasts itself: DeepSpeed ends outer autocasts."""

    def __init__(
        self, model: nn.Module, precision: Callable[[], contextlib.AbstractContextManager[object]]
    ) -> None:
        super().__init__()
        self.model, self._precision = model, precision

    def forward(self, **inputs: Tensor) -> Tensor:
        """Return logits, (B, C)."""
        with self._precision():
            return self.model(**inputs).logits


@cache
def _leave_at_exit() -> None:
    # What is registered last is called first: the process group is still there.
    atexit.register(_leave)


def _leave() -> None:
    """End the process groups and their threads, which would abort a Python that shuts down.

    DeepSpeed has references of its own to the groups. Of stage 3 some stay for good, and those
    threads get the interpreter once more.
    """
    from deepspeed import comm

    if comm.is_initialized():
        comm.destroy_process_group()
        gc.collect()
        time.sleep(0.1)


def _below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)
    }


def _quiet_deepspeed(device: torch.device) -> ModuleType:
    """Import DeepSpeed so that it compiles nothing, and logs errors only, to stderr.

    Raises:
        InputError: It is not installed, or too old.
    """
    os.environ.setdefault("DS_ACCELERATOR", device.type)  # else it guesses, and says so
    try:
        import deepspeed
    except ImportError:
        raise InputError(
            "training.strategy deepspeed: pip install 'distillkit[deepspeed]'"
        ) from None
    if (
        deepspeed.__version_major__,
        deepspeed.__version_minor__,
        deepspeed.__version_patch__,
    ) < _OLDEST:
        raise InputError(
            f"training.strategy deepspeed: {deepspeed.__version__} is too old; pip install 'deepspeed>={'.'.join(map(str, _OLDEST))}'"
        )
    # Compiled when it first talks to another process, for a minute, for a call that training has no
    # use for.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logger = logging.getLogger("DeepSpeed")
    logger.setLevel(logging.ERROR)
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)
    warnings.filterwarnings(
        "ignore", "`torch.distributed", FutureWarning
    )  # of names that DeepSpeed calls
    return deepspeed

"""Section `training`: how a model is trained."""

from dataclasses import dataclass
from typing import Literal

from distillkit.errors import InputError

Precision = Literal["auto", "fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained: the teacher's fine-tuning and the student's distillation share these."""

    epochs: int = 3
    """Passes over the training rows; 0 leaves the model as it is."""
    batch_size: int = 32
    """Rows a forward pass."""
    accumulation_steps: int = 1
    """Forward passes an optimizer step: the effective batch is batch_size times this."""
    optimizer: Literal["adamw", "adadelta"] = "adamw"
    """adamw, or the paper's adadelta (rho 0.95)."""
    learning_rate: float = 3e-5
    """Peak learning rate."""
    weight_decay: float = 0.01
    """Decoupled weight decay of matrices; biases and norms have none."""
    warmup_fraction: float = 0.1
    """Share of the steps over which the learning rate rises from 0, 0 to 1."""
    schedule: Literal["linear", "constant"] = "linear"
    """Learning rate after the warm-up: linear to 0, or constant."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this global norm; 0: never."""
    precision: Precision = "auto"
    """Autocast of the forward pass; auto: bf16 where the processor or GPU computes in it, else fp32."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "accumulation_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"training.{name} is {getattr(self, name)}: expected at least 1")
        for name in ("epochs", "learning_rate", "weight_decay", "max_grad_norm"):
            if not getattr(self, name) >= 0:
                raise InputError(f"training.{name} is {getattr(self, name)}: expected 0 or more")
        if not 0 <= self.warmup_fraction <= 1:
            raise InputError(f"training.warmup_fraction is {self.warmup_fraction}: expected 0 to 1")

"""Section `training`: how a model is trained, teacher and student alike."""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

from distillkit.errors import InputError
from distillkit.recipe.bounds import (
    BY_ROWS,
    Count,
    CountOrZero,
    Fraction,
    NotNegative,
    Range,
    check,
    number_in,
)
from distillkit.recipe.data import SCORES, Task

Precision = Literal["auto", "fp32", "bf16", "fp16", "apex-o1", "apex-o2"]
STRATEGIES = {
    "auto": "ddp where torchrun started more than one process, else one process alone",
    "ddp": "every process holds the model, the rows are shared out",
    "dp": "one process, several GPUs; slower than ddp, which takes torchrun",
    "fsdp": "parameters, gradients and optimizer state are shared out (FSDP2)",
    "deepspeed": "ZeRO, by training.zero_stage (pip install 'distillkit[deepspeed]')",
    "local-sgd": "processes average their weights every training.local_sgd_steps steps",
    "horovod": "started by horovodrun in place of torchrun",
    "tensor-parallel": "every layer of a BERT-class teacher is shared out, the rows are not",
    "pipeline": "the layers of a BERT-class teacher stand on one process after another",
}
# Where a row of a transfer set is from, and what had a part in it.
_ORIGINS = (
    "original",
    "unlabelled",
    "generated",
    "augmented",
    "mask",
    "pos",
    "ngram",
    "neighbour",
    "swap",
    "self",
    "other",
    "tfidf",
    "vectors",
    "random",
)
# What users of older recipes may still ask for: why it is gone, and what does its work.
_DEAD = {
    "byteps": "BytePS does not build on any Python since 3.9, its last release is of 2021; ddp over NCCL does its work",
    "bagua": "Bagua's last release is of 2023 and for Python 3.10 at most; local-sgd, and ddp with --training.gradient-compression, do its work",
    "apex": "apex's own DDP was removed upstream in 2025; ddp does its work",
    "megatron": "Megatron-core's BERT runs on CUDA alone; tensor-parallel shares out the layers of a BERT-class teacher",
}

# Where a process holds parts of tensors: apex would take a part's norm for the whole tensor's.
_SHARDED = ("fsdp", "deepspeed", "tensor-parallel")

# Passes, and least optimizer steps, where the rows say how long: docs/training.md has the figures.
STUDENT_STEPS, STUDENT_EPOCHS = 3000, 3
TEACHER_STEPS, TEACHER_EPOCHS = 300, 3


@dataclass(frozen=True)
class LoaderConfig:
    """How training rows reach the model."""

    rows: Literal["auto", "device", "host"] = "auto"
    """device: all rows live beside the model and batches are gathered there by index; host: they
    are gathered in the machine's memory; auto: device where they take at most a quarter of its own."""

    def __post_init__(self) -> None:
        check(self, "training.loader")


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained: fine-tuning of the teacher, distillation of the student."""

    epochs: Annotated[int, Range(-1)] = 3
    """Passes over the training rows; 0 leaves the model as it is. -1: 3, and more where these would
    be fewer than 3,000 optimizer steps, of a teacher 300; 20 of a student of gold labels."""
    steps: CountOrZero = 0
    """Optimizer steps in all, in place of `epochs`: it does not grow with the rows; 0: by epochs."""
    batch_size: Count = 32
    """Rows per forward pass, over all processes together: what a recipe computes does not depend on
    their number."""
    sampling_weights: tuple[str, ...] = ()
    """Rows of an origin or rule of the transfer set per epoch, relative to one each: NAME=WEIGHT, as in
    original=3 augmented=0.5 mask=0."""
    accumulation_steps: Count = 1
    """Forward passes per optimizer step: the effective batch is batch_size times this."""
    optimizer: Literal["adamw", "lamb", "lamb-apex", "adadelta", "sgd"] = "adamw"
    """adamw; lamb for large batches (You et al. 2020); lamb-apex, the same by NVIDIA's kernel, on a
    GPU; the paper's adadelta (rho 0.95); sgd (momentum 0.9, Nesterov)."""
    learning_rate: NotNegative = 3e-5
    """Peak learning rate."""
    learning_rate_scaling: Literal["none", "sqrt", "linear"] = "none"
    """learning_rate is meant for `reference_batch` rows a step and grows with the root of the
    effective batch, or in line with it."""
    reference_batch: Count = 64
    """The effective batch that learning_rate was chosen at."""
    weight_decay: NotNegative = 0.01
    """Weight decay of matrices: decoupled with adamw and lamb, added to the gradient with sgd and
    adadelta; biases and norms have none."""
    always_adapt: bool = False
    """lamb also adapts the steps of biases and norms (NVIDIA's nvlamb); it always adapts those of
    matrices."""
    warmup_fraction: Fraction = 0.1
    """Share of the steps over which the learning rate rises from 0, 0 to 1."""
    schedule: Literal["linear", "polynomial", "constant"] = "linear"
    """Learning rate after the warm-up: falls to 0 in a line, or as a power of what
    is left; or stays."""
    schedule_power: NotNegative = 0.5
    """Power of `polynomial`; 1 is a line, 0.5 is common with lamb."""
    max_grad_norm: NotNegative = 1.0
    """Gradients are scaled down to this global norm; 0: never."""
    precision: Precision = "auto"
    """Autocast of the forward pass; auto: bf16 where the processor or GPU computes in it, else
    fp32. fp16 scales its loss and needs a GPU; apex-o1 and apex-o2 mean fp16."""
    best_by: Literal["score", "spearman"] = "score"
    """What on dev says which epoch is kept: the task's score (accuracy, micro-F1, Pearson's
    correlation), or Spearman's correlation of a regression."""
    patience: CountOrZero = 0
    """Stop after this many epochs without a better dev score; 0: never."""
    strategy: str = "auto"
    """How several processes share the work: auto, ddp, dp, fsdp, deepspeed, local-sgd, horovod,
    tensor-parallel or pipeline; docs/training.md."""
    gradient_compression: Literal["none", "fp16", "bf16", "powersgd", "batched-powersgd"] = "none"
    """How ddp's gradients travel between processes."""
    zero_stage: Literal[1, 2, 3] = 2
    """What deepspeed shares out: 1 optimizer state, 2 gradients too, 3 parameters too."""
    local_sgd_steps: Count = 8
    """Steps between two averages of local-sgd."""
    checkpoint_steps: CountOrZero = 500
    """Optimizer steps between two checkpoints, beside one at each epoch's end: what a kill may
    cost; 0: epochs' ends only."""
    keep_checkpoints: Count = 2
    """Checkpoints kept while training runs, beside the best; the oldest goes."""
    tensorboard: bool = False
    """Write TensorBoard events beside the JSON log (pip install 'distillkit[tensorboard]')."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """How training rows reach the model."""

    def __post_init__(self) -> None:
        check(self, "training")
        self._check_sampling_weights()
        if self.strategy in _DEAD:
            raise InputError(f"training.strategy is {self.strategy}: {_DEAD[self.strategy]}")
        if self.strategy not in STRATEGIES:
            raise InputError(
                f"training.strategy is {self.strategy!r}: expected one of {', '.join(STRATEGIES)}"
            )
        if self.gradient_compression != "none" and self.strategy not in ("auto", "ddp"):
            raise InputError(
                f"training.gradient_compression is {self.gradient_compression}, but training.strategy is {self.strategy}: expected ddp"
            )
        if self.always_adapt and self.optimizer not in ("lamb", "lamb-apex"):
            raise InputError(
                f"training.always_adapt is for lamb, but training.optimizer is {self.optimizer}; leave it out"
            )
        if self.optimizer == "lamb-apex" and self.strategy in _SHARDED:
            raise InputError(
                f"training.optimizer is lamb-apex, but training.strategy is {self.strategy}, which divides tensors: expected lamb"
            )

    def _check_sampling_weights(self) -> None:
        for item in self.sampling_weights:
            name, _, given = item.partition("=")
            weight = number_in(given)
            if weight is None or weight < 0:
                raise InputError(
                    f"training.sampling_weights has {item!r}: expected NAME=WEIGHT, a number of 0 or more"
                )
            if name not in _ORIGINS:
                raise InputError(
                    f"training.sampling_weights has {item!r}: expected one of {', '.join(_ORIGINS)}"
                )
        names = [item.partition("=")[0] for item in self.sampling_weights]
        if len(set(names)) < len(names):
            raise InputError(
                f"training.sampling_weights is {', '.join(self.sampling_weights)}: expected each name once"
            )

    def score_of(self, task: Task) -> str:
        """Return the name of the score by which epochs are compared.

        Raises:
            InputError: The task has no such score.
        """
        if self.best_by == "spearman" and task != "regression":
            raise InputError(
                f"training.best_by is spearman, but the task is {task}: expected score"
            )
        return SCORES[task] if self.best_by == "score" else self.best_by

    def settings(self) -> dict[str, Any]:
        """Return what the weights depend on, by field."""
        plain = TrainingConfig()
        return asdict(self) | {
            "checkpoint_steps": plain.checkpoint_steps,
            "keep_checkpoints": plain.keep_checkpoints,
            "loader": asdict(plain.loader),
        }

    @property
    def by_rows(self) -> bool:
        """Whether the rows say how long the training is."""
        return self.epochs == BY_ROWS and not self.steps

    def for_rows(self, rows: int) -> "TrainingConfig":
        """Return the same training with its length for so many rows, if they say it."""
        if not self.by_rows:
            return self
        batch = self.batch_size * self.accumulation_steps
        steps = max(STUDENT_STEPS, math.ceil(STUDENT_EPOCHS * rows / batch))
        return replace(self, steps=steps)

    def rows_shown(self, rows: int) -> int:
        """Return how many rows a training on so many rows reads in all."""
        steps = self.for_rows(rows).steps
        return steps * self.batch_size * self.accumulation_steps or self.epochs * rows

    def check_own_length(self, where: str) -> None:
        """Refuse a length that follows from the rows.

        Args:
            where: The section.

        Raises:
            InputError: The rows say how long the training is.
        """
        if self.by_rows:
            raise InputError(
                f"{where}.epochs is {BY_ROWS}, which is a length for teachers and students: expected 0 or more"
            )

    def by_epochs(self, epochs: int) -> "TrainingConfig":
        """Return the same training over so many epochs."""
        return replace(self, epochs=epochs, steps=0)

    def weight_of(self) -> dict[str, float]:
        """Return how often an epoch has rows of each origin or rule that is named."""
        pairs = (item.partition("=") for item in self.sampling_weights)
        return {name: float(weight) for name, _, weight in pairs}

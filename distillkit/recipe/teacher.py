"""Sections `teacher` and `label`: who teaches, and how it labels the transfer set."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from distillkit.errors import InputError
from distillkit.recipe.bounds import BY_ROWS, Count, CountOrZero, check
from distillkit.recipe.data import Task
from distillkit.recipe.endpoint import EndpointConfig
from distillkit.recipe.places import Model
from distillkit.recipe.training import TEACHER_EPOCHS, TEACHER_STEPS, Precision, TrainingConfig

TEACHER_NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"  # of a folder in a logit store


@dataclass(frozen=True)
class TeacherConfig:
    """Who teaches: an encoder checkpoint and how it is fine-tuned."""

    model: Model = "bert-base-uncased"
    """A name on the shelf or a hub, a folder with config.json, `package:NAME` (an installed package
    with a MODEL_DIR), or `scratch`: what adapt.scratch says."""
    max_tokens: Count = 128
    """Longer texts are truncated, in word pieces, special tokens included."""
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(epochs=BY_ROWS))
    """Fine-tuning; Devlin et al. 2019 try learning rates 2e-5 to 5e-5, 3 epochs, batch 32."""

    def __post_init__(self) -> None:
        check(self, "teacher")
        if self.training.sampling_weights:
            raise InputError(
                "teacher.training.sampling_weights is for students: a teacher learns from the training rows alone; leave it out"
            )

    def for_rows(self, rows: int) -> "TeacherConfig":
        """Return the same teacher with its epochs for so many training rows, if they say it.

        Source: Mosbach et al. 2021 (arXiv 2006.04884): few rows want more passes, not fewer steps.
        """
        if not self.training.by_rows:
            return self
        batch = self.training.batch_size * self.training.accumulation_steps
        epochs = max(TEACHER_EPOCHS, math.ceil(TEACHER_STEPS * batch / rows))
        return replace(self, training=self.training.by_epochs(epochs))


@dataclass(frozen=True)
class LabelConfig:
    """How the teacher labels the transfer set."""

    max_batch_tokens: Count = 2048
    """Tokens a forward pass, padding included; on a GPU 65536 is a good start."""
    precision: Precision = "auto"
    """What the teacher computes in; auto: bf16 where the processor or GPU computes in it, else
    fp32."""
    shard_rows: Count = 16384
    """Rows per shard; a killed run labels at most two shards again."""
    storage: Literal["fp16", "fp32"] = "fp16"
    """How logits are kept on disk; fp16 halves them, and the store says by how much it rounded.
    Scores are always kept in fp32."""

    max_rows: Count = 2_000_000
    """Most rows that a run's teacher may be given to read; a larger transfer set is refused before
    it starts."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    """A model service that gives the logits in place of the teacher; with `data.labels` it labels
    the first texts alone."""
    zero_shot: Model = ""
    """Encoder that labels the first texts where `data.labels` are all that is known: one trained on
    entailment (NLI), or one of sentence vectors."""
    descriptions: tuple[str, ...] = ()
    """What labels mean to a service or a zero-shot encoder, each as LABEL=SENTENCE."""
    budget: CountOrZero = 2000
    """With `data.labels`, how many of the unlabelled texts are labelled first; 0: all."""

    def __post_init__(self) -> None:
        check(self, "label")
        if wrong := [item for item in self.descriptions if not item.partition("=")[2].strip()]:
            raise InputError(f"label.descriptions has {wrong[0]!r}: expected LABEL=SENTENCE")
        if self.zero_shot and self.endpoint.url:
            raise InputError(
                f"label.zero_shot is {self.zero_shot}, and label.endpoint.url is given too; drop one of the two"
            )

    def kept_as(self, task: Task) -> str:
        """Return the type that logits of a task are stored in.

        Scores may be years or prices: fp16 has three to four digits and ends at 65,504.
        """
        return "fp32" if task == "regression" else self.storage

    def meanings(self, labels: Sequence[str]) -> dict[str, str]:
        """Return the description of each label that has one.

        Raises:
            InputError: One is of no label.
        """
        pairs = (item.partition("=") for item in self.descriptions)
        found = {label.strip(): sentence.strip() for label, _, sentence in pairs}
        if unknown := [name for name in found if name not in labels]:
            raise InputError(
                f"label.descriptions has {unknown[0]!r}: the labels are {', '.join(labels)}"
            )
        return found

    def settings(self) -> dict[str, Any]:
        """Return what the logits depend on, by field."""
        kept = asdict(self)
        for name in ("max_rows", "endpoint", "zero_shot", "descriptions", "budget"):
            del kept[name]
        if not self.endpoint.url:
            return kept
        said = {"descriptions": self.descriptions} if self.descriptions else {}
        return kept | {"endpoint": self.endpoint.settings()} | said

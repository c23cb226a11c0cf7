"""What the larger stages are told; the commands' options are these fields."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from distillkit.errors import InputError
from distillkit.recipe.bounds import Seed
from distillkit.recipe.compress import CompressConfig
from distillkit.recipe.data import ColumnsConfig, Task
from distillkit.recipe.experiment import Recipe
from distillkit.recipe.loss import LossConfig
from distillkit.recipe.student import StudentConfig
from distillkit.recipe.training import TrainingConfig


@dataclass(frozen=True)
class StudentJob:
    """A student to train."""

    transfer_set: str
    """What distillkit augment wrote, or any table of texts."""
    dev: str
    """Labelled development data."""
    output: Path
    """Folder for the student."""
    student: StudentConfig = field(default_factory=StudentConfig)
    logits: Path | None = None
    """The store that distillkit label wrote; none: learn from gold labels, with --loss.alpha 1."""
    teacher: str = ""
    """The teacher's checkpoint, where student.embeddings.source or student.kind needs it."""
    loss: LossConfig = field(default_factory=LossConfig)
    training: TrainingConfig = field(default_factory=lambda: Recipe().training)
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    task: Task = "classification"
    """Without --logits, what a label is: one class a text, any number of labels, or a number; a
    store says it itself."""
    vocabulary_from: str = ""
    """Another source for the vocabulary; empty: the transfer set."""
    seed: Seed = 1
    """Seed of weights, order of rows, dropout."""
    progress: str = "student"
    """Name of the progress bar."""
    resume: bool = True
    """Continue from the checkpoints of a killed training; --no-resume starts over."""


@dataclass(frozen=True)
class CompressJob:
    """A model to compress.

    Raises:
        InputError: Two of the fields contradict each other, or there is nothing to do.
    """

    model: str
    """Folder, package:NAME or hub name of a classifier with a fast tokenizer, student or
    teacher."""
    output: Path
    """Folder for bundle.zip, a checkpoint with the same answers, and the metrics."""
    dev: str
    """Labelled rows, on which each step is measured and an epoch is chosen."""
    settings: CompressConfig = field(default_factory=CompressConfig)
    transfer_set: str = ""
    """What says which tokens are used, and what the model is trained on again."""
    logits: Path | None = None
    """The store that distillkit label wrote for the transfer set; none: no training."""
    loss: LossConfig = field(default_factory=LossConfig)
    training: TrainingConfig = field(
        default_factory=lambda: replace(Recipe().training, epochs=1, learning_rate=1e-4)
    )
    """How it is trained again. The rate is low, or the model forgets; if most units are removed, a
    new student's (1e-3) is better."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    max_mb: float = 0.0
    """Largest size of bundle.zip in MB (10^6 bytes); what to lose is chosen then. 0: the settings
    say what goes."""
    max_drop: float = 0.0
    """Points of the dev score that may be lost with --max-mb; 0: as many as it takes."""
    seed: Seed = 1
    """Seed of order and dropout."""
    resume: bool = True
    """Continue from the checkpoints of a killed training; --no-resume starts over."""
    overwrite: bool = False
    """Replace a finished result that other settings made."""

    def __post_init__(self) -> None:
        if self.logits is not None and not self.transfer_set:
            raise InputError("--logits: expected --transfer-set with it, whose rows they are for")
        changes = self.settings.changes_tensors or self.settings.changes_storage
        if self.max_mb and changes:
            raise InputError("--max-mb chooses the settings: give it, or --compress.*, not both")
        if not self.max_mb and not changes:
            raise InputError(
                "nothing that the model is to lose: give --max-mb, or settings such as --compress.weights int8, "
                "--compress.units 0.5 or, of a transformer, --compress.layers 2"
            )
        self.training.check_own_length("training")
        if self.training.steps:
            raise InputError("--training.steps: compress trains again by --training.epochs")
        if self.max_mb < 0 or self.max_drop < 0:
            raise InputError("--max-mb and --max-drop: expected 0 or more")

    @property
    def retrains(self) -> bool:
        """Whether the model is trained again after it was cut."""
        return self.logits is not None and self.training.epochs > 0

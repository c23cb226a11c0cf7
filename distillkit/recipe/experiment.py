"""One experiment: every section of a recipe."""

from dataclasses import dataclass, field, replace
from typing import Literal

from distillkit.errors import InputError
from distillkit.recipe.adapt import AdaptConfig
from distillkit.recipe.augment import AugmentConfig, MixConfig
from distillkit.recipe.bounds import BY_ROWS, CountOrZero, Seed, check
from distillkit.recipe.data import AUTO_RAW, DataConfig
from distillkit.recipe.loss import LossConfig
from distillkit.recipe.ship import ShipConfig
from distillkit.recipe.student import StudentConfig
from distillkit.recipe.teacher import LabelConfig, TeacherConfig
from distillkit.recipe.training import TrainingConfig

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class EvaluationConfig:
    """What the distilled student is held against."""

    gold_epochs: CountOrZero = 20
    """Epochs of the same student on the gold labels alone (fewer rows, so more passes); the best on
    dev is kept. 0: leave it out."""
    latency_sentences: CountOrZero = 200
    """Sentences timed one by one, tokenising included; 0: no timing."""

    def __post_init__(self) -> None:
        check(self, "evaluation")


@dataclass(frozen=True)
class Recipe:
    """One experiment: teacher + student + data + how."""

    seed: Seed = 1
    """Seed of everything random."""
    engine: Engine = "local"
    """Where augment and label work. local: processes of this machine; ray: a Ray cluster
    (pip install 'distillkit[ray]')."""
    workers: CountOrZero = 0
    """Processes that augment; 0: one per core, fewer for few texts. The bytes written do not depend
    on it."""
    data: DataConfig = field(default_factory=lambda: DataConfig(unlabelled=(AUTO_RAW,)))
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    adapt: AdaptConfig = field(default_factory=AdaptConfig)
    augment: AugmentConfig = field(
        default_factory=lambda: AugmentConfig(n_iter=BY_ROWS, mix=MixConfig(rules=1.0, markov=1.0))
    )
    """How the transfer set is made."""
    label: LabelConfig = field(default_factory=LabelConfig)
    student: StudentConfig = field(default_factory=StudentConfig)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            epochs=BY_ROWS, batch_size=128, learning_rate=1e-3, weight_decay=0.0
        )
    )
    """How the student is trained."""
    loss: LossConfig = field(default_factory=LossConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    ship: ShipConfig = field(default_factory=ShipConfig)

    @property
    def labelled_elsewhere(self) -> bool:
        """Whether given logits or a service, and not the teacher, label the transfer set."""
        # With the names of the labels alone a service labels the first texts, and a teacher the set.
        service = bool(self.label.endpoint.url) and not self.data.labels
        return bool(self.data.logits) or service

    def __post_init__(self) -> None:
        check(self, "")
        for training in (self.teacher.training, self.training):
            training.score_of(self.data.task)
        if self.ship.cascade and self.data.task != "classification":
            raise InputError(
                f"ship.cascade: a cascade is for classification, and data.task is {self.data.task}; leave it out"
            )
        mix = self.augment.mix
        if self.data.columns.text_pair and mix.markov:
            # New pairs are to pairs what the chain's texts are to single ones.
            more, alone = mix.pairs + mix.markov, mix.self_pairs + mix.markov
            mix = replace(mix, markov=0.0, pairs=more, self_pairs=alone)
            object.__setattr__(self, "augment", replace(self.augment, mix=mix))

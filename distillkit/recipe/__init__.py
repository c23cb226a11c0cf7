"""Recipes: frozen dataclasses, one module per section, and the strict loader of their YAML.

Field defaults < recipe YAML < command-line flags. The docstring under a field is its help on the
command line.
"""

from distillkit.recipe.adapt import (
    AdaptConfig,
    MaskingConfig,
    ObjectivesConfig,
    ScratchConfig,
    TextConfig,
)
from distillkit.recipe.augment import (
    AugmentConfig,
    GeneratedConfig,
    MarkovConfig,
    MixConfig,
    NeighboursConfig,
    PairsConfig,
    SentencesConfig,
    WaysConfig,
)
from distillkit.recipe.compress import CompressConfig, Storage, TableStorage
from distillkit.recipe.data import SCORES, ColumnsConfig, DataConfig, Missing, Task
from distillkit.recipe.endpoint import EndpointConfig
from distillkit.recipe.experiment import Engine, EvaluationConfig, Recipe
from distillkit.recipe.jobs import CompressJob, StudentJob
from distillkit.recipe.loader import dump, load_config, load_recipe
from distillkit.recipe.loss import LossConfig
from distillkit.recipe.ship import ShipConfig
from distillkit.recipe.student import EmbeddingConfig, StudentConfig, VocabularyConfig
from distillkit.recipe.teacher import TEACHER_NAME, LabelConfig, TeacherConfig
from distillkit.recipe.training import STRATEGIES, LoaderConfig, Precision, TrainingConfig

__all__ = [
    "SCORES",
    "STRATEGIES",
    "TEACHER_NAME",
    "AdaptConfig",
    "AugmentConfig",
    "ColumnsConfig",
    "CompressConfig",
    "CompressJob",
    "DataConfig",
    "EmbeddingConfig",
    "EndpointConfig",
    "Engine",
    "EvaluationConfig",
    "GeneratedConfig",
    "LabelConfig",
    "LoaderConfig",
    "LossConfig",
    "MarkovConfig",
    "MaskingConfig",
    "Missing",
    "MixConfig",
    "NeighboursConfig",
    "ObjectivesConfig",
    "PairsConfig",
    "Precision",
    "Recipe",
    "ScratchConfig",
    "SentencesConfig",
    "ShipConfig",
    "Storage",
    "StudentConfig",
    "StudentJob",
    "TableStorage",
    "Task",
    "TeacherConfig",
    "TextConfig",
    "TrainingConfig",
    "VocabularyConfig",
    "WaysConfig",
    "dump",
    "load_config",
    "load_recipe",
]

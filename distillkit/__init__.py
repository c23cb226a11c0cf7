"""distillkit: labelled text -> teacher -> transfer set -> logits -> student -> evaluation.

`distillkit.pipeline` has one function a stage, of the same name as the command. After `import
distillkit`, transformers' Auto classes of models load students, whichever of the two is imported
first (AutoConfig alone does once one of those has been imported).
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    from distillkit.api import Run as Run
    from distillkit.api import distill as distill
    from distillkit.api import load as load
    from distillkit.augment.augmenter import Augmenter as Augmenter
    from distillkit.loss import DistillationLoss as DistillationLoss
    from distillkit.recipe import AugmentConfig as AugmentConfig
    from distillkit.recipe import LossConfig as LossConfig
    from distillkit.training.lamb import Lamb as Lamb

__version__ = "0.1.0"

# Found on first use, so that `import distillkit` and `distillkit --help` load neither torch nor
# transformers.
_LAZY = {
    "Augmenter": "distillkit.augment.augmenter",
    "AugmentConfig": "distillkit.recipe",
    "DistillationLoss": "distillkit.loss",
    "Lamb": "distillkit.training.lamb",
    "LossConfig": "distillkit.recipe",
    "Run": "distillkit.api",
    "distill": "distillkit.api",
    "load": "distillkit.api",
}
__all__ = [
    "AugmentConfig",
    "Augmenter",
    "DistillationLoss",
    "Lamb",
    "LossConfig",
    "Run",
    "distill",
    "load",
]


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'distillkit' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


@wrapt.when_imported("transformers.models.auto.modeling_auto")
def _register_models(_: ModuleType) -> None:
    from distillkit.student import register

    register.register()

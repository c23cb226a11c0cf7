"""Make transformers' Auto classes know every kind of student."""

from typing import Any

from distillkit.recipe.kinds import StudentKind, load_kinds, resolve


def network_of(kind: StudentKind) -> Any:
    """Return the model class of a kind, or None if transformers has it itself."""
    return None if kind.network is None else resolve(kind.network)


def kind_of_model(model: Any) -> StudentKind:
    """Return the kind of a classifier; of one of transformers' own, teachers too, `transformer`."""
    kinds = load_kinds()
    return next((k for k in kinds.values() if type(model) is network_of(k)), kinds["transformer"])


def register() -> None:
    """Register every student with the Auto classes; twice is once.

    A model that transformers has itself, BERT above all, may be half loaded when this is called, so
    no class here may be made of one: what is built about a transformer holds it, and imports what
    makes it when it is built.
    """
    # Imported here: loading the Auto classes is what calls this (see distillkit/__init__.py).
    from transformers import AutoConfig, AutoModelForSequenceClassification

    ours = [network_of(kind) for kind in load_kinds().values() if kind.network is not None]
    for model in ours:
        config = model.config_class
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModelForSequenceClassification.register(config, model, exist_ok=True)

"""Make transformers' Auto classes know the students."""

from distillkit.student.bilstm import BiLSTMConfig, BiLSTMForSequenceClassification
from distillkit.student.siamese import SiameseBiLSTMConfig, SiameseBiLSTMForSequenceClassification

KINDS = {
    "bilstm": (BiLSTMConfig, BiLSTMForSequenceClassification),
    "siamese-bilstm": (SiameseBiLSTMConfig, SiameseBiLSTMForSequenceClassification),
}


def register() -> None:
    """Register every student with the Auto classes; twice is once."""
    # Imported here: loading the Auto classes is what calls this (see distillkit/__init__.py).
    from transformers import AutoConfig, AutoModelForSequenceClassification

    for config, model in KINDS.values():
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModelForSequenceClassification.register(config, model, exist_ok=True)

"""Every kind of student, and making transformers' Auto classes know them."""

from distillkit.student.bilstm import (
    BiLSTMConfig,
    BiLSTMForSequenceClassification,
    SiameseBiLSTMConfig,
    SiameseBiLSTMForSequenceClassification,
)
from distillkit.student.pruned import (
    PrunedTransformerConfig,
    PrunedTransformerForSequenceClassification,
)
from distillkit.student.static import (
    SiameseStaticConfig,
    SiameseStaticForSequenceClassification,
    StaticConfig,
    StaticForSequenceClassification,
)
from distillkit.student.textcnn import (
    SiameseTextCNNConfig,
    SiameseTextCNNForSequenceClassification,
    TextCNNConfig,
    TextCNNForSequenceClassification,
)
from distillkit.student.transformer import (
    SiameseTransformerConfig,
    SiameseTransformerForSequenceClassification,
)

# Students that read words of their own. A `transformer` is no class of ours, and a siamese one is
# built about another's encoder.
WORD_KINDS = {
    "bilstm": (BiLSTMConfig, BiLSTMForSequenceClassification),
    "siamese-bilstm": (SiameseBiLSTMConfig, SiameseBiLSTMForSequenceClassification),
    "siamese-static": (SiameseStaticConfig, SiameseStaticForSequenceClassification),
    "siamese-textcnn": (SiameseTextCNNConfig, SiameseTextCNNForSequenceClassification),
    "static": (StaticConfig, StaticForSequenceClassification),
    "textcnn": (TextCNNConfig, TextCNNForSequenceClassification),
}


def register() -> None:
    """Register every student with the Auto classes; twice is once.

    A model that transformers has itself, BERT above all, may be half loaded when this is called, so
    no class here may be made of one: what is built about a transformer holds it, and imports what
    makes it when it is built.
    """
    # Imported here: loading the Auto classes is what calls this (see distillkit/__init__.py).
    from transformers import AutoConfig, AutoModelForSequenceClassification

    ours = [
        *WORD_KINDS.values(),
        (PrunedTransformerConfig, PrunedTransformerForSequenceClassification),
        (SiameseTransformerConfig, SiameseTransformerForSequenceClassification),
    ]
    for config, model in ours:
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModelForSequenceClassification.register(config, model, exist_ok=True)

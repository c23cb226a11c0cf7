"""The BiLSTM of Tang et al. 2019, for texts and for pairs; see `student/bilstm.py`."""

from distillkit.recipe.kinds import KINDS, StudentKind

SINGLE = StudentKind(
    "bilstm",
    "BiLSTM, last states of both directions, ReLU layer (Tang et al. 2019)",
    "distillkit.student.bilstm:BiLSTMForSequenceClassification",
    twin="siamese-bilstm",
    settings=("hidden_size", "layers"),
    poolings=("max", "mean", "attention", "last"),
    suits="order",
)
PAIRS = SINGLE.siamese("distillkit.student.bilstm:SiameseBiLSTMForSequenceClassification")

KINDS |= {kind.name: kind for kind in (SINGLE, PAIRS)}

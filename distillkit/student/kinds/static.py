"""A mean of word vectors, for texts and for pairs; see `student/static.py`."""

from distillkit.recipe.kinds import KINDS, StudentKind

SINGLE = StudentKind(
    "static",
    "mean of word vectors, ReLU layer: blind to word order, and the fastest",
    "distillkit.student.static:StaticForSequenceClassification",
    twin="siamese-static",
    compress=("vocabulary_size", "units"),
    suits="no order",
    limits="It takes the mean of word vectors: the order of words means nothing to it.",
)
PAIRS = SINGLE.siamese("distillkit.student.static:SiameseStaticForSequenceClassification")

KINDS |= {kind.name: kind for kind in (SINGLE, PAIRS)}

"""The convolutional network of Kim 2014, for texts and for pairs; see `student/textcnn.py`."""

from distillkit.recipe.kinds import KINDS, StudentKind

SINGLE = StudentKind(
    "textcnn",
    "filters over a few neighbouring words, the strongest answer of each (Kim 2014)",
    "distillkit.student.textcnn:TextCNNForSequenceClassification",
    twin="siamese-textcnn",
    settings=("hidden_size", "kernel_sizes"),
    suits="near order",
    limits="It sees {longest_kernel} words in a row at most: what stands further apart it cannot bring together.",
)
PAIRS = SINGLE.siamese("distillkit.student.textcnn:SiameseTextCNNForSequenceClassification")

KINDS |= {kind.name: kind for kind in (SINGLE, PAIRS)}

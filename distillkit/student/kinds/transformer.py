"""A transformer of few layers with its teacher's tokenizer; see `student/transformer.py`."""

from distillkit.recipe.kinds import KINDS, StudentKind

TOGETHER = StudentKind(
    "transformer",
    "few layers, cut from the teacher or fresh, with its tokenizer; reads both texts of a pair together",
    None,
    reads="both",
    settings=("hidden_size", "layers"),
    poolings=(),
    from_teacher="distillkit.student.transformer:few_layers_student",
    check_teacher="distillkit.student.transformer:check_teacher",
    hidden_step=64,
    compress=("vocabulary_size", "layers", "feed_forward"),
)
APART = TOGETHER.siamese(
    "distillkit.student.transformer:SiameseTransformerForSequenceClassification",
    summary="few layers, cut from the teacher or fresh, with its tokenizer; the texts of a pair read apart",
    poolings=("max", "mean", "attention"),
    from_teacher="distillkit.student.transformer:siamese_student",
    check_teacher="distillkit.student.transformer:check_teacher_of_sides",
    compress=("units",),
)

KINDS |= {kind.name: kind for kind in (TOGETHER, APART)}

"""Students that read both texts of a pair together; see `student/interaction.py`."""

from distillkit.recipe.kinds import KINDS, StudentKind

BILSTM = StudentKind(
    "interaction-bilstm",
    "BiLSTM whose words attend to those of the other text; for pairs (ESIM, Chen et al. 2017)",
    "distillkit.student.interaction:InteractionBiLSTMForSequenceClassification",
    reads="pairs",
    settings=("hidden_size",),
    poolings=(),
    suits="together",
)
DECOMPOSABLE = StudentKind(
    "decomposable",
    "word vectors that attend to those of the other text; for pairs (Parikh et al. 2016)",
    "distillkit.student.interaction:DecomposableForSequenceClassification",
    reads="pairs",
    settings=("hidden_size",),
    poolings=(),
    limits="It compares words one by one: their order means nothing to it.",
)

KINDS |= {kind.name: kind for kind in (BILSTM, DECOMPOSABLE)}

"""Self-pairs: each text of a pair beside a variant of itself by the three rules.

They show where the teacher draws the line between saying the same and nearly the same, which a
pair's two texts seldom do.
"""

from functools import partial

from distillkit.augment.method import Method
from distillkit.augment.methods.pairs import refuse_single_texts
from distillkit.augment.methods.rules import RULES

SELF_PAIRS = Method(
    "self_pairs",
    "Texts of the pairs beside their own variants by the three rules.",
    variation=RULES.variation,
    self_pairs=True,
    check=partial(refuse_single_texts, "self_pairs"),
)

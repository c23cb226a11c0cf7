"""Masking, part-of-speech-guided replacement and n-gram sampling: the paper's three rules, in one pass."""

from distillkit.augment.method import Method
from distillkit.augment.rules import Rules

RULES = Method(
    "rules",
    "Words masked or replaced by others of their part of speech, and texts cut to an n-gram (Tang et al. 2019).",
    variation=lambda lexicon, config, folder: Rules(lexicon, config),
)

"""Whole words: every subword of a chosen word is predicted."""

from distillkit.recipe.maskings import STRATEGIES, MaskingStrategy

STRATEGY = MaskingStrategy("whole-word", "whole words; Chinese words as the segmenter finds them")

STRATEGIES[STRATEGY.name] = STRATEGY

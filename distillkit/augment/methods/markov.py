"""Markov: texts written by a Markov chain over the words of the task's own."""

from distillkit.augment.method import Method

MARKOV = Method(
    "markov",
    "Texts written by a Markov chain over the words of the training texts.",
    rows="distillkit.augment.markov:write_chains",
    origin="generated",
)

"""Sentences: unlabelled documents cut into sentences that look like the task's texts."""

from distillkit.augment.method import Method
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig


def _check(config: AugmentConfig, pairs: bool, unlabelled: bool) -> None:
    if pairs or not unlabelled:
        why = "the task is of pairs" if pairs else "there is no unlabelled text"
        raise InputError(
            f"augment.mix.sentences is {config.mix.sentences}, but {why}; it cuts unlabelled single texts: give some, or set it to 0"
        )


SENTENCES = Method(
    "sentences",
    "Sentences cut from unlabelled documents.",
    rows="distillkit.augment.sentences:cut_sentences",
    origin="unlabelled",
    check=_check,
)

"""Pairs: texts of the task, and raw ones, put beside others."""

from functools import partial

from distillkit.augment.method import Method
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig


def _model(config: AugmentConfig, teacher: str) -> tuple[str, str] | None:
    if not config.pairs.ways.vectors:
        return None
    return "augment.pairs.model", config.pairs.model or teacher


def refuse_single_texts(method: str, config: AugmentConfig, pairs: bool, unlabelled: bool) -> None:
    """Raise InputError if a method of pairs is to work on single texts; a `Method.check` by name."""
    if not pairs:
        raise InputError(
            f"augment.mix.{method} is set, but the task is of single texts: set it to 0, or name the second text's column with --data.columns.text-pair"
        )


PAIRS = Method(
    "pairs",
    "New pairs of the task's texts and of raw ones (Thakur et al. 2021).",
    rows="distillkit.augment.pairing:make_pairs",
    origin="generated",
    takes_singles=True,
    model=_model,
    check=partial(refuse_single_texts, "pairs"),
)

"""Neighbours: words replaced by their nearest neighbours among word vectors."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from distillkit.augment.corpus import Lexicon
from distillkit.augment.method import Method, Preparation
from distillkit.augment.rules import Variation
from distillkit.data.vectors import read_vectors
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig

if TYPE_CHECKING:
    from torch import Tensor

_TABLE = "neighbours.npy"


def _model(config: AugmentConfig, teacher: str) -> tuple[str, str]:
    vectors = config.neighbours.vectors
    if vectors == "teacher" and teacher:
        return "augment.neighbours.vectors", teacher
    if not Path(vectors).is_file():
        what = "no teacher is given" if vectors == "teacher" else "no such file"
        raise InputError(
            f"augment.neighbours.vectors {vectors!r}: {what}; expected teacher and an encoder for it, or a word-vector text file"
        )
    return "augment.neighbours.vectors", vectors


def _prepare(job: Preparation) -> None:
    from distillkit.augment.neighbours import prepare_neighbours

    target, model = job.folder / _TABLE, job.options.models.of["neighbours"]
    if target.is_file():
        return
    vectors_of = job.options.models.vectors_of
    if vectors_of is None or Path(model).is_file():
        vectors_of = _from_file
    k = job.options.config.neighbours.k
    prepare_neighbours(job.lexicon, partial(vectors_of, model), k, target)


def _from_file(path: str, words: Sequence[str]) -> "Tensor":
    import torch

    return torch.from_numpy(read_vectors(Path(path), words)[0])


def _variation(lexicon: Lexicon, config: AugmentConfig, folder: Path) -> Variation:
    from distillkit.augment.neighbours import Neighbours

    return Neighbours(lexicon, config.neighbours, folder / _TABLE)


NEIGHBOURS = Method(
    "neighbours",
    "Words replaced by their nearest neighbours among word vectors (Jiao et al. 2020).",
    variation=_variation,
    model=_model,
    prepare=_prepare,
)

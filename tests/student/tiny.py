"""Tiny students of any kind."""

from typing import Any

from distillkit.recipe import EmbeddingConfig, StudentConfig
from distillkit.recipe.kinds import kind_of


def tiny(kind: str, embeddings: EmbeddingConfig, **options: Any) -> StudentConfig:
    """Return the settings of a tiny student; what its kind has none of is left out."""
    of, lacks = kind_of(kind), set()
    if of.from_teacher:
        sizes = {"hidden_size": 0, "head_size": 7, "layers": 2} | options
        lacks |= {"vocabulary"}
    else:
        sizes = {"hidden_size": 6, "head_size": 7, "embeddings": embeddings} | options
    lacks |= {"hidden_size"}.difference(of.settings)
    lacks |= {"head_size"} if of.network is None else set()
    return StudentConfig(kind, **{name: sizes[name] for name in sizes if name not in lacks})

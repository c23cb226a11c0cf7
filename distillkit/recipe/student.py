"""Sections `student` and `loss`: who learns, and what it is asked to match."""

import math
import re
from dataclasses import dataclass, field
from typing import Literal

from distillkit.errors import InputError
from distillkit.recipe.teacher import TEACHER_NAME


@dataclass(frozen=True)
class VocabularyConfig:
    """The student's own words."""

    unit: Literal["auto", "word", "character"] = "auto"
    """word, or character for scripts written without spaces; auto looks at the training text."""
    size: int = 30000
    """Most entries kept, special tokens included."""
    min_count: int = 1
    """Rarer words in the transfer text are unknown to the student."""


@dataclass(frozen=True)
class EmbeddingConfig:
    """Where the student's word vectors start."""

    source: str = "teacher"
    """teacher (each word through the teacher, PCA to `width`), random, or a word-vector text file (GloVe or word2vec form)."""
    width: int = 300
    """Numbers a word; a vector file's own width wins only if equal."""
    channels: Literal["single", "multi"] = "single"
    """single: one trainable table; multi: a frozen and a trainable copy side by side (Kim 2014)."""


@dataclass(frozen=True)
class StudentConfig:
    """Who learns: architecture, vocabulary, embeddings."""

    kind: Literal["bilstm", "siamese-bilstm"] = "bilstm"
    """bilstm for single texts, siamese-bilstm for pairs."""
    max_tokens: int = 128
    """Longer texts are truncated, in the student's own tokens, both sides of a pair together."""
    hidden_size: int = 150
    """LSTM units a direction."""
    head_size: int = 200
    """Units of the ReLU layer before the logits."""
    dropout: float = 0.1
    """Dropout on embeddings and on the ReLU layer's input, 0 to 1."""
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    """The student's own words."""
    embeddings: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    """Where the student's word vectors start."""


@dataclass(frozen=True)
class LossConfig:
    """What the student is asked to match."""

    kind: Literal["mse", "soft"] = "mse"
    """mse: squared distance of the logits (Tang et al. 2019); soft: KL divergence of softened distributions (Hinton et al. 2015)."""
    alpha: float = 0.0
    """Weight of the hard-label cross-entropy, 0 to 1; 1 ignores the teacher's logits."""
    temperature: float = 1.0
    """Softens both distributions of `soft`, > 0; the loss is multiplied by its square."""
    teachers: tuple[str, ...] = ()
    """Teachers of the logit store whose logits are averaged: NAME, or NAME=WEIGHT (1 where none is given); empty: all, alike."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"loss.alpha is {self.alpha}: expected 0 to 1")
        if not self.temperature > 0:
            raise InputError(f"loss.temperature is {self.temperature}: expected more than 0")
        for item in self.teachers:
            if not re.fullmatch(rf"{TEACHER_NAME}(=.+)?", item) or not _is_weight(item.partition("=")[2] or "1"):
                raise InputError(
                    f"loss.teachers has {item!r}: expected NAME or NAME=WEIGHT, the weight a number above 0"
                )
        if len(self.teacher_weights()) < len(self.teachers):
            raise InputError(f"loss.teachers is {', '.join(self.teachers)}: expected each teacher once")

    def teacher_weights(self) -> dict[str, float]:
        """Return the weight of each teacher that is named."""
        pairs = (item.partition("=") for item in self.teachers)
        return {name: float(weight or 1) for name, _, weight in pairs}


def _is_weight(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False

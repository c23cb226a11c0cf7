"""Section `student`: who learns."""

from dataclasses import dataclass, field
from typing import Literal


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

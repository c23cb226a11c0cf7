"""Section `compress`: what a model is to lose, in the order of the fields."""

from dataclasses import dataclass
from typing import Annotated, Literal

from distillkit.recipe.bounds import CountOrZero, FractionBelowOne, Range, check

Storage = Literal["fp32", "fp16", "int8", "int4", "kmeans"]
TableStorage = Literal[Storage, "pq"]


@dataclass(frozen=True)
class CompressConfig:
    """What a model is to lose, in the order of the fields; 0 leaves a thing as it is."""

    vocabulary_size: CountOrZero = 0
    """Tokens kept: special ones, single characters, and the most used words and parts of words."""
    layers: CountOrZero = 0
    """Layers kept of a transformer, evenly spaced, the last among them."""
    feed_forward: FractionBelowOne = 0.0
    """Share of the rows of a transformer's feed-forward layers that goes, 0 to 1."""
    embedding_size: CountOrZero = 0
    """Embedding dimension kept, of any student of words but static: the best approximation of what
    the first layer makes of the tokens, weighted by how often each is used."""
    units: FractionBelowOne = 0.0
    """Share of the LSTM units of each direction, or of the filters of each width, and of the ReLU
    units, that goes, 0 to 1; those with the smallest weights go first."""
    embeddings: TableStorage = "fp32"
    """How tables of vectors are stored: int8, int4: with a scale a row; kmeans: `clusters` values a
    tensor (Han et al. 2016); pq: product quantisation (Jégou et al. 2011), a byte for four
    numbers."""
    weights: Storage = "fp32"
    """How all other matrices are stored."""
    clusters: Annotated[int, Range(2, 128)] = 16
    """Values of kmeans, 2 to 128."""

    @property
    def changes_tensors(self) -> bool:
        """Whether anything but the storage changes."""
        asked = (
            self.vocabulary_size,
            self.layers,
            self.feed_forward,
            self.embedding_size,
            self.units,
        )
        return any(asked)

    @property
    def changes_storage(self) -> bool:
        """Whether weights are stored in fewer bits."""
        return self.embeddings != "fp32" or self.weights != "fp32"

    def __post_init__(self) -> None:
        check(self, "compress")

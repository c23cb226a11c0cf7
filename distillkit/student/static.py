"""A weighted mean of word vectors and a small head: blind to word order, and the fastest."""

from typing import Any

from torch import Tensor

from distillkit.student.config import WordConfig
from distillkit.student.model import Encoder, SiameseStudent, SingleStudent
from distillkit.student.pooling import Pooling


class StaticConfig(WordConfig):
    """Shape of a static student; the arguments are those of `WordConfig`."""

    model_type = "distillkit-static"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"pooling": "mean"} | kwargs)


class SiameseStaticConfig(StaticConfig):
    """Shape of a siamese static student; the arguments are those of `WordConfig`."""

    model_type = "distillkit-siamese-static"
    __init__ = StaticConfig.__init__


class StaticEncoder(Encoder):
    """The mean of word vectors, whose length is a word's weight; or attention over them."""

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config)
        self.width = self.embedding.width
        self.pooling = Pooling(config.pooling, self.width)

    def encode(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Make vectors, (B, W), of word vectors (T, B, W); zeros for a text without words."""
        return self.pooling(x, lengths)


class StaticForSequenceClassification(SingleStudent):
    """The static student for single texts."""

    config_class = StaticConfig
    encoder_class = StaticEncoder


class SiameseStaticForSequenceClassification(SiameseStudent):
    """The static student for pairs."""

    config_class = SiameseStaticConfig
    encoder_class = StaticEncoder

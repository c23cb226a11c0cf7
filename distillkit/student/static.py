"""Static word vectors: a weighted mean of a text's words and a small head, blind to their order, and the fastest student there is."""

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
    """The mean of word vectors, which weigh words by their length; or, with attention, weights of their own."""

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config)
        self.width = self.embedding.width
        self.pooling = Pooling(config.pooling, self.width)

    def encode(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Make one vector a text, (B, W), of its word vectors (T, B, W); zeros for a text without words."""
        return self.pooling(x, lengths)


class StaticForSequenceClassification(SingleStudent):
    """The static student for single texts."""

    config_class = StaticConfig
    encoder_class = StaticEncoder


class SiameseStaticForSequenceClassification(SiameseStudent):
    """The static student for pairs."""

    config_class = SiameseStaticConfig
    encoder_class = StaticEncoder

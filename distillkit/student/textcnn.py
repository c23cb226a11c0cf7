"""The convolutional network of Kim 2014 (arXiv 1408.5882): filters over neighbouring words."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from distillkit.student.config import WordConfig
from distillkit.student.model import Encoder, SiameseStudent, SingleStudent
from distillkit.student.pooling import Pooling
from distillkit.student.units import best_units, keep_units, saliency


class TextCNNConfig(WordConfig):
    """Shape of a convolutional student.

    Args:
        hidden_size: H, filters of each width.
        kernel_sizes: Words that a filter sees, one number a kind of filter.
        **kwargs: As for `WordConfig`.
    """

    model_type = "distillkit-textcnn"

    def __init__(
        self, hidden_size: int = 100, kernel_sizes: tuple[int, ...] = (3, 4, 5), **kwargs: Any
    ) -> None:
        self.hidden_size = hidden_size
        self.kernel_sizes = list(kernel_sizes)
        super().__init__(**{"pooling": "max"} | kwargs)


class SiameseTextCNNConfig(TextCNNConfig):
    """Shape of a siamese convolutional student; the arguments are those of `TextCNNConfig`."""

    model_type = "distillkit-siamese-textcnn"
    __init__ = TextCNNConfig.__init__


class TextCNNEncoder(Encoder):
    """Filters about every word, and their strongest answers in a text."""

    def __init__(self, config: TextCNNConfig) -> None:
        super().__init__(config)
        self.kernel_sizes = config.kernel_sizes
        self.width = config.hidden_size * len(config.kernel_sizes)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(self.embedding.width, config.hidden_size, size)
            for size in config.kernel_sizes
        )
        self.pooling = Pooling(config.pooling, self.width)

    def encode(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Make texts' vectors, (B, filters), of word vectors (T, B, W); zeros without words."""
        own = lengths[:, None, None] > torch.arange(x.shape[0], device=x.device)
        own = own.to(x.dtype)  # (B, 1, T); a product costs a graph less than a choice
        x = x.permute(1, 2, 0) * own  # (B, W, T)
        # One answer a word: zeros stand before the first and behind the last, so that a short text
        # has answers, too.
        padded = [pad(x, ((size - 1) // 2, size // 2)) for size in self.kernel_sizes]
        found = [
            torch.relu(convolution(part))
            for convolution, part in zip(self.convolutions, padded, strict=True)
        ]
        answers = torch.cat(found, dim=1) if len(found) > 1 else found[0]  # (B, filters, T)
        if self.pooling.how == "max":  # as Pooling does it, in fewer steps: no answer is below 0
            return (answers * own.to(answers.dtype)).amax(2)
        return self.pooling(answers.permute(2, 0, 1), lengths)

    def first_layer(self) -> list[tuple[nn.Module, str]]:
        """List the filters of each size."""
        return [(convolution, "weight") for convolution in self.convolutions]

    def prune(self, share: float, into_head: Tensor) -> tuple[list[int], int]:
        """Remove filters of each size; arguments as in `TextEncoder.prune`."""
        positions: list[int] = []
        convolutions: Any = self.convolutions
        for number, convolution in enumerate(convolutions):
            size = convolution.out_channels
            into = saliency(convolution.weight).sum((1, 2))
            filters = best_units(into + into_head[number * size : (number + 1) * size], share)
            keep_units(convolution, "weight", filters, 0)
            keep_units(convolution, "bias", filters, 0)
            convolution.out_channels = len(filters)
            positions += [number * size + kept for kept in filters]
        return positions, len(positions) // len(convolutions)


class TextCNNForSequenceClassification(SingleStudent):
    """The convolutional student for single texts."""

    config_class = TextCNNConfig
    encoder_class = TextCNNEncoder


class SiameseTextCNNForSequenceClassification(SiameseStudent):
    """The convolutional student for pairs."""

    config_class = SiameseTextCNNConfig
    encoder_class = TextCNNEncoder

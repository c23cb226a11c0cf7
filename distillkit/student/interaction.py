"""Students that read both texts of a pair together: words attend to those of the other text."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from distillkit.student.bilstm import (
    BiLSTMConfig,
    BiLSTMLayer,
    backwards,
    onnx_lstm,
    onnx_weights,
)
from distillkit.student.config import WordConfig
from distillkit.student.model import Encoder, PairStudent
from distillkit.student.pooling import Pooling
from distillkit.student.units import best_units, keep_rows, saliency


class InteractionConfig(BiLSTMConfig):
    """Shape of an ESIM student; H is `hidden_size`, and there is one layer below and one above."""

    model_type = "distillkit-interaction-bilstm"
    __init__ = BiLSTMConfig.__init__


class DecomposableConfig(WordConfig):
    """Shape of a decomposable student.

    Args:
        hidden_size: H, units of each feed-forward layer.
        **kwargs: As for `WordConfig`.
    """

    model_type = "distillkit-decomposable"

    def __init__(self, hidden_size: int = 200, **kwargs: Any) -> None:
        self.hidden_size = hidden_size
        super().__init__(**kwargs)


class Recurrent(nn.Module):
    """Both directions' states of each word."""

    def __init__(self, width: int, hidden_size: int) -> None:
        super().__init__()
        self.width = 2 * hidden_size
        self.layer = BiLSTMLayer(width, hidden_size)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Map (T, B, width) to (T, B, 2H)."""
        return self.layer.states(x, backwards(x, lengths))

    def inputs(self) -> list[tuple[nn.Module, str]]:
        """List the weights that its input is multiplied with."""
        both = (self.layer.forward_lstm, self.layer.backward_lstm)
        return [(lstm, "weight_ih_l0") for lstm in both]

    def read_saliency(self) -> Tensor:
        """Return the saliency of what it reads of each number below it, (width,)."""
        return self.layer.read_saliency()

    def prune(self, share: float, above: Tensor, below: Sequence[int] | None) -> list[int]:
        """Remove units, in place; as `BiLSTMLayer.prune`."""
        kept = self.layer.prune(share, above, below)
        self.width = len(kept)
        return kept

    def for_onnx(self) -> nn.Module:
        """Return the same layer by ONNX's own LSTM."""
        return _RecurrentForONNX(self)


class _RecurrentForONNX(nn.Module):
    def __init__(self, of: Recurrent) -> None:
        super().__init__()
        self.weights = nn.ParameterList(onnx_weights(of.layer))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return onnx_lstm(x, list(self.weights), lengths)[0].transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """A ReLU layer over each word."""

    def __init__(self, width: int, hidden_size: int) -> None:
        super().__init__()
        self.width = hidden_size
        self.layer = nn.Linear(width, hidden_size)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Map (T, B, width) to (T, B, H)."""
        return torch.relu(self.layer(x))

    def inputs(self) -> list[tuple[nn.Module, str]]:
        """List the weights that its input is multiplied with."""
        return [(self.layer, "weight")]

    def read_saliency(self) -> Tensor:
        """Return the saliency of what it reads of each number below it, (width,)."""
        return saliency(self.layer.weight).sum(0)

    def prune(self, share: float, above: Tensor, below: Sequence[int] | None) -> list[int]:
        """Remove units, in place; as `BiLSTMLayer.prune`."""
        kept = best_units(saliency(self.layer.weight).sum(1) + above, share)
        keep_rows(self.layer, kept, below)
        self.width = len(kept)
        return kept

    def for_onnx(self) -> nn.Module:
        """Return itself: the exporter can read it."""
        return self


class InteractionEncoder(Encoder):
    """Vectors of both texts of pairs, each text read beside the other.

    Of N texts, text i and text i + N/2 are a pair. Each word's state attends to the other text's
    states; the two are compared, composed with their neighbours, and pooled by mean and maximum.
    """

    part: Any  # Recurrent or FeedForward: what reads words, and composes what was compared
    pooling = None

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.read = self.part(self.embedding.width, size)
        self.compare = nn.Linear(4 * self.read.width + 1, size)
        self.compose = self.part(size, size)
        self.mean, self.max = (
            Pooling("mean", self.compose.width),
            Pooling("max", self.compose.width),
        )
        self.width = 2 * self.compose.width

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode pairs.

        Args:
            input_ids: (2B, T) int64, first texts then second ones, each row's own tokens first.
            lengths: Tokens a row, (2B,) int64; what follows them has no influence.

        Returns:
            (2B, width); zeros for a text without words.
        """
        x, words = self.embedding.look_up(input_ids, lengths)
        states = self.read(self.embedding.dropout(x), words)
        other = attend(states, words)
        like = likeness(x.detach(), words)[:, :, None]
        compared = torch.cat([states, other, states - other, states * other, like], dim=2)
        compared = self.embedding.dropout(torch.relu(self.compare(compared)))
        composed = self.compose(compared, words)
        return torch.cat([self.mean(composed, words), self.max(composed, words)], dim=1)

    def for_onnx(self) -> nn.Module:
        """Return a copy of the same answers whose recurrent parts are ONNX's own."""
        found = copy(self)
        found._modules = self._modules | {
            "read": self.read.for_onnx(),
            "compose": self.compose.for_onnx(),
        }
        return found

    def first_layer(self) -> list[tuple[nn.Module, str]]:
        """List what reads the word vectors."""
        found: list[tuple[nn.Module, str]] = self.read.inputs()
        return found

    def prune(self, share: float, into_head: Tensor) -> tuple[list[int], int]:
        """Remove units of each layer; arguments as in `TextEncoder.prune`."""
        compare, width = saliency(self.compare.weight), self.read.width
        above = compare[:, :-1].sum(0).view(4, -1).sum(0)
        read = self.read.prune(share, above, None)
        columns = [part * width + kept for part in range(4) for kept in read] + [4 * width]
        units = best_units(compare.sum(1) + self.compose.read_saliency(), share)
        keep_rows(self.compare, units, columns)
        width = self.compose.width
        above = into_head.view(2, -1).sum(0)
        kept = self.compose.prune(share, above, units)
        return kept + [width + one for one in kept], len(units)


def swapped(texts: Tensor) -> Tensor:
    """Return (2B, ...) with the second texts of pairs first, and the first ones second."""
    first, second = texts.unflatten(0, (2, -1))
    return torch.cat([second, first])


def attend(states: Tensor, lengths: Tensor) -> Tensor:
    """Return for each word the mean of the other text's states, weighted by likeness.

    Args:
        states: (T, 2B, D), first texts then second ones.
        lengths: Words a text, (2B,).

    Returns:
        (T, 2B, D); zeros where the other text has no words.

    Source: Parikh et al. 2016 (arXiv 1606.01933), equations 1 and 2.
    """
    own = states.transpose(0, 1)  # (2B, T, D)
    other, behind = beside(own, lengths)
    scores = (own @ other.transpose(1, 2)).masked_fill(behind, -3e4)
    weights = scores.softmax(2).masked_fill(behind, 0)
    return (weights @ other).transpose(0, 1)


def likeness(x: Tensor, lengths: Tensor) -> Tensor:
    """Return the largest cosine of each word's vector to any of the other text's, (T, 2B).

    It is 1 where the other text has the same word, and never below 0.
    """
    own = x.transpose(0, 1)
    own = own / (own * own).sum(2, keepdim=True).sqrt().clamp(min=1e-6)
    other, behind = beside(own, lengths)
    return (own @ other.transpose(1, 2)).masked_fill(behind, 0).amax(2).relu().t()


def beside(own: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the other text's vectors, zeros behind its end, and where that is, (2B, 1, T)."""
    behind = torch.arange(own.shape[1], device=own.device) >= swapped(lengths)[:, None]
    return swapped(own).masked_fill(behind[:, :, None], 0), behind[:, None]


class InteractionBiLSTMEncoder(InteractionEncoder):
    """The encoder of ESIM: a BiLSTM reads the words, another composes what was compared."""

    part = Recurrent


class DecomposableEncoder(InteractionEncoder):
    """Word vectors attend, are compared and pooled: no recurrence, and no word order."""

    part = FeedForward


class InteractionBiLSTMForSequenceClassification(PairStudent):
    """ESIM at a BiLSTM's price.

    Source: Chen et al. 2017 (arXiv 1609.06038), section 3.
    """

    config_class = InteractionConfig
    encoder_class = InteractionBiLSTMEncoder


class DecomposableForSequenceClassification(PairStudent):
    """The decomposable attention model.

    Source: Parikh et al. 2016 (arXiv 1606.01933), section 3.
    """

    config_class = DecomposableConfig
    encoder_class = DecomposableEncoder

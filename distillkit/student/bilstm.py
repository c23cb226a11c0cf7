"""The BiLSTM of Tang et al. 2019: last states of both directions, a ReLU layer, logits; for single texts and, siamese, for pairs."""

from typing import Any

import torch
from torch import Tensor, nn

# gathers rows, and its backward pass is the fastest of those that do
from torch.nn.functional import embedding

from distillkit.student.config import WordConfig
from distillkit.student.model import Encoder, SiameseStudent, SingleStudent
from distillkit.student.pooling import Pooling


class BiLSTMConfig(WordConfig):
    """Shape of a BiLSTM student.

    Args:
        hidden_size: H, LSTM units a direction.
        layers: BiLSTM layers, each over the states of the one below.
        **kwargs: As for `WordConfig`.
    """

    model_type = "distillkit-bilstm"

    def __init__(self, hidden_size: int = 150, layers: int = 1, **kwargs: Any) -> None:
        self.hidden_size = hidden_size
        self.layers = layers
        super().__init__(**kwargs)


class SiameseBiLSTMConfig(BiLSTMConfig):
    """Shape of a siamese BiLSTM student; the arguments are those of `BiLSTMConfig`."""

    model_type = "distillkit-siamese-bilstm"
    # transformers makes a dataclass, with an __init__ of its own, of any configuration that does
    # not bring one.
    __init__ = BiLSTMConfig.__init__


class BiLSTMLayer(nn.Module):
    """Both directions of one layer.

    Two one-way LSTMs over padded rows are twice as fast here as one packed two-way LSTM: oneDNN
    takes no packed rows.
    """

    def __init__(self, width: int, hidden_size: int) -> None:
        super().__init__()
        self.forward_lstm = nn.LSTM(width, hidden_size)
        self.backward_lstm = nn.LSTM(width, hidden_size)

    def forward(self, x: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of both directions, (T, B, H) each, the backward ones in the order of the reversed rows `back`."""
        return self.forward_lstm(x)[0], self.backward_lstm(embedding(back, x.flatten(0, 1)))[0]


class BiLSTMEncoder(Encoder):
    """BiLSTM layers over word vectors, and one vector a text of their last states or of all."""

    def __init__(self, config: BiLSTMConfig) -> None:
        super().__init__(config)
        self.width = 2 * config.hidden_size
        below = [self.embedding.width] + [self.width] * (config.layers - 1)
        self.layers = nn.ModuleList(BiLSTMLayer(width, config.hidden_size) for width in below)
        self.pooling = None if config.pooling == "last" else Pooling(config.pooling, self.width)

    def encode(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Make one vector a text, (B, 2H), of its word vectors (T, B, W); zeros for a text without words."""
        (steps, size), device = x.shape[:2], x.device
        row, step = torch.arange(size, device=device), torch.arange(steps, device=device)[:, None]
        # Each row reversed within its own length, so that padding still comes last; reversed twice
        # it is itself.
        back = torch.where(step < lengths, lengths - 1 - step, step) * size + row  # (T, B)
        *lower, top = self.layers
        for layer in lower:
            ahead, behind = layer(x, back)
            # (T, B, 2H)
            x = self.embedding.dropout(
                torch.cat([ahead, embedding(back, behind.flatten(0, 1))], dim=2)
            )
        ahead, behind = top(x, back)
        if self.pooling is not None:
            return self.pooling(
                torch.cat([ahead, embedding(back, behind.flatten(0, 1))], dim=2), lengths
            )
        last = (lengths - 1).clamp(min=0) * size + row  # (B,)
        states = [embedding(last, states.flatten(0, 1)) for states in (ahead, behind)]
        return torch.cat(states, dim=1) * (lengths > 0)[:, None]


class BiLSTMForSequenceClassification(SingleStudent):
    """The paper's student for single texts."""

    config_class = BiLSTMConfig
    encoder_class = BiLSTMEncoder


class SiameseBiLSTMForSequenceClassification(SiameseStudent):
    """The paper's student for pairs."""

    config_class = SiameseBiLSTMConfig
    encoder_class = BiLSTMEncoder

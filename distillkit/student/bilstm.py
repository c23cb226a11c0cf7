"""The BiLSTM of Tang et al. 2019: last states of both directions, a ReLU layer, logits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# gathers rows, and its backward pass is the fastest of those that do
from torch.nn.functional import embedding

from distillkit.student.config import WordConfig
from distillkit.student.model import Encoder, SiameseStudent, SingleStudent
from distillkit.student.pooling import Pooling
from distillkit.student.units import best_units, keep_units, saliency

_GATES = 4
_WAYS = ("forward_lstm", "backward_lstm")


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
        """Return the states of both directions, (T, B, H) each; the backward ones are reversed."""
        if x.device.type == "cpu" and not torch.cpu._is_avx512_supported():
            # oneDNN has no LSTM in bf16 there.
            with torch.autocast("cpu", enabled=False):
                return self._read(x.to(next(self.parameters()).dtype), back)
        return self._read(x, back)

    def _read(self, x: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_lstm(x)[0], self.backward_lstm(embedding(back, x.flatten(0, 1)))[0]

    def states(self, x: Tensor, back: Tensor) -> Tensor:
        """Return both directions' states of each word, (T, B, 2H)."""
        ahead, behind = self(x, back)
        return torch.cat([ahead, embedding(back, behind.flatten(0, 1))], dim=2)

    def read_saliency(self) -> Tensor:
        """Return the saliency of what it reads of each number below it, (width,)."""
        ahead, behind = (saliency(getattr(self, way).weight_ih_l0).sum(0) for way in _WAYS)
        return ahead + behind

    def prune(self, share: float, above: Tensor, below: Sequence[int] | None) -> list[int]:
        """Remove units of each direction, in place.

        Args:
            share: Of the units, 0 to 1.
            above: Saliency of what reads each of its states' numbers, (2H,).
            below: Numbers that are left of what it reads; None: all.

        Returns:
            The numbers of its states that stay.
        """
        kept: list[int] = []
        for way, read in zip(_WAYS, above.chunk(2), strict=True):
            units = best_units(_unit_saliency(getattr(self, way)) + read, share)
            kept += [len(read) * _WAYS.index(way) + unit for unit in units]
            _cut(getattr(self, way), units, below)
        return kept


def backwards(x: Tensor, lengths: Tensor) -> Tensor:
    """Return where, of (T, B) flattened, each row's words stand if read from its last one.

    Each row is reversed within its own length, so that padding still comes last. Reversed twice it
    is itself.
    """
    (steps, size), device = x.shape[:2], x.device
    row, step = torch.arange(size, device=device), torch.arange(steps, device=device)[:, None]
    return torch.where(step < lengths, lengths - 1 - step, step) * size + row


class BiLSTMEncoder(Encoder):
    """BiLSTM layers over word vectors, and one vector a text of their last states or of all."""

    def __init__(self, config: BiLSTMConfig) -> None:
        super().__init__(config)
        self.width = 2 * config.hidden_size
        below = [self.embedding.width] + [self.width] * (config.layers - 1)
        self.layers = nn.ModuleList(BiLSTMLayer(width, config.hidden_size) for width in below)
        self.pooling = None if config.pooling == "last" else Pooling(config.pooling, self.width)

    def encode(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Make vectors, (B, 2H), of word vectors (T, B, W); zeros for a text without words."""
        back = backwards(x, lengths)
        *lower, top = self.layers
        layer: Any
        for layer in lower:
            x = self.embedding.dropout(layer.states(x, back))
        if self.pooling is not None:
            layer = top
            return self.pooling(layer.states(x, back), lengths)
        size = x.shape[1]
        last = (lengths - 1).clamp(min=0) * size + torch.arange(size, device=x.device)  # (B,)
        states = [embedding(last, states.flatten(0, 1)) for states in top(x, back)]
        return torch.cat(states, dim=1) * (lengths > 0)[:, None]

    def first_layer(self) -> list[tuple[nn.Module, str]]:
        """List the input weights of the first layer's directions."""
        first: Any = self.layers[0]
        return [(lstm, "weight_ih_l0") for lstm in (first.forward_lstm, first.backward_lstm)]

    def prune(self, share: float, into_head: Tensor) -> tuple[list[int], int]:
        """Remove units of each direction of every layer; arguments as in `TextEncoder.prune`."""
        layers: Any = self.layers
        kept: list[int] | None = None
        for number, layer in enumerate(layers):
            last = layer is layers[-1]
            above = into_head if last else layers[number + 1].read_saliency()
            kept = layer.prune(share, above, kept)
        assert kept is not None
        return kept, len(kept) // 2

    def for_onnx(self) -> nn.Module:
        """Return the same layers by ONNX's own LSTM."""
        return BiLSTMForONNX(self)


def _unit_saliency(lstm: Any) -> Tensor:
    """Return the saliency of an LSTM's units in its own weights, (H,)."""
    inputs, states = saliency(lstm.weight_ih_l0), saliency(lstm.weight_hh_l0)
    return (inputs.sum(1) + states.sum(1)).view(_GATES, -1).sum(0) + states.sum(0)


def _cut(lstm: nn.LSTM, units: Sequence[int], inputs: Sequence[int] | None) -> None:
    """Keep units of an LSTM, and of what it reads the numbers `inputs`; None: all."""
    gates = [gate * lstm.hidden_size + unit for gate in range(_GATES) for unit in units]
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        keep_units(lstm, name, gates, 0)
    keep_units(lstm, "weight_hh_l0", units, 1)
    lstm.hidden_size = len(units)
    if inputs is not None:
        keep_units(lstm, "weight_ih_l0", inputs, 1)
        lstm.input_size = len(inputs)


class BiLSTMForONNX(nn.Module):
    """A BiLSTM encoder by ONNX's own LSTM: both directions at once, each row to its length."""

    def __init__(self, encoder: BiLSTMEncoder) -> None:
        super().__init__()
        self.embedding, self.pooling = encoder.embedding, encoder.pooling
        self.weights = nn.ParameterList()
        layers: Any = encoder.layers
        for layer in layers:
            self.weights.extend(onnx_weights(layer))

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode texts as `Encoder.forward` does."""
        x, lengths = self.embedding(input_ids, lengths)  # (T, B, W)
        for i in range(0, len(self.weights), 3):
            states, last = onnx_lstm(x, list(self.weights[i : i + 3]), lengths)
            if i + 3 < len(self.weights) or self.pooling is None or self.pooling.how != "max":
                x = states.transpose(1, 2).flatten(2)  # (T, B, 2H)
        if self.pooling is None:
            return last.transpose(0, 1).flatten(1)
        return (
            _strongest(states, lengths) if self.pooling.how == "max" else self.pooling(x, lengths)
        )


def _strongest(states: Tensor, lengths: Tensor) -> Tensor:
    """Pool an LSTM's states (T, 2, B, H) as `Pooling` does by max, in fewer operators."""
    # An operator costs half a microsecond if a row is alone. A text without words keeps its first
    # state, which is 0; no state is below -1. (T, 1, B, 1)
    behind = torch.arange(states.shape[0]).view(-1, 1, 1, 1) >= lengths.clamp(min=1).view(
        1, 1, -1, 1
    )
    return states.masked_fill(behind, -1).amax(0).transpose(0, 1).flatten(1)


def onnx_lstm(x: Tensor, weights: Sequence[Tensor], lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run a layer by ONNX's own LSTM.

    Args:
        x: (T, B, W).
        weights: Of `onnx_weights`.
        lengths: Words a row, (B,).

    Returns:
        Both directions' states, (T, 2, B, H), 0 behind a row's end; and the last of each, (2, B, H).
    """
    (steps, rows), size = x.shape[:2], weights[1].shape[-1]
    states, last, _ = torch.onnx.ops.symbolic_multi_out(
        "LSTM",
        (x, *weights, lengths.int()),
        {"hidden_size": size, "direction": "bidirectional"},
        dtypes=[x.dtype] * 3,
        shapes=[(steps, 2, rows, size), (2, rows, size), (2, rows, size)],
    )
    return states, last


def onnx_weights(layer: BiLSTMLayer) -> list[nn.Parameter]:
    """Return both directions' weights for ONNX: W (2, 4H, W), R (2, 4H, H), B (2, 8H)."""
    found = []
    for names in (["weight_ih_l0"], ["weight_hh_l0"], ["bias_ih_l0", "bias_hh_l0"]):
        both = []
        for lstm in (layer.forward_lstm, layer.backward_lstm):
            # torch's gates are input, forget, cell, output, ONNX's input, output, forget, cell.
            gates = [getattr(lstm, name).detach().chunk(4) for name in names]
            both.append(torch.cat([part[k] for part in gates for k in (0, 3, 1, 2)]))
        found.append(nn.Parameter(torch.stack(both), requires_grad=False))
    return found


class BiLSTMForSequenceClassification(SingleStudent):
    """The paper's student for single texts."""

    config_class = BiLSTMConfig
    encoder_class = BiLSTMEncoder


class SiameseBiLSTMForSequenceClassification(SiameseStudent):
    """The paper's student for pairs."""

    config_class = SiameseBiLSTMConfig
    encoder_class = BiLSTMEncoder

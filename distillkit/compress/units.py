"""Fewer units: LSTM units, filters, ReLU units, attention heads, rows of feed-forward layers, whole layers; the tensors shrink."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distillkit.errors import InputError
from distillkit.student.bilstm import BiLSTMEncoder
from distillkit.student.model import StudentModel
from distillkit.student.pruned import attentions
from distillkit.student.textcnn import TextCNNEncoder
from distillkit.student.transformer import layer_map
from distillkit.training.layers import encoder_layers

_GATES = 4


def prune_units(model: Any, share: float, worth: Mapping[str, Tensor]) -> None:
    """Remove the units that are worth least, in place: LSTM units of each direction, filters of each width, ReLU units.

    Args:
        model: A student of words.
        share: Of each kind of unit, 0 to 1; one at least stays.
        worth: Of each weight, as `saliency.saliencies` gives it; a unit's is the sum over what goes
            into it and comes out of it.

    Raises:
        InputError: The model is another.
    """
    if not isinstance(model, StudentModel):
        raise InputError(
            f"compress.units: only students of words have such units, not this {model.config.model_type}; expected compress.feed_forward or layers"
        )
    encoder, head = model.encoder, model.head
    with torch.no_grad():
        if isinstance(encoder, BiLSTMEncoder):
            _keep_inputs(model, *_prune_lstms(encoder, share, worth, _into_head(model, worth)))
        elif isinstance(encoder, TextCNNEncoder):
            _keep_inputs(model, *_prune_filters(encoder, share, worth, _into_head(model, worth)))
        units = (
            _best(worth["head.dense.weight"].sum(1) + worth["head.out.weight"].sum(0), share)
            if share
            else None
        )
        if units is not None:
            _keep(head.dense, "weight", units, 0)
            _keep(head.dense, "bias", units, 0)
            _keep(head.out, "weight", units, 1)
            head.dense.out_features = head.out.in_features = model.config.head_size = len(units)


def prune_feed_forward(model: Any, share: float, worth: Mapping[str, Tensor]) -> None:
    """Remove the rows of each feed-forward layer that are worth least, in place; every layer keeps as many.

    Args:
        model: A BERT-class classifier.
        share: Of the rows, 0 to 1.
        worth: Of each weight.

    Raises:
        InputError: The model is another.
    """
    names = {id(weight): name for name, weight in model.named_parameters()}
    kept = 0
    with torch.no_grad():
        for layer in encoder_layers(model, "compress.feed_forward", "compress.units"):
            part: Any = layer
            distil = model.config.model_type == "distilbert"
            into, out = (
                (part.ffn.lin1, part.ffn.lin2)
                if distil
                else (part.intermediate.dense, part.output.dense)
            )
            rows = _best(
                worth[names[id(into.weight)]].sum(1) + worth[names[id(out.weight)]].sum(0), share
            )
            _keep(into, "weight", rows, 0)
            _keep(into, "bias", rows, 0)
            _keep(out, "weight", rows, 1)
            into.out_features = out.in_features = kept = len(rows)
    setattr(
        model.config,
        "hidden_dim" if model.config.model_type == "distilbert" else "intermediate_size",
        kept,
    )


def prune_heads(model: Any, share: float, worth: Mapping[str, Tensor]) -> tuple[int, int]:
    """Remove the attention heads that are worth least, of all layers together, in place; layers may keep other numbers of them.

    Args:
        model: A BERT-class classifier; one that has lost heads is saved by `steps.Model.save`, for
            its configuration says nothing of it.
        share: Of the heads, 0 to 1; each layer keeps one at least.
        worth: Of each weight.

    Returns:
        How many heads went, and how many there were.

    Raises:
        InputError: The model is another.
    """
    found = attentions(model, "compress.heads", "compress.units")
    names = {id(weight): name for name, weight in model.named_parameters()}
    scores = []
    for attention in found:
        rows = torch.stack([worth[names[id(part.weight)]].sum(1) for part in attention.into]).sum(0)
        columns = worth[names[id(attention.out.weight)]].sum(0)
        scores.append((rows + columns).view(attention.heads, -1).sum(1))
    # The best of each layer stays, whatever those of others are worth.
    ranked = torch.cat([score.index_fill(0, score.argmax(), torch.inf) for score in scores])
    chosen = set(_best(ranked, share, len(found)))
    start = 0
    for attention, score in zip(found, scores, strict=True):
        attention.keep([head for head in range(len(score)) if start + head in chosen])
        start += len(score)
    return start - len(chosen), start


def prune_layers(model: Any, layers: int) -> None:
    """Keep so many layers of a transformer, evenly spaced, the last among them, in place.

    Raises:
        InputError: The model is none, or has fewer.
    """
    found = encoder_layers(model, "compress.layers", "compress.units")
    if layers > len(found):
        raise InputError(
            f"compress.layers is {layers}: expected at most the {len(found)} that there are"
        )
    chosen = [found[i] for i in layer_map(layers, len(found))]
    del found[:]
    found.extend(chosen)
    model.config.num_hidden_layers = layers


def _into_head(model: Any, worth: Mapping[str, Tensor]) -> Tensor:
    """Return what the head's weights for each number of a text's vector are worth, (D,)."""
    return worth["head.dense.weight"].sum(0).view(model.sides, -1).sum(0)


def _prune_lstms(
    encoder: BiLSTMEncoder, share: float, worth: Mapping[str, Tensor], into_head: Tensor
) -> tuple[list[int], int]:
    """Remove units of every layer; return which numbers of the texts' vectors stay, and how many units a direction."""
    layers: Any = encoder.layers
    inputs: list[int] | None = None
    positions: list[int] = []
    for number, layer in enumerate(layers):
        size = layer.forward_lstm.hidden_size
        prefix = f"encoder.layers.{number}"
        if number + 1 < len(layers):
            above = sum(
                worth[f"encoder.layers.{number + 1}.{way}_lstm.weight_ih_l0"].sum(0)
                for way in ("forward", "backward")
            )
        else:
            above = into_head
        positions = []
        for d, way in enumerate(("forward", "backward")):
            into = worth[f"{prefix}.{way}_lstm.weight_ih_l0"].sum(1) + worth[
                f"{prefix}.{way}_lstm.weight_hh_l0"
            ].sum(1)
            score = into.view(_GATES, size).sum(0) + worth[f"{prefix}.{way}_lstm.weight_hh_l0"].sum(
                0
            )
            units = _best(score + torch.as_tensor(above)[d * size : (d + 1) * size], share)
            lstm = getattr(layer, f"{way}_lstm")
            gates = [gate * size + unit for gate in range(_GATES) for unit in units]
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
                _keep(lstm, name, gates, 0)
            _keep(lstm, "weight_hh_l0", units, 1)
            if inputs is not None:
                _keep(lstm, "weight_ih_l0", inputs, 1)
                lstm.input_size = len(inputs)
            lstm.hidden_size = len(units)
            positions += [d * size + unit for unit in units]
        inputs = positions
    return positions, len(positions) // 2


def _prune_filters(
    encoder: TextCNNEncoder, share: float, worth: Mapping[str, Tensor], into_head: Tensor
) -> tuple[list[int], int]:
    positions: list[int] = []
    convolutions: Any = encoder.convolutions
    for number, convolution in enumerate(convolutions):
        size = convolution.out_channels
        into = worth[f"encoder.convolutions.{number}.weight"].sum((1, 2))
        filters = _best(into + into_head[number * size : (number + 1) * size], share)
        _keep(convolution, "weight", filters, 0)
        _keep(convolution, "bias", filters, 0)
        convolution.out_channels = len(filters)
        positions += [number * size + kept for kept in filters]
    return positions, len(positions) // len(convolutions)


def _keep_inputs(model: Any, positions: Sequence[int], units: int) -> None:
    """Have pooling and head read what is left of the texts' vectors."""
    width, head = model.encoder.width, model.head
    pooling = model.encoder.pooling
    if pooling is not None and pooling.how == "attention":
        into, out = pooling.score[0], pooling.score[2]
        for axis in (0, 1):
            _keep(into, "weight", positions, axis)
        _keep(into, "bias", positions, 0)
        _keep(out, "weight", positions, 1)
        into.in_features = into.out_features = out.in_features = len(positions)
    _keep(
        head.dense,
        "weight",
        [side * width + position for side in range(model.sides) for position in positions],
        1,
    )
    head.dense.in_features = model.sides * len(positions)
    model.encoder.width, model.config.hidden_size = len(positions), units


def _best(score: Tensor, share: float, least: int = 1) -> list[int]:
    """Return the numbers of the units that stay, so many at least, ascending."""
    kept = max(least, round(len(score) * (1 - share)))
    return sorted(score.topk(kept).indices.tolist())


def _keep(module: nn.Module, name: str, kept: Sequence[int], axis: int) -> None:
    """Keep some rows or columns of a parameter."""
    weight: Tensor = getattr(module, name)
    part = weight.detach().index_select(axis, torch.tensor(kept)).contiguous()
    setattr(module, name, nn.Parameter(part, requires_grad=weight.requires_grad))

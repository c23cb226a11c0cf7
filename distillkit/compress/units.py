"""Remove units, feed-forward rows and whole layers; the tensors shrink."""

from collections.abc import Sequence
from typing import Any

import torch

from distillkit.errors import InputError
from distillkit.student.transformer import layer_map
from distillkit.student.units import best_units, keep_rows, keep_units, saliency
from distillkit.training.layers import encoder_layers, encoder_parts


def prune_units(model: Any, fraction: float) -> None:
    """Remove the units of least saliency, in place: LSTM units, filters and ReLU units.

    Args:
        model: A student of words.
        fraction: Of each kind of unit, 0 to 1; one at least stays. A unit's saliency is the sum of
            the squares of its weights, into it and out of it.
    """
    encoder, head = model.encoder, model.head
    with torch.no_grad():
        dense = saliency(head.dense.weight)
        score = dense.sum(1) + saliency(head.out.weight).sum(0)
        left = encoder.prune(fraction, dense.sum(0).view(model.sides, -1).sum(0))
        if left is not None:
            _keep_inputs(model, *left)
        units = best_units(score, fraction)
        keep_rows(head.dense, units)
        keep_units(head.out, "weight", units, 1)
        head.out.in_features = model.config.head_size = len(units)


def prune_feed_forward(model: Any, fraction: float) -> None:
    """Remove a fraction of the feed-forward rows of least saliency from every layer, in place."""
    parts = encoder_parts(model, "compress.feed_forward", "compress.units")
    kept = 0
    with torch.no_grad():
        for layer in encoder_layers(model):
            into: Any = layer.get_submodule(parts.wide)
            out: Any = layer.get_submodule(parts.narrow)
            score = saliency(into.weight).sum(1) + saliency(out.weight).sum(0)
            rows = best_units(score, fraction)
            keep_rows(into, rows)
            keep_units(out, "weight", rows, 1)
            out.in_features = kept = len(rows)
    setattr(model.config, parts.wide_size, kept)


def prune_layers(model: Any, layers: int) -> None:
    """Keep so many layers of a transformer, evenly spaced with the last among them, in place."""
    found = encoder_layers(model, "compress.layers", "compress.units")
    if layers > len(found):
        raise InputError(
            f"compress.layers is {layers}: expected at most the {len(found)} that there are"
        )
    chosen = [found[i] for i in layer_map(layers, len(found))]
    del found[:]
    found.extend(chosen)
    model.config.num_hidden_layers = layers


def _keep_inputs(model: Any, positions: Sequence[int], units: int) -> None:
    """Have pooling and head read what is left of the texts' vectors."""
    width, head = model.encoder.width, model.head
    pooling = model.encoder.pooling
    if pooling is not None and pooling.how == "attention":
        into, out = pooling.score[0], pooling.score[2]
        for axis in (0, 1):
            keep_units(into, "weight", positions, axis)
        keep_units(into, "bias", positions, 0)
        keep_units(out, "weight", positions, 1)
        into.in_features = into.out_features = out.in_features = len(positions)
    read = [side * width + position for side in range(model.sides) for position in positions]
    keep_units(head.dense, "weight", read, 1)
    head.dense.in_features = model.sides * len(positions)
    model.encoder.width, model.config.hidden_size = len(positions), units

"""A smaller embedding dimension: tables and the layer above them as two smaller matrices."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from distillkit.errors import InputError
from distillkit.student.model import TextEncoder
from distillkit.student.words import WordEmbedding

# What a layer calls the number of its inputs.
_INPUTS = {nn.RNNBase: "input_size", nn.Conv1d: "in_channels", nn.Linear: "in_features"}


def to_narrow(model: Any, size: int) -> tuple[Any, list[tuple[Any, str]]]:
    """Return a model's tables of words, and the weights of the layer above as module and name.

    Args:
        model: A student.
        size: The new embedding dimension.

    Raises:
        InputError: It has no such tables or layer, or its embedding dimension is not larger.
    """
    encoder = getattr(model, "encoder", None)
    embedding: Any = getattr(encoder, "embedding", None)
    reads = encoder.first_layer() if isinstance(encoder, TextEncoder) else []
    if not reads or not isinstance(embedding, WordEmbedding):
        raise InputError(
            f"compress.embedding_size: a {model.config.model_type} has no table of words with a layer above it; expected 0"
        )
    if size > (most := widest(model)):
        raise InputError(
            f"compress.embedding_size is {size}: expected at most {most}, of the {embedding.width} that there are"
        )
    return embedding, reads


def narrow_embedding(model: Any, counts: np.ndarray, size: int) -> None:
    """Reduce the embedding dimension, in place.

    The first layer multiplies the tables by its weights. The nearest product of two narrower
    matrices takes their place, each token weighted by its use (Eckart and Young 1936).

    Args:
        model: A student with tables of words. Two tables side by side become one trained table.
        counts: How often each token is used, (V,); 0 counts as 1.
        size: The new embedding dimension.

    Raises:
        InputError: As `to_narrow`.
    """
    embedding, reads = to_narrow(model, size)
    tables = [
        table.weight for table in (embedding.frozen_table, embedding.table) if table is not None
    ]
    table = torch.cat([weight.detach() for weight in tables], dim=1).double()  # (V, W)
    # (F, W)
    above = torch.cat([weight.detach().flatten(0, -2) for weight in map(_by_input, reads)]).double()
    weight = torch.from_numpy(np.sqrt(np.maximum(counts, 1)))[:, None]
    product = weight * (table @ above.T)  # (V, F)
    # The singular vectors of the product, from its small square; in ascending order.
    squares, vectors = torch.linalg.eigh(product.T @ product)
    right, strength = vectors.flip(1)[:, :size], squares.flip(0)[:size].clamp(min=1e-12).sqrt()
    share = strength.sqrt()  # of both sides alike, so that both are of one size
    narrow = product @ right / share / weight  # (V, size)
    new = (right * share).float()  # (F, size)
    start = 0
    module: Any
    for module, name in reads:
        old = _by_input((module, name))
        rows = old[..., 0].numel()
        part = new[start : start + rows].view(*old.shape[:-1], size)
        # A convolution's weight is (filters, W, words), an LSTM's (4H, W).
        part = part.transpose(1, 2) if part.ndim == 3 else part
        setattr(module, name, nn.Parameter(part.contiguous()))
        start += rows
        setattr(module, next(n for kind, n in _INPUTS.items() if isinstance(module, kind)), size)
    padding: int = (embedding.table or embedding.frozen_table).padding_idx
    narrow[padding] = 0
    embedding.frozen_table, embedding.width = None, size
    embedding.table = nn.Embedding(len(narrow), size, padding_idx=padding, _weight=narrow.float())
    model.config.embedding_size, model.config.channels = size, "single"


def widest(model: Any) -> int:
    """Return the largest smaller dimension: the first layer's rows span no more."""
    rows = sum(_by_input(read)[..., 0].numel() for read in model.encoder.first_layer())
    return min(model.encoder.embedding.width - 1, rows)


def _by_input(reader: tuple[nn.Module, str]) -> Tensor:
    """Return a weight with the word vector's numbers last."""
    weight: Tensor = getattr(*reader).detach()
    return weight.transpose(1, 2) if weight.ndim == 3 else weight

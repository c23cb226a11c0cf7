"""A wanted size: find the settings that meet it and change the logits least before training."""

import copy
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf
from operator import ge
from typing import Any

import numpy as np

from distillkit.compress.low_rank import widest
from distillkit.compress.quantise import clipped, coded, stored_weights
from distillkit.compress.steps import Model, Reading, shrink, store
from distillkit.compress.storage import packed_codes
from distillkit.compress.vocabulary import prunable
from distillkit.errors import InputError
from distillkit.processes import progress_bar
from distillkit.recipe import CompressConfig, Storage
from distillkit.student.register import kind_of_model
from distillkit.student.words import WordEmbedding
from distillkit.training.layers import ENCODERS

_BITS = {"int8": 7.2, "int4": 3.3}  # of a weight, about, when deflated
_TOKENS = (1.0, 0.75, 0.5, 0.35, 0.25, 0.18, 0.12)  # fractions of the vocabulary
_WIDTHS = (128, 96, 64, 48, 32, 24, 16)
_UNITS = (0.0, 0.3, 0.5, 0.67, 0.8)
_LAYERS = (1.0, 0.67, 0.5, 0.34)  # fractions of a transformer's layers
_STORED: tuple[tuple[Storage, Storage], ...]
_STORED = (("int8", "int8"), ("int4", "int8"), ("int4", "int4"))
_LARGE = 0.6  # of the wanted size; smaller plans have lost more than they had to
_OVERHEAD = 7_000  # bytes of graph and manifest, deflated


class NotMetError(InputError):
    """No settings come to the wanted size, or those that do lose too much."""


def estimated_megabytes(model: Model, compress: CompressConfig) -> float:
    """Estimate the size of a model's one-file bundle in int8 or int4, in MB (10^6 bytes)."""
    total = _OVERHEAD + _deflated(model.tokenizer.backend_tokenizer.to_str().encode())
    for module, name, storage in stored_weights(model.network, compress):
        assert storage != "pq"  # as no plan is
        rows = getattr(module, name).detach().flatten(1)
        codes, _ = packed_codes(coded(clipped(rows, storage), storage))
        total += _deflated(codes.tobytes()) + 2 * len(rows)
    return total / 1e6


def _deflated(data: bytes) -> int:
    return len(zlib.compress(data))


def plans(model: Model, base: CompressConfig) -> Iterator[CompressConfig]:
    """List settings for the kind of model, those that remove least first, upon `base`."""
    network, size = model.network, len(model.tokenizer)
    possible = kind_of_model(network).compress
    words = getattr(getattr(network, "encoder", None), "embedding", None)
    tokens, widths, units, layers = [0], [0], [0.0], [0]
    if "vocabulary_size" in possible and prunable(model.tokenizer):
        tokens += [round(share * size) for share in _TOKENS[1:]]
    if isinstance(words, WordEmbedding):
        units = list(_UNITS)
        if "embedding_size" in possible:
            widths += [width for width in _WIDTHS if width <= widest(network)]
    if "layers" in possible and network.config.model_type in ENCODERS:
        count = network.config.num_hidden_layers
        layers = sorted({round(share * count) or 1 for share in _LAYERS} - {count}, reverse=True)
        layers = [0, *layers]
    for kept, width, share, deep, stored in product(tokens, widths, units, layers, _STORED):
        yield replace(
            base,
            vocabulary_size=kept,
            embedding_size=width,
            units=share,
            layers=deep,
            embeddings=stored[0],
            weights=stored[1],
        )


def find_plans(
    model: Model,
    base: CompressConfig,
    max_mb: float,
    reading: Reading,
    texts: Reading,
    *,
    retrains: bool,
) -> list[CompressConfig]:
    """Find settings that come to a size, those first whose logits are nearest to the model's own.

    Training again repairs what rounding does to the logits, but not the loss of tokens and embedding
    dimensions.

    Args:
        model: To be compressed; left as it is.
        base: All settings that are not chosen here.
        max_mb: Largest size, in MB.
        reading: As for `steps.shrink`.
        texts: What logits are compared on.
        retrains: Whether the model is trained again. The logits are compared before rounding then,
            and of each cut the finest storage that fits is a plan.

    Raises:
        NotMetError: No settings come to it; names the smallest size.
    """
    own = texts.logits(model)
    sizes: list[tuple[float, CompressConfig, float]] = []
    cut: dict[CompressConfig, Model] = {}
    fits: list[CompressConfig] = []
    listed = list(plans(model, base))
    for plan in progress_bar(listed, desc="compress: plans", unit="plan"):
        if any(_keeps_more(other, plan) for other in fits):
            continue
        guess = _guess(model, plan)
        if guess > 1.15 * max_mb:  # too far above to be worth making
            sizes.append((guess, plan, inf))
            continue
        large = any(_LARGE * max_mb <= size <= max_mb for size, _, _ in sizes)
        if large and guess < _LARGE * max_mb:
            continue
        shape = replace(plan, embeddings="fp32", weights="fp32")
        if shape not in cut:
            cut.clear()  # plans that differ in storage alone follow each other
            cut[shape] = copy.deepcopy(model)
            list(shrink(cut[shape], plan, reading))
        small = cut[shape]
        size = estimated_megabytes(small, plan)
        error = inf
        if size <= max_mb:
            fits.append(plan)
            if not retrains:
                small = copy.deepcopy(small)
                store(small, plan, reading)
            error = float(np.square(texts.logits(small) - own).mean())
        sizes.append((size, plan, error))
    fitting = sorted(
        (error, size, number) for number, (size, _, error) in enumerate(sizes) if size <= max_mb
    )
    if not fitting:
        smallest = min(size for size, _, _ in sizes)
        raise NotMetError(
            f"--max-mb {max_mb:g}: the smallest that these steps come to is {smallest:.2f} MB; distil a smaller student"
        )
    return [sizes[number][1] for _, _, number in fitting]


def _keeps_more(one: CompressConfig, other: CompressConfig) -> bool:
    """Say whether a plan keeps at least what another does, and as finely."""
    finest = [_STORED.index((plan.embeddings, plan.weights)) for plan in (one, other)]
    sizes = [
        (plan.vocabulary_size or inf, plan.embedding_size or inf, -plan.units, plan.layers or inf)
        for plan in (one, other)
    ]
    return finest[0] <= finest[1] and all(map(ge, *sizes))


def _guess(model: Model, plan: CompressConfig) -> float:
    """Guess a plan's size from the model as it is."""
    network, tokens = model.network, len(model.tokenizer)
    kept = min(1.0, (plan.vocabulary_size or tokens) / tokens)
    words: Any = getattr(getattr(network, "encoder", None), "embedding", None)
    narrow = plan.embedding_size / words.width if plan.embedding_size else 1.0
    total = _OVERHEAD + kept * _deflated(model.tokenizer.backend_tokenizer.to_str().encode())
    deep = plan.layers / network.config.num_hidden_layers if plan.layers else 1.0
    for module, name, storage in stored_weights(network, plan):
        weight = getattr(module, name)
        table = weight.shape[0] == getattr(network.config, "vocab_size", 0)
        share = kept * narrow if table else (1 - plan.units) * deep
        if name == "weight_ih_l0":
            share *= narrow
        total += share * weight.numel() * _BITS[storage] / 8
    return total / 1e6

"""The steps of a compression, in their order, each upon what the last one left."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distillkit.compress.low_rank import narrow_embedding, to_narrow
from distillkit.compress.quantise import round_weights
from distillkit.compress.units import prune_feed_forward, prune_layers, prune_units
from distillkit.compress.vocabulary import prune_vocabulary
from distillkit.data.batches import Encoded, encode
from distillkit.data.checked import save_pretrained
from distillkit.data.scratch import TEMPORARY, Scratch
from distillkit.errors import InputError
from distillkit.recipe import CompressConfig
from distillkit.student.register import kind_of_model
from distillkit.training.inference import predict_logits
from distillkit.training.layers import encoder_layers

_TOKENISE = "compress: tokenise"
_BLOCK = 2**20  # tokens counted together


@dataclass
class Model:
    """A model that is being compressed.

    Attributes:
        network: Changed in place by each step.
        tokenizer: Replaced once the vocabulary is smaller.
    """

    network: Any
    tokenizer: Any

    def save(self, folder: Path) -> None:
        """Write a checkpoint."""
        save_pretrained(folder, self.network, self.tokenizer)


@dataclass(frozen=True)
class Reading:
    """What models read while they are compressed: N texts, N second texts, the mask word."""

    texts: Sequence[str]
    pairs: Sequence[str] | None
    mask: str = ""
    scratch: Scratch = TEMPORARY
    _counted: dict[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    def rows(self, model: Model) -> Encoded:
        """Tokenise them for a model."""
        return encode(
            model.tokenizer,
            self.texts,
            self.pairs,
            model.tokenizer.model_max_length,
            mask=self.mask,
            progress=_TOKENISE,
            scratch=self.scratch,
        )

    def logits(self, model: Model) -> np.ndarray:
        """Return a model's logits for them, (N, C); a GPU gives it back, to be cut on the CPU."""
        found = predict_logits(model.network, self.rows(model)).numpy()
        model.network.cpu()
        return found

    def counts(self, model: Model) -> np.ndarray:
        """Return how often a model's tokens are used, (V,) int64."""
        # Plans are many, vocabularies few, and a transfer set takes long to read.
        vocabulary = model.tokenizer.backend_tokenizer.to_str()
        if vocabulary not in self._counted:
            ids = self.rows(model).ids.numpy()
            size = max(len(model.tokenizer), ids.max(initial=0) + 1)
            counts = self._counted[vocabulary] = np.zeros(size, np.int64)
            for start in range(0, len(ids), _BLOCK):
                counts += np.bincount(ids[start : start + _BLOCK], minlength=size)
        return self._counted[vocabulary]


def check_fits(model: Model, compress: CompressConfig) -> None:
    """Refuse what only another kind of model can lose, before anything costs time."""
    for name in ("layers", "feed_forward"):
        if getattr(compress, name):
            encoder_layers(model.network, f"compress.{name}", "compress.units")
    if compress.embedding_size:
        to_narrow(model.network, compress.embedding_size)
    if compress.units and "units" not in kind_of_model(model.network).compress:
        kind = model.network.config.model_type
        raise InputError(
            f"compress.units: only students of words have such units, not this {kind}; expected compress.feed_forward or layers"
        )


def shrink(model: Model, compress: CompressConfig, reading: Reading) -> Iterator[str]:
    """Prune as a configuration says, step by step, in place; `store` does the rest.

    Args:
        model: A classifier.
        compress: What it is to lose.
        reading: Gives how often tokens are used.

    Yields:
        The name of each step once it is taken.
    """
    network = model.network
    if compress.vocabulary_size:
        counts = reading.counts(model)
        model.tokenizer = prune_vocabulary(
            network, model.tokenizer, counts, compress.vocabulary_size
        )
        yield f"{len(model.tokenizer):,} tokens"
    if compress.layers:
        prune_layers(network, compress.layers)
        yield f"{compress.layers} layer{'s' * (compress.layers > 1)}"
    if compress.feed_forward:
        prune_feed_forward(network, compress.feed_forward)
        yield f"{100 * compress.feed_forward:g} % of feed-forward rows gone"
    if compress.embedding_size:
        narrow_embedding(network, reading.counts(model), compress.embedding_size)
        yield f"embedding dimension {compress.embedding_size}"
    if compress.units:
        prune_units(network, compress.units)
        yield f"{100 * compress.units:g} % of units gone"


def store(model: Model, compress: CompressConfig, reading: Reading) -> str:
    """Round tables and matrices to what will be stored, in place, and return the step's name."""
    round_weights(model.network, compress, token_counts(model, compress, reading))
    return f"embeddings {compress.embeddings}, weights {compress.weights}"


def token_counts(model: Model, compress: CompressConfig, reading: Reading) -> np.ndarray | None:
    """Return how often each token is used, (V,), where rounding asks for it."""
    return reading.counts(model) if compress.embeddings == "pq" else None

"""Layers and positions of BERT-class encoders; small students are cut from the layers."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from distillkit.errors import InputError

# Where each kind keeps its layers, from its base model.
_LAYERS = {
    "bert": "encoder.layer",
    "roberta": "encoder.layer",
    "xlm-roberta": "encoder.layer",
    "camembert": "encoder.layer",
    "electra": "encoder.layer",
    "distilbert": "transformer.layer",
}


def positions_of(model: Any) -> int | None:
    """Return how many tokens a model has positions for; None: as many as there are."""
    size: int | None = getattr(model.config, "max_position_embeddings", None)
    if size is None:
        return None
    table: Any = dict(model.base_model.named_modules()).get("embeddings.position_embeddings")
    padding = getattr(table, "padding_idx", None)
    # RoBERTa counts from the padding token's number on.
    return size if padding is None else size - padding - 1


def encoder_layers(model: nn.Module, what: str, instead: str = "") -> nn.ModuleList:
    """Return the layers of a BERT-class model's encoder.

    Args:
        model: A classifier.
        what: The setting that needs them, named in the error.
        instead: What may be chosen in its place.

    Raises:
        InputError: The model is something else.
    """
    kind = model.config.model_type if isinstance(model, PreTrainedModel) else type(model).__name__
    if not isinstance(model, PreTrainedModel) or kind not in _LAYERS:
        raise InputError(
            f"{what} knows the layers of {', '.join(_LAYERS)}, and this model is a {kind}; choose {instead}"
        )
    layers: Any = model.base_model.get_submodule(_LAYERS[kind])
    return layers

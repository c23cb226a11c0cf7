"""The layers of BERT-class teachers, which tensor parallelism and pipelines cut."""

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


def encoder_layers(model: nn.Module, strategy: str) -> nn.ModuleList:
    """Return the layers of a BERT-class teacher's encoder.

    Raises:
        InputError: The model is something else.
    """
    kind = model.config.model_type if isinstance(model, PreTrainedModel) else type(model).__name__
    if not isinstance(model, PreTrainedModel) or kind not in _LAYERS:
        raise InputError(
            f"training.strategy {strategy} knows the layers of {', '.join(_LAYERS)}, and this model is a {kind}; choose ddp or fsdp"
        )
    layers: Any = model.base_model.get_submodule(_LAYERS[kind])
    return layers

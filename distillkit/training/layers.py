"""Layers and positions of BERT-class encoders; small students are cut from the layers."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from distillkit.errors import InputError


@dataclass(frozen=True)
class EncoderParts:
    """What transformers calls the parts of a kind of encoder.

    Attributes:
        layers: From the base model.
        query, key, value: From a layer, as are the next three.
        attention_out: Reads all heads.
        wide, narrow: The two layers of the feed-forward network.
        wide_size: The setting with the size of `wide`.
        dropouts: The settings with the dropout of states and of attention.
    """

    layers: str = "encoder.layer"
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    attention_out: str = "attention.output.dense"
    wide: str = "intermediate.dense"
    narrow: str = "output.dense"
    wide_size: str = "intermediate_size"
    dropouts: tuple[str, str] = ("hidden_dropout_prob", "attention_probs_dropout_prob")


ENCODERS = dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), EncoderParts())
ENCODERS["distilbert"] = EncoderParts(
    layers="transformer.layer",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_out="attention.out_lin",
    wide="ffn.lin1",
    narrow="ffn.lin2",
    wide_size="hidden_dim",
    dropouts=("dropout", "attention_dropout"),
)


def positions_of(model: Any) -> int | None:
    """Return how many tokens a model has positions for; None: as many as there are."""
    size: int | None = getattr(model.config, "max_position_embeddings", None)
    if size is None or size < 0:  # XLNet says -1
        return None
    table: Any = dict(model.base_model.named_modules()).get("embeddings.position_embeddings")
    padding = getattr(table, "padding_idx", None)
    # RoBERTa counts from the padding token's number on.
    return size if padding is None else size - padding - 1


def encoder_parts(model: nn.Module, what: str = "", instead: str = "") -> EncoderParts:
    """Return what the parts of a BERT-class model are called.

    Args:
        model: A classifier.
        what: The setting that needs them, named in the error.
        instead: What may be chosen in its place.

    Raises:
        InputError: The model is something else.
    """
    kind = model.config.model_type if isinstance(model, PreTrainedModel) else type(model).__name__
    return parts_of(kind, what, instead)


def parts_of(kind: str, what: str = "", instead: str = "") -> EncoderParts:
    """Return what the parts of a kind of model are called; as `encoder_parts`."""
    if kind not in ENCODERS:
        raise InputError(
            f"{what} knows the layers of {', '.join(ENCODERS)}, and this model is a {kind}; choose {instead}"
        )
    return ENCODERS[kind]


def encoder_layers(model: Any, what: str = "", instead: str = "") -> nn.ModuleList:
    """Return the layers of a BERT-class model's encoder; arguments as in `encoder_parts`."""
    parts = encoder_parts(model, what, instead)
    layers: nn.ModuleList = model.base_model.get_submodule(parts.layers)
    return layers

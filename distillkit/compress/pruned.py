"""Checkpoints of transformers that lost attention heads, which transformers cannot describe."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from distillkit.student.units import keep_rows, keep_units
from distillkit.training.layers import encoder_layers, encoder_parts

# The answers are described by the outer configuration, not by that of the transformer within.
_ANSWERS = ("id2label", "label2id", "problem_type")


@dataclass
class Attention:
    """The attention of a layer.

    Attributes:
        module: What computes it.
        into: The layers of queries, keys and values; their rows are the dimensions of the heads.
        out: The layer that reads the heads; its columns are the same dimensions.
    """

    module: Any
    into: Sequence[Any]
    out: Any

    @property
    def width(self) -> int:
        """Dimensions of one head."""
        return int(self.module.attention_head_size)

    @property
    def heads(self) -> int:
        """Number of heads."""
        return int(self.out.in_features) // self.width

    def keep(self, heads: Sequence[int]) -> None:
        """Leave some of the heads, in place."""
        kept = [head * self.width + i for head in heads for i in range(self.width)]
        for part in self.into:
            keep_rows(part, kept)
        keep_units(self.out, "weight", kept, 1)
        self.out.in_features = len(kept)


def attentions(model: Any, what: str = "", instead: str = "") -> list[Attention]:
    """List the attention of each layer of a BERT-class model; arguments as in `encoder_layers`."""
    parts = encoder_parts(model, what, instead)
    found = []
    for layer in encoder_layers(model):
        into = [layer.get_submodule(name) for name in (parts.query, parts.key, parts.value)]
        module = layer.get_submodule(parts.query.rpartition(".")[0])
        found.append(Attention(module, into, layer.get_submodule(parts.attention_out)))
    return found


class PrunedTransformerConfig(PretrainedConfig):
    """Shape of a transformer without some of its heads.

    Args:
        transformer: `to_dict` of its configuration with all heads.
        heads: Attention heads left in each layer; each is as wide as it was.
    """

    model_type = "distillkit-pruned-transformer"

    def __init__(
        self,
        transformer: dict[str, Any] | None = None,
        heads: list[int] | None = None,
        max_position_embeddings: int = 512,
        pad_token_id: int = 0,
        **kwargs: Any,
    ) -> None:
        self.transformer = transformer or {"model_type": "bert"}
        self.heads = heads or [12] * 12
        self.max_position_embeddings = max_position_embeddings
        super().__init__(pad_token_id=pad_token_id, **kwargs)


class PrunedTransformerForSequenceClassification(PreTrainedModel):
    """A BERT-class classifier without some of its heads, cut to size before weights are loaded.

    It holds the classifier and does not derive from one: transformers learns of this kind before it
    loads any model of its own (see distillkit/__init__.py).
    """

    config_class: Any = PrunedTransformerConfig
    base_model_prefix = "transformer"
    main_input_name = "input_ids"

    def __init__(self, config: PrunedTransformerConfig) -> None:
        # as in student/register.py
        from transformers import AutoConfig, AutoModelForSequenceClassification

        super().__init__(config)
        of = dict(config.transformer) | {name: getattr(config, name) for name in _ANSWERS}
        self.transformer = AutoModelForSequenceClassification.from_config(
            AutoConfig.for_model(of.pop("model_type"), **of), trust_remote_code=False
        )
        for attention, heads in zip(attentions(self.transformer), config.heads, strict=True):
            attention.keep(range(heads))
        self.post_init()

    @classmethod
    def around(cls, classifier: Any) -> "PrunedTransformerForSequenceClassification":
        """Wrap a BERT-class classifier that lost heads, so that it can be saved."""
        config = classifier.config
        transformer = config.to_dict()
        # The checkpoint has its own.
        for name in ("architectures", "dtype", "transformers_version", *_ANSWERS):
            transformer.pop(name, None)
        answers = {name: getattr(config, name) for name in _ANSWERS}
        shape = PrunedTransformerConfig(
            transformer,
            [attention.heads for attention in attentions(classifier)],
            config.max_position_embeddings,
            config.pad_token_id,
            **answers,
        )
        model = cls(shape)
        model.transformer.load_state_dict(classifier.state_dict())
        return model.eval()

    def classifier(self) -> Any:
        """Return the classifier within, with this model's labels and problem type."""
        for name in _ANSWERS:
            setattr(self.transformer.config, name, getattr(self.config, name))
        return self.transformer

    @property
    def base_model(self) -> nn.Module:
        """The transformer without a head."""
        found: nn.Module = self.transformer.base_model
        return found

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Return logits, (B, C), of texts or of pairs read together.

        Args:
            input_ids: (B, T) int64.
            attention_mask: (B, T), 0 at padding; None: no padding.
            token_type_ids: (B, T), for transformers that take them.
            labels: As transformers takes them for the `problem_type`; gives its `loss`.
        """
        sides = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        logits = self.transformer(
            input_ids=input_ids, attention_mask=attention_mask, **sides
        ).logits
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def register() -> None:
    """Register this kind of checkpoint with transformers' Auto classes."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config, model = PrunedTransformerConfig, PrunedTransformerForSequenceClassification
    AutoConfig.register(config.model_type, config, exist_ok=True)
    AutoModelForSequenceClassification.register(config, model, exist_ok=True)

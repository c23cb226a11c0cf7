"""BERT with fewer attention heads than its configuration could say: what `compress` makes of a teacher or a small transformer."""

from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification


class PrunedBertConfig(BertConfig):
    """BERT's, and how many heads there are left.

    Args:
        kept_heads: Attention heads of each layer; each is as wide as `hidden_size` over `num_attention_heads`, which says how many there were.
        **kwargs: As for `BertConfig`.
    """

    model_type = "distillkit-pruned-bert"

    def __init__(self, kept_heads: int = 12, **kwargs: Any) -> None:
        self.kept_heads = kept_heads
        super().__init__(**kwargs)


class PrunedBertForSequenceClassification(BertForSequenceClassification):
    """BERT with some heads of every layer gone."""

    config_class = PrunedBertConfig

    def __init__(self, config: PrunedBertConfig) -> None:
        super().__init__(config)
        layers: Any = self.bert.encoder.layer
        width = config.kept_heads * config.hidden_size // config.num_attention_heads
        for layer in layers:
            attention = layer.attention.self
            for name in ("query", "key", "value"):
                setattr(attention, name, nn.Linear(config.hidden_size, width))
            layer.attention.output.dense = nn.Linear(width, config.hidden_size)
            attention.num_attention_heads, attention.all_head_size = config.kept_heads, width


def with_heads(model: Any, kept: list[list[int]]) -> PrunedBertForSequenceClassification:
    """Return a BERT with some of its heads.

    Args:
        model: A BERT classifier, of transformers or of this kind; it is left as it is.
        kept: Of each layer the heads that stay, as many in every one.
    """
    old = model.config
    config = PrunedBertConfig(kept_heads=len(kept[0]), **{k: v for k, v in old.to_dict().items() if k != "kept_heads"})
    found = PrunedBertForSequenceClassification(config)
    state, width = model.state_dict(), old.hidden_size // old.num_attention_heads
    for number, heads in enumerate(kept):
        rows = torch.tensor([head * width + i for head in heads for i in range(width)])
        prefix = f"bert.encoder.layer.{number}.attention"
        for name in ("query", "key", "value"):
            for part in ("weight", "bias"):
                state[f"{prefix}.self.{name}.{part}"] = state[f"{prefix}.self.{name}.{part}"][rows]
        state[f"{prefix}.output.dense.weight"] = state[f"{prefix}.output.dense.weight"][:, rows]
    found.load_state_dict(state)
    return found.eval()

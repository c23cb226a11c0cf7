"""Vectors of texts by a pretrained encoder as it is: what a linear model can make of them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor, nn

from distillkit.data.batches import encode
from distillkit.recipe import Precision
from distillkit.teacher.checkpoint import load_base_model, max_tokens_of
from distillkit.training.inference import predict_logits


class TextVectors:
    """The mean of an encoder's last states over a text's tokens.

    Args:
        model: Folder, package or hub name of a pretrained encoder.
        max_tokens: Longer texts are truncated.
        precision: Autocast of the forward pass.
    """

    def __init__(self, model: str, max_tokens: int, precision: Precision = "auto") -> None:
        encoder, self._tokenizer = load_base_model(model)
        self._limit = min(max_tokens, max_tokens_of(encoder, self._tokenizer))
        self._mean, self._precision = _Mean(encoder), precision

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of N texts, (N, D) float32."""
        rows = encode(self._tokenizer, texts, None, self._limit)
        return predict_logits(self._mean, rows, precision=self._precision).numpy()


class _Mean(nn.Module):
    """An encoder whose answer, (N, D), is called logits as a classifier's is."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> SimpleNamespace:
        states = self.encoder(attention_mask=attention_mask, **inputs).last_hidden_state
        weights = attention_mask.to(states.dtype).unsqueeze(2)  # (B, T, 1)
        return SimpleNamespace(logits=(states * weights).sum(1) / weights.sum(1))

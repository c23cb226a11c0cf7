"""Vectors of texts by a pretrained encoder as it is: what a linear model can make of them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from distillkit.data.batches import encode
from distillkit.errors import checkpoint_errors
from distillkit.processes import without_foreign_bars
from distillkit.teacher.checkpoint import max_tokens_of, resolve
from distillkit.training.inference import predict_logits


class TextVectors:
    """The mean of an encoder's last states over a text's tokens.

    Args:
        model: Folder, package or hub name of a pretrained encoder.
        max_tokens: Longer texts are truncated.
    """

    def __init__(self, model: str, max_tokens: int) -> None:
        from transformers import AutoModel, AutoTokenizer

        folder = resolve(model)
        with checkpoint_errors(model), without_foreign_bars(folder):
            self._tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            encoder = AutoModel.from_pretrained(
                folder, dtype=torch.float32, trust_remote_code=False
            )
        self._limit = min(max_tokens, max_tokens_of(encoder, self._tokenizer))
        self._mean = _Mean(encoder)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of N texts, (N, D) float32."""
        rows = encode(self._tokenizer, texts, None, self._limit)
        return predict_logits(self._mean, rows, precision="auto").numpy()


class _Mean(nn.Module):
    """An encoder whose answer, (N, D), is called logits as a classifier's is."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> SimpleNamespace:
        states = self.encoder(attention_mask=attention_mask, **inputs).last_hidden_state
        weights = attention_mask.to(states.dtype).unsqueeze(2)  # (B, T, 1)
        return SimpleNamespace(logits=(states * weights).sum(1) / weights.sum(1))

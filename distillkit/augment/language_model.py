"""Load a language model, and draw tokens from what it says by random numbers that are given."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distillkit.data.checked import check_sealed
from distillkit.errors import checkpoint_errors


def load_language_model(kind: Any, model: str) -> tuple[Any, Any, set[str]]:
    """Load a language model in float32 and eval mode, by a class such as AutoModelForMaskedLM.

    Returns:
        The model, its tokenizer, and the names of weights that the checkpoint lacks.

    Raises:
        InputError: It cannot be loaded.
    """
    from transformers import AutoTokenizer

    check_sealed(Path(model))
    with checkpoint_errors(model):
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        network, found = kind.from_pretrained(
            model, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    return network.eval(), tokenizer, set(found["missing_keys"])


def draw_tokens(logits: Tensor, temperature: float, u: np.ndarray) -> np.ndarray:
    """Draw a token of each distribution by inverting its cumulative distribution.

    Args:
        logits: (M, V) float.
        temperature: > 0.
        u: (M,) uint64, of which the lower 32 bits are used.

    Returns:
        (M,) int64; rows do not depend on each other.
    """
    p = torch.softmax(logits.float().cpu() / temperature, dim=1)
    below = p.cumsum(dim=1, dtype=torch.float64)
    share = torch.from_numpy((u & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2**32)[:, None]
    # Rounding: the sum need not be 1, and must not be reached.
    drawn = torch.searchsorted(below, share * below[:, -1:], right=True).ravel()
    return drawn.clamp(max=logits.shape[1] - 1).numpy()

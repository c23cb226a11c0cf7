"""What a resumed training must have in common with the one it resumes."""

from dataclasses import asdict
from typing import Any

from torch import Tensor

from distillkit.data.batches import Encoded
from distillkit.recipe import TrainingConfig
from distillkit.training.checkpoints import digest

# What a training may change when it is resumed: none of it changes what is computed.
_FREE = {
    "strategy",
    "zero_stage",
    "checkpoint_steps",
    "keep_checkpoints",
    "tensorboard",
    "loader",
}
# Settings that older checkpoints do not know, and what they are where nobody sets them.
_LATER = {"steps": 0, "best_by": "score", "always_adapt": False, "gradient_compression": "none"}


def made_from(config: TrainingConfig, seed: int, rows: Encoded, weights: Tensor) -> dict[str, Any]:
    """Return settings, seed and a digest of the rows and their sampling weights, (N,) float."""
    settings = {name: value for name, value in asdict(config).items() if name not in _FREE}
    for name, unset in _LATER.items():
        if settings[name] == unset:
            del settings[name]
    tensors = (rows.ids, rows.types, rows.offsets)
    found = digest(
        *(None if tensor is None else tensor.numpy() for tensor in tensors), weights.numpy()
    )
    return {"training": settings, "seed": seed, "training rows (SHA-256)": found}

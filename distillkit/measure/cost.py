"""What a model costs: parameters, bytes on disk, milliseconds a sentence."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Count parameters: `total`, and `without_embeddings` (every embedding table left out)."""
    total = sum(p.numel() for p in model.parameters())
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    inside = sum(p.numel() for table in tables for p in table.parameters(recurse=False))
    return {"total": total, "without_embeddings": total - inside}


def megabytes(folder: Path) -> float:
    """Return the size of a model's files in MB (10^6 bytes), without its folder `training`."""
    files = (path for path in folder.rglob("*") if path.is_file())
    files = (path for path in files if path.relative_to(folder).parts[0] != "training")
    return sum(path.stat().st_size for path in files) / 1e6


def answer_one(model: Any, tokenizer: Any) -> Callable[[str, str | None], object]:
    """Return a function that classifies one text or pair from its string, without batching."""
    device = next(model.parameters()).device

    def answer(text: str, pair: str | None) -> object:
        with torch.inference_mode():
            inputs = tokenizer(text, pair, truncation=True, return_tensors="pt")
            return model(**inputs.to(device)).logits.argmax(1).item()

    return answer


def milliseconds(
    answers: dict[str, Callable[[str, str | None], object]], rows: Sequence[tuple[str, str | None]]
) -> dict[str, float]:
    """Return the median milliseconds a row of each answerer, one text or pair at a time.

    They take turns row by row in a random order, so neither a drifting machine nor the caches that
    a large neighbour leaves favour one.
    """
    for answer in answers.values():  # the first calls build caches
        for row in rows[:5]:
            answer(*row)
    taken: dict[str, list[float]] = {name: [] for name in answers}
    turns = np.random.default_rng(0)
    for row in rows:
        for name in turns.permutation(list(answers)):
            start = time.perf_counter()
            answers[name](*row)
            taken[name].append(time.perf_counter() - start)
    return {name: float(np.median(times)) * 1000 for name, times in taken.items()}

"""What a model costs: parameters, bytes on disk, milliseconds a sentence."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from distillkit.processes import progress_bar

Row = tuple[str, str | None]
# Texts, and second texts, to logits, tokenising included.
Answer = Callable[[Sequence[str], Sequence[str] | None], np.ndarray]
_BLOCKS = 5  # turns that each model has at each batch size
# Uncounted calls when a model takes its turn: so many, or those of so many seconds.
_WARM, _WARM_SECONDS = 20, 0.05


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


def answer_of(model: Any, tokenizer: Any) -> Answer:
    """Return a function that answers texts or pairs in torch, as strings come in."""
    device = next(model.parameters()).device

    def answer(texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
        with torch.inference_mode():
            inputs = tokenizer(
                list(texts),
                None if pairs is None else list(pairs),
                padding=True,
                truncation=True,
                return_tensors="pt",
            )
            return model(**inputs.to(device)).logits.float().cpu().numpy()

    return answer


def milliseconds(answers: Mapping[str, Answer], rows: Sequence[Row]) -> dict[str, float]:
    """Return the median milliseconds of each model a row, one row a call, as `times` takes them."""
    return {
        name: float(np.median(seconds)) * 1000 for name, seconds in times(answers, rows, 1).items()
    }


def times(
    answers: Mapping[str, Answer], rows: Sequence[Row], batch: int, *, progress: str = ""
) -> dict[str, np.ndarray]:
    """Time each model on the same calls, in blocks that take turns: a drifting machine favours none.

    Args:
        answers: What to time, by name.
        rows: Texts or pairs, taken in their order, again from the first where they end.
        batch: Rows a call.
        progress: Name of the progress bar.

    Returns:
        Seconds of each call, (calls,) float64, by name: as many calls as the rows fill, 5 at least.
        In each of five blocks the models take turns in a random order, each with its calls in a row,
        as a server would have its caches to itself.
    """
    calls = max(_BLOCKS, -(-len(rows) // batch))
    taken: dict[str, list[float]] = {name: [] for name in answers}
    turns = np.random.default_rng(0)
    parts = [_call(rows, batch, number) for number in range(calls)]
    with progress_bar(total=_BLOCKS * len(answers), desc=progress, unit="block") as bar:
        for block in np.array_split(np.arange(calls), _BLOCKS):
            for name in turns.permutation(list(answers)):
                _warm(answers[name], [parts[(block[0] - i) % calls] for i in range(_WARM, 0, -1)])
                for number in block:
                    start = time.perf_counter()
                    answers[name](*parts[number])
                    taken[name].append(time.perf_counter() - start)
                bar.update()
    return {name: np.array(found) for name, found in taken.items()}


def _warm(answer: Answer, parts: Sequence[tuple[list[str], list[str] | None]]) -> None:
    """Warm the caches, which another model has filled, with the calls before those that count."""
    until = time.perf_counter() + _WARM_SECONDS
    for part in parts:
        answer(*part)
        if time.perf_counter() > until:
            break


def _call(rows: Sequence[Row], batch: int, number: int) -> tuple[list[str], list[str] | None]:
    part = [rows[(number * batch + i) % len(rows)] for i in range(batch)]
    pairs = None if part[0][1] is None else [pair or "" for _, pair in part]
    return [text for text, _ in part], pairs

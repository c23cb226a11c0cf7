"""Answers from logits, and rows in groups; the same for a bundle and for a model in torch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from distillkit.errors import InputError


def check_finite(place: str, logits: np.ndarray, texts: Sequence[Any]) -> None:
    """Refuse logits (N, C) of a place's model that are NaN or infinite: they are no answer."""
    finite = np.isfinite(logits)
    if not finite.all():
        row = int(np.flatnonzero(~finite.all(axis=1))[0])
        value, text = logits[row][~finite[row]][0], str(texts[row])[:60]
        raise InputError(
            f"{place}: a logit is {value}, expected a finite number (text: {text!r}); its weights are damaged: train or export it again"
        )


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of classes, (N, C) float64, each row summing to 1."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def expit(logits: np.ndarray) -> np.ndarray:
    """Return the probability of each label, (N, C) float64; exact at both ends."""
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))


def confidence(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Return each row's largest probability, (N,) float64, of logits (N, C) over a temperature."""
    return softmax(logits / temperature).max(axis=1)


def answers(task: str, logits: np.ndarray, labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what each row's logits, (N, C), mean.

    Of a classification `label` and `probabilities` by label; of a multi-label task `labels`, those
    with a probability above 0.5, and `probabilities`; of a regression `score`.
    """
    if task == "regression":
        yield from ({"score": score} for score in logits[:, 0].astype(np.float64).tolist())
        return
    several = task == "multi-label"
    for p in expit(logits) if several else softmax(logits):
        found: dict[str, Any] = {"label": labels[int(p.argmax())]}
        if several:
            found = {"labels": [name for name, share in zip(labels, p, strict=True) if share > 0.5]}
        yield found | {"probabilities": dict(zip(labels, p.tolist(), strict=True))}


def floor_of(floors: Mapping[str, float] | None, coverage: float, place: str) -> float:
    """Return the probability from which a label is in the set of a wanted coverage.

    Args:
        floors: `Manifest.coverage`; of two neighbours the wider set's is taken.
        coverage: Wanted share of rows whose set holds the right label, 0 to 1.
        place: The bundle, for errors.

    Raises:
        InputError: The bundle has none, or none so high.
    """
    if not floors:
        raise InputError(
            f"{place}: no label sets: its manifest has no coverage; distillkit run, compress or export --dev fits it, for classification"
        )
    known = sorted(map(float, floors))
    if not 0 < coverage <= known[-1]:
        raise InputError(
            f"coverage {coverage:g}: expected above 0 and at most {known[-1]:g}, which the dev rows of {place} allow"
        )
    return floors[f"{next(value for value in known if value >= coverage - 1e-9):.2f}"]


def own_scores(rows: Sequence[Sequence[str]], rule: Mapping[str, Any]) -> np.ndarray:
    """Return how much like the training text rows are, (N,) float64; -inf without any word.

    Args:
        rows: Words, as `Predictor.words` gives them.
        rule: `weights` by word, `rare` for every other word.
    """
    weights, rare = rule["weights"], rule["rare"]
    return np.array(
        [
            sum(weights.get(word, rare) for word in row) / len(row) ** 0.5 if len(row) else -np.inf
            for row in rows
        ],
        np.float64,
    )


def answered(
    rows: Iterable[tuple[str, str | None]],
    size: int,
    ask: Callable[[list[str], list[str] | None], Iterable[dict[str, Any]]],
) -> Iterator[dict[str, Any]]:
    """Yield rows as they come, `text` and `text_pair` (pairs only), with their answers."""
    for group in _groups(rows, size):
        pairs = [pair for _, pair in group if pair is not None]
        found = ask([text for text, _ in group], pairs or None)
        for (text, pair), answer in zip(group, found, strict=True):
            yield ({"text": text} if pair is None else {"text": text, "text_pair": pair}) | answer


def _groups(
    rows: Iterable[tuple[str, str | None]], size: int
) -> Iterator[list[tuple[str, str | None]]]:
    """Group rows as they come into lists of a size, single texts and pairs apart."""
    group: list[tuple[str, str | None]] = []
    for row in rows:
        if group and (row[1] is None) != (group[0][1] is None):
            yield group
            group = []
        group.append(row)
        if len(group) == size:  # at once: the next row may be long in coming
            yield group
            group = []
    if group:
        yield group

"""How much a teacher's answers depend on word order, which some students cannot see.

Each text's words are shuffled, shuffled in runs of three (order inside a run stays, as a
convolution sees it), and, as a yardstick, masked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from distillkit.data.content import paired
from distillkit.data.words import is_unsegmented, split_characters
from distillkit.doctor.findings import Finding, percent

RUN = 3
MASKED = 0.15
DRAWS = 3
_KINDS = ("shuffled", "runs", "masked")
ASKS = 1 + DRAWS * len(_KINDS)  # how often the teacher is asked about each row
Rows = tuple[Sequence[str], Sequence[str] | None]
Change = Callable[[list[str], np.random.Generator], list[str]]


@dataclass(frozen=True)
class Movement:
    """How far a change of the texts moves a teacher's probabilities.

    Args:
        mean: Mean total variation between the distributions before and after, 0 to 1.
        median: Its median.
        flips: Share of the rows with another answer, 0 to 1.
        accuracy: Share of the changed rows that are right, 0 to 1.
    """

    mean: float
    median: float
    flips: float
    accuracy: float


def word_order(
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    gold: np.ndarray,
    ask: Callable[[Rows], np.ndarray],
    mask: str,
    seed: int,
) -> dict[str, Movement]:
    """Measure how far shuffling and masking words move a teacher's answers.

    Args:
        texts: N texts.
        pairs: N second texts, or None; both sides are changed, each by itself.
        gold: Class numbers, (N,).
        ask: The teacher: rows to logits, (N, C).
        mask: Its mask token.
        seed: Draws the orders.

    Returns:
        `shuffled`, `runs` (of three words, shuffled), `masked` (15 % of the words, one at least),
        and `plain`, the texts as they are. Words are what stands between spaces; characters where
        no spaces are written. All four are asked in the same spelling.
    """
    cut, glue = (split_characters, "") if is_unsegmented(texts) else (str.split, " ")
    rows = [[None if text is None else cut(text) for text in row] for row in paired(texts, pairs)]

    def ask_changed(change: Change, draw: int) -> np.ndarray:
        changed = [
            [None if words is None else glue.join(change(words, random)) for words in row]
            for row, random in (
                (row, np.random.default_rng([seed, draw, i])) for i, row in enumerate(rows)
            )
        ]
        first, second = zip(*changed, strict=True)
        logits = ask((list(first), None if pairs is None else list(second)))
        return softmax(logits.astype(np.float64), axis=1)

    changes: dict[str, Change] = {
        "shuffled": lambda words, random: _shuffled([[word] for word in words], random),
        "runs": lambda words, random: _shuffled(_runs(words, random), random),
        "masked": lambda words, random: _masked(words, mask, random),
    }
    plain = ask_changed(lambda words, _: words, 0)
    moved = {"plain": _movement(plain, [plain], gold)}
    for kind in _KINDS:
        asked = [ask_changed(changes[kind], draw) for draw in range(DRAWS)]
        moved[kind] = _movement(plain, asked, gold)
    return moved


def _shuffled(runs: list[list[str]], random: np.random.Generator) -> list[str]:
    return [word for i in random.permutation(len(runs)) for word in runs[i]]


def _runs(words: list[str], random: np.random.Generator) -> list[list[str]]:
    """Cut into runs of `RUN` words, the first cut drawn."""
    first = int(random.integers(1, RUN + 1))
    return [words[:first], *(words[start : start + RUN] for start in range(first, len(words), RUN))]


def _masked(words: list[str], mask: str, random: np.random.Generator) -> list[str]:
    chosen = random.random(len(words)) < MASKED
    chosen[random.integers(len(words))] = True
    return [mask if hide else word for word, hide in zip(words, chosen, strict=True)]


def _movement(plain: np.ndarray, asked: Sequence[np.ndarray], gold: np.ndarray) -> Movement:
    distance = np.stack([np.abs(plain - p).sum(axis=1) / 2 for p in asked])  # (draws, N)
    answers = np.stack([p.argmax(1) for p in asked])
    return Movement(
        float(distance.mean()),
        float(np.median(distance)),
        float((answers != plain.argmax(1)).mean()),
        float((answers == gold).mean()),
    )


def order_finding(moved: dict[str, Movement], rows: int, unit: str) -> Finding:
    """Report how much the teacher depends on word order."""
    shuffled, runs, masked = (moved[kind] for kind in _KINDS)
    return Finding(
        "word-order",
        "fine",
        f"{unit}s shuffled: {percent(shuffled.flips)} of {rows} dev rows get another answer "
        f"(probabilities move by {shuffled.mean:.3f}, median {shuffled.median:.3f}); "
        f"in runs of {RUN}: {percent(runs.flips)}; {percent(MASKED)} masked: {percent(masked.flips)}; "
        f"the teacher is right on {percent(moved['plain'].accuracy)}, shuffled {percent(shuffled.accuracy)}, in runs {percent(runs.accuracy)}",
        metrics={kind: vars(movement) for kind, movement in moved.items()},
    )

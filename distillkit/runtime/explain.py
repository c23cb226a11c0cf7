"""Which words decided: what an answer loses when one of them is left out."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tokenizers import Regex, pre_tokenizers

from distillkit.runtime.words import UNSEGMENTED, WORD_PATTERN

# N texts and N second texts, or None, to logits, (N, C).
Ask = Callable[[Sequence[str], Sequence[str] | None], np.ndarray]
_CHARACTERS_AT_ONCE = 2**24  # a bound on memory
# One character of a script without spaces, or else a word: a text may have both.
_SPACED = WORD_PATTERN.replace(r"[\w\p{M}]", rf"[\w\p{{M}}&&[^{UNSEGMENTED[1:]}]")
_WORDS = pre_tokenizers.Split(Regex(f"{UNSEGMENTED}|{_SPACED}"), "removed", invert=True)


def explain(
    ask: Ask, task: str, labels: Sequence[str], texts: Sequence[str], pairs: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return each word's share in the answers of N texts or pairs, by leaving it out.

    A word's weight is what the answer's logit loses without it. Of a classification this is the
    answered label's logit less the mean of the row's logits, which still moves where a probability
    is near 1. Of a multi-label task it is the most probable label's logit, of a regression the
    score. A share is the weight over the sum of the text's absolute weights, -1 to 1: below 0 the
    word speaks against the answer. Of a pair the sum is over both texts.

    Args:
        ask: The model.
        task: classification, multi-label or regression.
        labels: C names.
        texts: N texts.
        pairs: N second texts, or None.

    Returns:
        For each row `words`, of a pair also `words_pair`: the words in their order, each with
        `word` and `share`; and `explained`, the label (multi-label only). A word is what students
        read as one, in scripts without spaces a character; see `runtime.words`.

    Source: leave-one-out, Li et al. 2016 (arXiv 1612.08220).
    """
    if not len(texts):
        return []
    # Lists: a pandas Series counts by its index.
    sides = [list(side) for side in (texts, pairs) if side is not None]
    spans = [[_spans(text) for text in side] for side in sides]
    # Row, side and place of what is left out; first every row as it is.
    left_out = [(row, 0, (0, 0)) for row in range(len(texts))]
    left_out += [
        (row, i, span)
        for row in range(len(texts))
        for i, side in enumerate(spans)
        for span in side[row]
    ]
    rows = [row for row, _, _ in left_out]
    step = max(1, _CHARACTERS_AT_ONCE // max(1, sum(max(map(len, side)) for side in sides)))
    parts = range(0, len(rows), step)
    found = [_asked(ask, sides, left_out[part : part + step]) for part in parts]
    logits = np.concatenate(found).astype(np.float64)
    if task == "classification":
        logits = logits - logits.mean(axis=1, keepdims=True)
    answered = logits[: len(texts)].argmax(axis=1)[rows]
    of_answer = logits[np.arange(len(rows)), answered]
    lost = iter((of_answer[rows] - of_answer)[len(texts) :].tolist())
    out = []
    for row in range(len(texts)):
        weights = [[next(lost) for _ in side[row]] for side in spans]
        total = sum(abs(weight) for own in weights for weight in own) or 1.0
        answer: dict[str, Any] = {}
        if task == "multi-label":
            answer["explained"] = labels[int(answered[row])]
        for i, name in enumerate(("words", "words_pair")[: len(sides)]):
            answer[name] = [
                {"word": sides[i][row][start:end], "share": round(weight / total, 4)}
                for (start, end), weight in zip(spans[i][row], weights[i], strict=True)
            ]
        out.append(answer)
    return out


def _asked(
    ask: Ask, sides: Sequence[Sequence[str]], left_out: Sequence[tuple[int, int, tuple[int, int]]]
) -> np.ndarray:
    """Return the logits of rows that each lack a word, (M, C)."""
    texts = [
        [_without(side[row], *span) if i == own else side[row] for row, own, span in left_out]
        for i, side in enumerate(sides)
    ]
    return ask(texts[0], texts[1] if len(texts) > 1 else None)


def _spans(text: str) -> list[tuple[int, int]]:
    """Return where the words of a text begin and end, in characters."""
    return [span for _, span in _WORDS.pre_tokenize_str(text)]


def _without(text: str, start: int, end: int) -> str:
    """Leave out a word, and of the white space around it what would stand twice."""
    if start == end:
        return text
    before, after = text[:start], text[end:]
    joint = before[-1:] + after[:1]
    if len(joint) == 2 and joint.isalnum() and len(_spans(joint)) == 1:
        return f"{before} {after}"  # without its hyphen good-looking is two words, and 5月1 two numbers
    return before + (after.lstrip() if not before or before[-1].isspace() else after)

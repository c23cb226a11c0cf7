"""Texts to the arrays that a graph takes, by the tokenizer of the bundle alone."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from distillkit.errors import InputError, library_errors
from distillkit.runtime.ascii import AsciiWords

# Han, kana and Hangul have no spaces: each of their characters counts as a word.
_WORDS = re.compile("[^\u2e80-\U0010ffff]+|[\u2e80-\U0010ffff]")
# By how much a tokenizer's replacements may lengthen a text: twelve of "a" by "aaaa" would by 4 ** 12.
_GROWTH = 100


class Rows(NamedTuple):
    """Token ids of N rows, and types: 0 for the first text's tokens, 1 for the second's."""

    ids: list[list[int]]
    types: list[list[int]]


class Texts:
    """A bundle's tokenizer, from tokenizer.json at `place`; it truncates rows to `max_tokens`.

    Raises:
        InputError: The file is no tokenizer, or one that can make texts over 100 times longer.
    """

    def __init__(self, data: bytes, max_tokens: int, place: str) -> None:
        self._place = place
        self._max_tokens = max_tokens
        with library_errors(place, "expected a tokenizer", "; export again"):
            self._tokenizer = Tokenizer.from_buffer(data)
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(max_tokens)  # of a pair the longer side first
            state = json.loads(data)
            self._ascii = AsciiWords(state) if AsciiWords.fits(state) else None
            normalizer = self._tokenizer.normalizer
            if normalizer is not None and _growth(json.loads(normalizer.__getstate__())) > _GROWTH:
                raise _growing(place)
        # A template may name a text many times.
        if len(self._asked(["a"], None)[0][0]) > _GROWTH:
            raise _growing(place)

    def rows(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> Rows:
        """Tokenise N texts, or pairs, that `listed` has checked."""
        if self._ascii is None:
            found = self._asked(texts, text_pairs)
        elif (
            len(texts) == 1
            and text_pairs is None
            and (ids := self._ascii.ids(texts[0])) is not None
        ):
            ids = ids[: self._max_tokens]  # fast: a server asks row by row
            return Rows([ids], [[0] * len(ids)])
        else:
            found = self._quick(self._ascii, texts, text_pairs)
        return Rows([ids for ids, _ in found], [types for _, types in found])

    def words(self, text: str) -> list[str]:
        """Return a text's words as the tokenizer normalises and splits it, before any subwords."""
        normalizer, splitter = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
        text = text if normalizer is None else normalizer.normalize_str(text)
        parts = [(text, ())] if splitter is None else splitter.pre_tokenize_str(text)
        return [word for part, _ in parts for word in _WORDS.findall(part)]

    def _asked(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None
    ) -> list[tuple[list[int], list[int]]]:
        """Ask the tokenizer, which uses threads for a batch."""
        with (
            _halves_refused([*texts, *(text_pairs or ())]),
            library_errors(
                self._place, "expected a tokenizer that cuts these texts", "; export again"
            ),
        ):
            if len(texts) == 1:
                pair = None if text_pairs is None else text_pairs[0]
                rows = [self._tokenizer.encode(texts[0], pair)]
            else:
                pairs = zip(texts, text_pairs or (), strict=True)
                rows = self._tokenizer.encode_batch(list(texts if text_pairs is None else pairs))
        return [(row.ids, row.type_ids) for row in rows]

    def _quick(
        self, words: AsciiWords, texts: Sequence[str], text_pairs: Sequence[str] | None
    ) -> list[tuple[list[int], list[int]]]:
        """Do what can be done without the tokenizer, and ask it for the rest."""
        found: list[tuple[list[int], list[int]] | None] = []
        for row, text in enumerate(texts):
            first = words.ids(text)
            second = [] if text_pairs is None else words.ids(text_pairs[row])
            if first is None or second is None:
                found.append(None)
            elif text_pairs is None:
                ids = first[: self._max_tokens]
                found.append((ids, [0] * len(ids)))
            elif len(first) + len(second) <= self._max_tokens:
                found.append((first + second, [0] * len(first) + [1] * len(second)))
            else:  # the tokenizer truncates pairs
                found.append(None)
        left = [row for row, done in enumerate(found) if done is None]
        if left:
            pairs = None if text_pairs is None else [text_pairs[row] for row in left]
            asked = self._asked([texts[row] for row in left], pairs)
            for row, done in zip(left, asked, strict=True):
                found[row] = done
        return [done for done in found if done is not None]


def _growing(place: str) -> InputError:
    return InputError(
        f"{place}: it can make a text more than {_GROWTH} times longer; expected a tokenizer that distillkit export wrote"
    )


def _growth(step: Mapping[str, Any]) -> float:
    """Return by how much a normalizer's replacements lengthen a text, at most."""
    if step["type"] == "Sequence":
        return math.prod(map(_growth, step["normalizers"]))
    if step["type"] != "Replace":
        return 1
    # An expression may match between any two characters.
    old = step["pattern"].get("String")
    return max(1, len(step["content"]) / len(old)) if old else 1 + len(step["content"])


def listed(
    texts: Sequence[str], text_pairs: Sequence[str] | None = None
) -> tuple[list[str], list[str] | None]:
    """Return N texts, or pairs, as lists: a pandas Series counts by its index, not by place.

    Raises:
        InputError: Something given is no list of texts, or there are not as many second texts.
    """
    first = _listed("texts", texts)
    if text_pairs is None:
        return first, None
    second = _listed("text_pairs", text_pairs)
    if len(second) != len(first):
        raise InputError(
            f"text_pairs: {len(second)} for {len(first)} texts; expected one for each text"
        )
    return first, second


def _listed(name: str, texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise InputError(f"{name}: expected a list of texts, found one text; put it in a list")
    if isinstance(texts, Mapping) or getattr(texts, "ndim", 1) != 1:  # they yield their columns
        raise InputError(
            f"{name}: expected a list of texts, found a {type(texts).__name__}; give its column of texts"
        )
    found = list(texts)
    for row, text in enumerate(found):
        if not isinstance(text, str):
            raise InputError(f"{name}[{row}]: expected a text, found {type(text).__name__}")
    return found


def padded(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids, (B, T) int64, padded on the right, T >= 1, and lengths, (B,) int64."""
    lengths = np.array([len(row) for row in rows], np.int64)
    if len(rows) == 1 and rows[0]:  # fast: a server asks row by row
        return np.array(rows[0], np.int64)[None], lengths
    out = np.full((len(rows), max(int(lengths.max()), 1)), pad_id, np.int64)
    for place, row in zip(out, rows, strict=True):
        place[: len(row)] = row
    return out, lengths


@contextmanager
def _halves_refused(texts: Sequence[str]) -> Iterator[None]:
    """Name the text that no tokenizer reads, where one fails: half of a surrogate pair is no text."""
    try:
        yield
    except InputError:
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{text[:40]!r}: character {error.start + 1} is half of a surrogate pair"
                ) from None
        raise

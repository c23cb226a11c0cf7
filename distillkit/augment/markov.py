"""Texts written by a Markov chain over the words of the task's own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import regex

from distillkit.augment.method import RowsJob
from distillkit.data.content import texts_of
from distillkit.data.counter import below, draw, high, seed_key, threshold
from distillkit.data.words import CHARACTER_PATTERN, WORD_PATTERN, is_unsegmented

_SHARD = 2**14  # texts written together
_SEQUENCE = 5  # of the seed's numbers: 0 to 4 are those of variants, other rows and drawn texts
_END = 0  # the number of what stands between two texts


def write_chains(job: RowsJob) -> Iterator[pa.Table]:
    """Write new texts from the words of a task's own.

    Each word is one that follows the two before it somewhere in those texts or, with probability
    `markov.p_backoff`, the one before it; it comes with the white space that it has there. Text i
    is the same however many are wanted. Texts that grow longer than any original, or hold the mask
    word, are left out.

    Args:
        job: About 60 bytes a word of its texts are kept in memory.

    Yields:
        Tables with `text`.

    Source: Shannon 1948, A mathematical theory of communication, section 3: approximations to
    English by what follows a word.
    """
    if not job.wanted:
        return
    pattern = CHARACTER_PATTERN if is_unsegmented(job.sample) else WORD_PATTERN
    texts = (text for table in job.tables for text in texts_of(table)[0])
    chain = _Chain.of(texts, pattern)
    config, key = job.options.config, seed_key(job.options.seed, _SEQUENCE)
    for first in range(0, job.wanted, _SHARD):
        keys = draw(key, np.arange(first, min(first + _SHARD, job.wanted)))
        written = [text for text in chain.write(keys, config.markov.p_backoff) if text]
        yield pa.table(
            {"text": pa.array([t for t in written if config.mask not in t], pa.string())}
        )


@dataclass(frozen=True)
class _Places:
    """Places grouped by key."""

    order: np.ndarray  # (W,) int64, group by group
    first: np.ndarray  # (W,) int64: where in `order` a place's group begins
    count: np.ndarray  # (W,) int64: places of its group

    @classmethod
    def alike(cls, keys: np.ndarray) -> "_Places":
        """Group places by their keys, (W,) int64."""
        _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        return cls(np.argsort(group, kind="stable"), (ends - counts)[group], counts[group])

    def draw(self, at: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw for each of some places one like it, by a number (N,) uint64 each."""
        return self.order[self.first[at] + below(u, self.count[at])]


@dataclass(frozen=True)
class _Chain:
    """The words of some texts one after another, `_END` before each text and after the last.

    A chain stands at a place among them, and goes on behind any place with the same last words.
    """

    words: np.ndarray  # (W,) int64
    spoken: list[str]  # (W,) each with the white space before it
    longest: int  # words of a text
    by_one: _Places  # alike: the same word
    by_two: _Places  # alike: the same word after the same word

    @classmethod
    def of(cls, texts: Iterable[str], pattern: str) -> "_Chain":
        """Cut texts into words."""
        number_of, words, spoken, longest = {"": _END}, [_END], [""], 0
        for text in texts:
            before, end = len(words), 0
            for match in regex.finditer(pattern, text):
                words.append(number_of.setdefault(match.group(), len(number_of)))
                spoken.append(text[end : match.end()])
                end = match.end()
            longest = max(longest, len(words) - before)
            words.append(_END)
            spoken.append("")
        found = np.array(words)
        last = found[:-1]  # nothing follows the last end
        two = last.copy()
        two[1:] += last[:-1] * len(number_of)
        return cls(found, spoken, longest, _Places.alike(last), _Places.alike(two))

    def write(self, keys: np.ndarray, p_backoff: float) -> list[str]:
        """Write a text for each key, (N,) uint64; empty where it would be too long."""
        parts: list[list[str]] = [[] for _ in keys]
        going, at = np.arange(len(keys)), np.zeros(len(keys), np.int64)
        for step in range(self.longest + 1):
            which, where = (draw(keys[going], np.full(len(going), 2 * step + k)) for k in (0, 1))
            # A text begins as any of the originals does.
            after_one = (high(which) < threshold(p_backoff)) | (step == 0)
            at = np.where(after_one, self.by_one.draw(at, where), self.by_two.draw(at, where)) + 1
            on = self.words[at] != _END
            going, at = going[on], at[on]
            for number, place in zip(going.tolist(), at.tolist(), strict=True):
                parts[number].append(self.spoken[place])
        for number in going.tolist():
            parts[number].clear()
        return ["".join(words).strip() for words in parts]

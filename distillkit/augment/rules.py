"""The three rules of Tang et al. 2019 on flat arrays, and what all methods share."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from distillkit.augment.corpus import Block, Lexicon
from distillkit.data.counter import below, draw, high, threshold
from distillkit.recipe import AugmentConfig

# What happened to a variant, as bits of `Variants.fired`.
# OTHER is for methods that are not distillkit's own.
MASKED, REPLACED, CUT, NEIGHBOUR, SWAPPED, OTHER, SELF = 1, 2, 4, 8, 16, 32, 64
RULES = {
    MASKED: "mask",
    REPLACED: "pos",
    CUT: "ngram",
    NEIGHBOUR: "neighbour",
    SWAPPED: "swap",
    OTHER: "other",
    SELF: "self",  # the row is a text beside its own variant
}
# A variant's own sequence of random numbers: these first, then one for each word of its text.
_CUT_OR_NOT, _SPAN, FIRST_WORD = 0, 1, 2


@dataclass(frozen=True)
class Variants:
    """M new texts and how they came about."""

    texts: pa.StringArray
    fired: np.ndarray  # (M,) uint8: bits of RULES
    # (M,) lists of int32: positions, in words of the old text, of the words changed and kept
    changed: pa.ListArray
    start: np.ndarray  # (M,) int32: the words start to stop - 1 of the old text are kept
    stop: np.ndarray  # (M,) int32


class Variation(Protocol):
    """Makes variants of texts. Each variant depends on its text and key alone."""

    def __call__(self, block: Block, rows: np.ndarray, keys: np.ndarray) -> Variants:
        """Make variants.

        Args:
            block: Tagged texts.
            rows: Which text each variant is made from, (M,) int64; a text may come many times.
            keys: What each variant's random numbers are drawn from, (M,) uint64.
        """


class Rules:
    """Masking, part-of-speech-guided replacement and n-gram sampling.

    Args:
        lexicon: Of the whole corpus: replacements are drawn from it.
        config: Rates.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.2: X below p_mask masks the word, X in
    the next p_pos replaces it by one of its tag, drawn from the unigram distribution within the
    tag; then, with p_ng, one n-gram is kept, n uniform over 1 to 5, its start over all.
    """

    def __init__(self, lexicon: Lexicon, config: AugmentConfig) -> None:
        self.lexicon = lexicon
        rates = (threshold(p) for p in (config.p_mask, config.p_pos, config.p_ng))
        self.p_mask, self.p_pos, self.p_ng = rates
        self.max_ngram = config.max_ngram

    def __call__(self, block: Block, rows: np.ndarray, keys: np.ndarray) -> Variants:
        """Make one variant for each key."""
        words, source, offsets, start, stop, x = self.sample(block, rows, keys)
        length = block.lengths[rows]
        whole = (stop - start) == length
        gaps = block.gaps[source]
        # The spacing before an n-gram belongs to the words that went.
        first = offsets[:-1][(start > 0) & (stop > start)]
        gaps[first] = self.lexicon.empty
        tails = np.where(whole, block.tails[rows], self.lexicon.empty)
        texts = self.lexicon.write_out(gaps, words, offsets, tails)
        masked, touched = x < self.p_mask, x < self.p_mask + self.p_pos
        fired = np.where(whole, 0, CUT).astype(np.uint8)
        fired |= np.where(any_of(masked, offsets), MASKED, 0).astype(np.uint8)
        fired |= np.where(any_of(touched & ~masked, offsets), REPLACED, 0).astype(np.uint8)
        at = (source - np.repeat(block.offsets[rows], np.diff(offsets)))[touched]
        changed = lists_of(at, touched, offsets)
        return Variants(texts, fired, changed, start.astype(np.int32), stop.astype(np.int32))

    def sample(self, block: Block, rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, ...]:
        """Draw the variants as numbers of words, before they are written out.

        The n-gram is drawn first, because a word's own draw does not depend on the cut.

        Returns:
            Word numbers (W,), their places in the block (W,), offsets (M + 1,), start (M,), stop
            (M,), each word's X (W,) uint64.
        """
        length = block.lengths[rows]
        cut = high(draw(keys, np.full(len(keys), _CUT_OR_NOT))) < np.uint64(self.p_ng)
        u = draw(keys, np.full(len(keys), _SPAN))
        n = np.where(cut, np.minimum(below(u >> np.uint64(32), self.max_ngram) + 1, length), length)
        start = below(u, length - n + 1)
        offsets = np.concatenate([[0], np.cumsum(n)])
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - start, n)  # in the text
        source = place + np.repeat(block.offsets[rows], n)  # in the block
        u = draw(np.repeat(keys, n), place + FIRST_WORD)
        x = u >> np.uint64(32)
        words = block.words[source]
        words[x < self.p_mask] = self.lexicon.mask
        swapped = np.flatnonzero((x >= self.p_mask) & (x < self.p_mask + self.p_pos))
        words[swapped] = self.lexicon.draw_words(block.tags[source[swapped]], u[swapped])
        return words, source, offsets, start, start + n, x


def any_of(flags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Say for each list whether any of its flags is set, (M,) bool."""
    total = np.concatenate([[0], np.cumsum(flags)])
    return total[offsets[1:]] > total[offsets[:-1]]


def lists_of(values: np.ndarray, flags: np.ndarray, offsets: np.ndarray) -> pa.ListArray:
    """Gather the values of flagged elements, in order, into the M lists that `offsets` bounds."""
    total = np.concatenate([[0], np.cumsum(flags)])
    return pa.ListArray.from_arrays(
        pa.array(total[offsets].astype(np.int32)), pa.array(values.astype(np.int32))
    )

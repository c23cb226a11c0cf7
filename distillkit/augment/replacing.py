"""Whole texts with some words replaced: what infilling and nearest neighbours share."""

import numpy as np

from distillkit.augment.corpus import Block, Lexicon
from distillkit.augment.rules import FIRST_WORD, Variants, any_of, lists_of
from distillkit.data.counter import draw


def word_draws(
    block: Block, rows: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a number for every word of some texts.

    Returns:
        Each word's place in the block, (W,) int64; offsets, (M + 1,) int64; each word's number,
        (W,) uint64.
    """
    n = block.lengths[rows]
    offsets = np.concatenate([[0], np.cumsum(n)])
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], n)  # in the text
    source = place + np.repeat(block.offsets[rows], n)
    return source, offsets, draw(np.repeat(keys, n), place + FIRST_WORD)


def with_words(
    lexicon: Lexicon,
    block: Block,
    rows: np.ndarray,
    source: np.ndarray,
    offsets: np.ndarray,
    words: np.ndarray,
    changed: np.ndarray,
    bit: int,
) -> Variants:
    """Write whole texts with other words, each in the old word's place and spacing.

    Args:
        lexicon: What the numbers of words mean.
        block: Tagged texts.
        rows: Which text each variant is made from, (M,) int64.
        source: As `word_draws` returns it.
        offsets: As `word_draws` returns it.
        words: The new words, (W,) int32.
        changed: Which of them are new, (W,) bool.
        bit: Of `rules.RULES`, set where a variant has a new word.
    """
    length = block.lengths[rows].astype(np.int32)
    texts = lexicon.write_out(block.gaps[source], words, offsets, block.tails[rows])
    fired = np.where(any_of(changed, offsets), bit, 0).astype(np.uint8)
    at = source - np.repeat(block.offsets[rows], np.diff(offsets))
    places = lists_of(at[changed], changed, offsets)
    return Variants(texts, fired, places, np.zeros_like(length), length)

"""Words replaced by their nearest neighbours among word vectors."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from distillkit.augment.corpus import Block, Lexicon
from distillkit.augment.rules import FIRST_WORD, NEIGHBOUR, Variants, any_of, lists_of
from distillkit.data.checked import read_array, write_array
from distillkit.data.counter import below, draw, threshold
from distillkit.recipe import NeighboursConfig

# Words in, (V, H) out; zeros where there is no vector.
VectorsOfWords = Callable[[Sequence[str]], Tensor]
_PRODUCT_BYTES = 2**26  # of the cosines that are in memory together


class Neighbours:
    """Replaces each word, with probability p, by one of its k nearest neighbours, all alike.

    Args:
        lexicon: Of the whole corpus.
        config: Rates.
        table: What `prepare_neighbours` wrote.

    Source: Jiao et al. 2020 (arXiv 1909.10351), section 3.2 and algorithm 1: p 0.4, k 15.
    """

    def __init__(self, lexicon: Lexicon, config: NeighboursConfig, table: Path) -> None:
        self.lexicon, self.p = lexicon, threshold(config.p)
        self.table = read_array(table)

    def __call__(self, block: Block, rows: np.ndarray, keys: np.ndarray) -> Variants:
        """Make one variant for each key."""
        n = block.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(n)])
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], n)  # in the text
        source = place + np.repeat(block.offsets[rows], n)  # in the block
        u = draw(np.repeat(keys, n), place + FIRST_WORD)
        words = block.words[source]
        chosen = ((u >> np.uint64(32)) < self.p) & (self.table[words, 0] >= 0)
        words[chosen] = self.table[words[chosen], below(u[chosen], self.table.shape[1])]
        texts = self.lexicon.write_out(block.gaps[source], words, offsets, block.tails[rows])
        fired = np.where(any_of(chosen, offsets), NEIGHBOUR, 0).astype(np.uint8)
        changed, length = lists_of(place[chosen], chosen, offsets), n.astype(np.int32)
        return Variants(texts, fired, changed, np.zeros_like(length), length)


def prepare_neighbours(lexicon: Lexicon, vectors: VectorsOfWords, k: int, target: Path) -> None:
    """Find every word's nearest neighbours among the lexicon's words, by cosine.

    Signs, numbers and words without a vector have no neighbours and are never chosen as one.

    Args:
        lexicon: Of the whole corpus.
        vectors: Gives words their vectors.
        k: Neighbours a word; fewer where there are not so many other words.
        target: File to write, for `Neighbours`: (S, k) int32, row by row for the lexicon's S
            strings the numbers of the neighbours, -1 for what has none.
    """
    numbers = np.unique(lexicon.entries)
    words = lexicon.strings.take(numbers).to_pylist()
    lettered = np.array([any(character.isalpha() for character in word) for word in words], bool)
    numbers = numbers[lettered]
    words = lexicon.strings.take(numbers).to_pylist()
    found = vectors(words).float() if words else torch.zeros(0, 1)
    norms = found.norm(dim=1)
    known = torch.nonzero(norms > 0).ravel()
    unit, numbers = found[known] / norms[known, None], numbers[known.numpy()]
    k = min(k, max(len(known) - 1, 1))
    table = np.full((len(lexicon.strings), k), -1, np.int32)
    if len(known) > 1:
        for rows in torch.arange(len(known)).split(max(1, _PRODUCT_BYTES // (4 * len(known)))):
            cosines = unit[rows] @ unit.T  # (B, V)
            cosines[torch.arange(len(rows)), rows] = -2  # a word is no neighbour of its own
            table[numbers[rows.numpy()]] = numbers[cosines.topk(k, dim=1).indices.numpy()]
    write_array(table, target)

"""Tokenised rows that know their words: what an encoder is pre-trained on."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from distillkit.data.batches import Encoded

SPECIAL, FIRST, LATER = range(3)  # of `words`
FOLLOWS, SWAPPED, ELSEWHERE = range(3)  # of `order`


@dataclass(frozen=True)
class TextRows(Encoded):
    """N tokenised rows without padding, and where their words begin.

    `words` is flat as `ids` is, int8: SPECIAL (0) for a special token, which nothing may hide,
    FIRST (1) for the first token of a word, LATER (2) for one that goes on with it. `order` says of
    each row, (N,) int8, whether its second half FOLLOWS (0) the first, whether the two are SWAPPED
    (1), or whether the second is from ELSEWHERE (2), another document; None where rows have no
    halves.
    """

    words: Tensor
    order: Tensor | None = None

    def _columns(self) -> Iterator[tuple[str, Tensor, int]]:
        """Yield also the words."""
        yield from super()._columns()
        yield "words", self.words, SPECIAL

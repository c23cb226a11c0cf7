"""Tokenised rows that know their words: what an encoder is pre-trained on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from distillkit.data.batches import Encoded

SPECIAL, FIRST, LATER = range(3)  # of `words`
FOLLOWS, SWAPPED, ELSEWHERE = range(3)  # of `order`


@dataclass(frozen=True)
class TextRows(Encoded):
    """N tokenised rows without padding, and where their words begin.

    `words` is flat as `ids` is, int8: SPECIAL (0) for a special token, which nothing may hide,
    FIRST (1) for the first token of a word, LATER (2) for one that goes on with it. `columns` are
    further flat columns, by name. `order` says of each row, (N,) int8, whether its second half
    FOLLOWS (0) the first, whether the two are SWAPPED (1), or whether the second is from ELSEWHERE
    (2), another document; None where rows have no halves.
    """

    words: Tensor
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    order: Tensor | None = None

    def to(self, device: torch.device) -> "TextRows":
        """Return the same rows on another device."""
        return replace(
            self,
            ids=self.ids.to(device),
            types=None if self.types is None else self.types.to(device),
            offsets=self.offsets.to(device),
            words=self.words.to(device),
            columns={name: flat.to(device) for name, flat in self.columns.items()},
            order=None if self.order is None else self.order.to(device),
        )

    def _columns(self) -> Iterator[tuple[str, Tensor, int]]:
        """Yield also the words and the further columns; those of floats are float32 in a batch."""
        yield from super()._columns()
        yield "words", self.words, SPECIAL
        for name, flat in self.columns.items():
            yield name, flat, 0

"""Texts in which words stand, for what asks about words there and knows nothing of who cut them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Contexts:
    """Texts and the words that are asked about.

    Attributes:
        texts: N texts.
        tokenizer: The transformers fast tokenizer that cuts them into words.
        ids: V of its ids, those of the words.
        mask: The transfer set's mask word; empty: there is none.
    """

    texts: Sequence[str]
    tokenizer: Any
    ids: Sequence[int]
    mask: str = ""

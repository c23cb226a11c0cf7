"""Texts to the arrays that a graph takes, by the tokenizer of the bundle alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer


@dataclass(frozen=True)
class Rows:
    """N tokenised rows.

    Attributes:
        ids: Token ids, a list a row.
        types: 0 for the first text's tokens, 1 for the second's, a list a row.
    """

    ids: list[list[int]]
    types: list[list[int]]


class Texts:
    """A bundle's tokenizer.

    Args:
        data: tokenizer.json.
        max_tokens: Where rows are truncated.
    """

    def __init__(self, data: bytes, max_tokens: int) -> None:
        self._tokenizer = Tokenizer.from_buffer(data)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)  # of a pair the longer side first

    def rows(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> Rows:
        """Tokenise N texts, or pairs."""
        if len(texts) == 1:  # at once; a batch is handed to other threads
            found = [self._tokenizer.encode(texts[0], None if text_pairs is None else text_pairs[0])]
        else:
            pairs = list(texts) if text_pairs is None else list(zip(texts, text_pairs, strict=True))
            found = self._tokenizer.encode_batch(pairs)
        return Rows([row.ids for row in found], [row.type_ids for row in found])


def padded(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids, (B, T) int64, padded on the right, T at least 1; and tokens a row, (B,) int64."""
    lengths = np.array([len(row) for row in rows], np.int64)
    if len(rows) == 1 and rows[0]:  # the way of a server that answers at once
        return np.array([rows[0]], np.int64), lengths
    out = np.full((len(rows), max(int(lengths.max()), 1)), pad_id, np.int64)
    for place, row in zip(out, rows, strict=True):
        place[: len(row)] = row
    return out, lengths

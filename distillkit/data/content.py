"""What rows say: their texts, and a key of these."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import pyarrow as pa

KEY_BYTES = 16
HASH = np.dtype([("high", "u8"), ("low", "u8")])
_BLOCK = 8192


class Texts(Sequence[str]):
    """Columns of text, one after the other; Python has only the strings that are asked for.

    Args:
        *columns: As tables have them.
    """

    def __init__(self, *columns: pa.ChunkedArray) -> None:
        self._column = pa.chunked_array(
            [chunk for column in columns for chunk in column.chunks], pa.string()
        )

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return self._column[place].to_pylist()
        return self._column[int(place)].as_py()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self[start : start + _BLOCK]


def texts_of(table: pa.Table) -> tuple[list[str], list[str] | None]:
    """Return the texts and, for pairs, the second texts."""
    pairs = table["text_pair"].to_pylist() if "text_pair" in table.column_names else None
    return table["text"].to_pylist(), pairs


def texts_alone(table: pa.Table) -> pa.Table:
    """Return a canonical table's columns of text alone."""
    return table.select([name for name in ("text", "text_pair") if name in table.column_names])


def paired(texts: Sequence[str], text_pairs: Sequence[str] | None) -> list[tuple[str, str | None]]:
    """Return each row's (text, second text), the second None where there are no pairs."""
    seconds: Sequence[str | None] = [None] * len(texts) if text_pairs is None else text_pairs
    return list(zip(texts, seconds, strict=True))


def content_keys(texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> list[bytes]:
    """Hash each row's content: what logits are joined by.

    Args:
        texts: N texts.
        text_pairs: N second texts, or None.

    Returns:
        N keys of 16 bytes: BLAKE2b of the UTF-8 text and, for a pair, of the length of the first
            text, and both texts.
    """
    if text_pairs is None:
        return [hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest() for text in texts]
    # The length keeps ("ab", "c") apart from ("a", "bc").
    return [
        hashlib.blake2b(f"{len(a)}\0{a}{b}".encode(), digest_size=KEY_BYTES).digest()
        for a, b in zip(texts, text_pairs, strict=True)
    ]


def content_hashes(texts: pa.Array, text_pairs: pa.Array | None = None) -> np.ndarray:
    """Hash each row's content, as `content_keys` does, into two numbers.

    Args:
        texts: N strings.
        text_pairs: N strings, or None.

    Returns:
        (N,) of the fields `high` and `low`, uint64: the key's 16 bytes, big end first.
    """
    keys = content_keys(texts.to_pylist(), None if text_pairs is None else text_pairs.to_pylist())
    halves = np.frombuffer(b"".join(keys), dtype=">u8").reshape(-1, 2)
    out = np.empty(len(halves), dtype=HASH)
    out["high"], out["low"] = halves[:, 0], halves[:, 1]
    return out

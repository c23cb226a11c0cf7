"""Word pieces by cache: BERT's tokenizer splits each distinct word once, numpy joins rows.

BERT's normaliser and pre-tokeniser look at no character beyond a space, so a text's pieces are
those of its space-separated chunks, one after the other. A transfer set has few distinct chunks in
its many rows.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Chunks remembered before all are forgotten: text without spaces would fill the memory.
_MOST_CHUNKS = 1 << 18


class WordPieces:
    """A word-piece tokenizer that remembers the pieces of every chunk it has seen.

    Args:
        tokenizer: One that `gathers` says yes to.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._backend = backend_of(tokenizer)
        self._cls, self._sep = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
        self._forget()

    def _forget(self) -> None:
        self._place: dict[str, int] = {}  # chunk -> its number
        self._ids = np.empty(0, np.int32)  # pieces of all chunks, in the order of their numbers
        self._start, self._count = np.empty(0, np.int64), np.empty(0, np.int64)

    def rows(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None, max_tokens: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokenise rows as the tokenizer itself does, special tokens included.

        Args:
            texts: N texts.
            text_pairs: N second texts, or None.
            max_tokens: Longer rows are truncated on the right, of a pair the longer side first; 4
                at least.

        Returns:
            Ids and token types of all rows, one after the other, int32, and tokens a row, (N,)
            int64.
        """
        if len(self._place) > _MOST_CHUNKS:
            self._forget()
        sides = [
            self._pieces(side) for side in ([texts] if text_pairs is None else [texts, text_pairs])
        ]
        kept = _truncated([np.diff(offsets) for _, offsets in sides], max_tokens - len(sides) - 1)
        lengths = np.sum(kept, axis=0) + len(kept) + 1  # [CLS] a [SEP], or [CLS] a [SEP] b [SEP]
        at = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        ids, types = np.empty(total, np.int32), np.zeros(total, np.int32)
        ids[at] = self._cls
        at = at + 1
        for number, ((flat, offsets), count) in enumerate(zip(sides, kept, strict=True)):
            target = ranges(at, count)
            ids[target] = flat[ranges(offsets[:-1], count)]
            types[target] = number
            at = at + count
            ids[at], types[at] = self._sep, number
            at = at + 1
        return ids, types, lengths

    def _pieces(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the pieces of all texts in one array, and where each text begins (N + 1)."""
        lists = pc.split_pattern(pa.array(texts, pa.large_string()), pattern=" ")
        chunks = lists.flatten().dictionary_encode()
        number = self._numbers(chunks.dictionary.to_pylist())[chunks.indices.to_numpy()]
        count = self._count[number]
        ends = np.concatenate([[0], np.cumsum(count)])
        return self._ids[ranges(self._start[number], count)], ends[lists.offsets.to_numpy()]

    def _numbers(self, chunks: list[str]) -> np.ndarray:
        """Return each chunk's number, asking the tokenizer for those that are new."""
        new = [chunk for chunk in chunks if chunk not in self._place]
        if new:
            found = [
                encoding.ids
                for encoding in self._backend.encode_batch_fast(new, add_special_tokens=False)
            ]
            self._place.update(
                zip(new, range(len(self._place), len(self._place) + len(new)), strict=True)
            )
            self._ids = np.concatenate([self._ids, *(np.array(ids, np.int32) for ids in found)])
            self._count = np.concatenate([self._count, [len(ids) for ids in found]])
            self._start = np.cumsum(self._count) - self._count
        return np.fromiter((self._place[chunk] for chunk in chunks), np.int64, len(chunks))


def backend_of(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer's backend that neither truncates nor pads.

    A copy: both are a state of the backend, and other callers set them.
    """
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    return backend


@dataclass(frozen=True)
class Glue:
    """The special tokens around a row's parts, as (id, token type), and each part's token type."""

    around: tuple[tuple[tuple[int, int], ...], ...]
    types: tuple[int, ...]

    @property
    def size(self) -> int:
        """Special tokens a row."""
        return sum(map(len, self.around))

    @staticmethod
    def of(backend: Any, parts: int) -> "Glue":
        """Ask a tokenizer's backend how it joins one text, or two."""
        found = backend.encode(*["a"] * parts)
        around: list[list[tuple[int, int]]] = [[]]
        types: list[int] = []
        for token, kind, part in zip(found.ids, found.type_ids, found.sequence_ids, strict=True):
            if part is None:
                around[-1].append((token, kind))
            elif part == len(types):
                around.append([])
                types.append(kind)
        return Glue(tuple(map(tuple, around)), tuple(types))


def gathers(tokenizer: Any, max_tokens: int) -> bool:
    """Say whether rows can be joined from words: BERT's pipeline never looks across a space."""
    if not tokenizer.is_fast or tokenizer.truncation_side != "right" or max_tokens < 4:
        return False
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    kinds = [(backend[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    frames = [Glue((((cls, 0),), ((sep, 0),)), (0,))]  # [CLS] a [SEP]
    frames.append(Glue((((cls, 0),), ((sep, 0),), ((sep, 1),)), (0, 1)))  # [CLS] a [SEP] b [SEP]
    if kinds != ["BertNormalizer", "BertPreTokenizer", "WordPiece"] or frames != [
        Glue.of(backend_of(tokenizer), parts) for parts in (1, 2)
    ]:
        return False
    return not any(
        token["lstrip"] or token["rstrip"] or token["single_word"] or " " in token["content"]
        for token in backend["added_tokens"]
    )


def _truncated(counts: list[np.ndarray], room: int) -> list[np.ndarray]:
    """Return how many pieces each side keeps where `room` are left beside the special tokens."""
    if len(counts) == 1:
        return [np.minimum(counts[0], room)]
    first, second = counts
    short, long = np.minimum(first, second), np.maximum(first, second)
    # The longer side gives way until both are equal, then both do; an odd piece stays with the
    # longer.
    long_kept = np.minimum(long, np.maximum(room - short, room - room // 2))
    short_kept = np.minimum(short, room - long_kept)
    swap = first > second
    return [np.where(swap, long_kept, short_kept), np.where(swap, short_kept, long_kept)]


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `range(start, start + count)` of every pair."""
    total = int(counts.sum())
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(total)

"""Tokenised documents cut into rows: packed, by sentence, by document, or in pairs of runs."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from distillkit.data.pieces import Glue, ranges
from distillkit.data.rows import ELSEWHERE, FIRST, FOLLOWS, LATER, SPECIAL, SWAPPED

_ROWS = 8192  # joined together

# Numbers of the first token and of the one after the last of each of the K parts of N rows, (N, K,
# 2) int64; and what `TextRows.order` is of each, (N,) int8, where rows have two parts.
Spans = tuple[np.ndarray, np.ndarray | None]
_Span = tuple[int, int]
_Row = tuple[tuple[_Span, ...], int]


class GrowingArray:
    """A .npy file of one dimension that is written piece by piece."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self._dtype, self._length = np.dtype(dtype), 0
        self._stream = path.open("wb")
        self._head()

    def _head(self) -> None:
        # numpy's header has room for a first dimension that grows, so it is rewritten in place.
        kind, shape = np.lib.format.dtype_to_descr(self._dtype), (self._length,)
        head = {"descr": kind, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._stream, head)

    def append(self, values: np.ndarray) -> None:
        """Write further values at the end."""
        self._stream.write(values.astype(self._dtype, copy=False).tobytes())
        self._length += len(values)

    def __enter__(self) -> "GrowingArray":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.seek(0)
        self._head()
        self._stream.close()


class GrowingOffsets(GrowingArray):
    """A .npy file of offsets, from 0, to which lengths are appended."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, np.int64)
        self._end = 0
        super().append(np.zeros(1, np.int64))

    def append(self, values: np.ndarray) -> None:
        """Write where what has these lengths ends."""
        ends = np.cumsum(values) + self._end
        super().append(ends)
        self._end = int(ends[-1]) if len(ends) else self._end


@dataclass(frozen=True)
class Pieces:
    """D tokenised documents without special tokens, in U units, in files that memory maps.

    A unit is a sentence or a whole document: unit u is `ids[units[u]:units[u + 1]]`, document d has
    the units `documents[d]` to `documents[d + 1] - 1`. `words` is that of all tokens; equal
    documents have equal `hashes`.
    """

    ids: np.ndarray
    words: np.ndarray
    units: np.ndarray
    documents: np.ndarray
    hashes: np.ndarray

    @staticmethod
    @contextmanager
    def writer(folder: Path) -> Iterator[list[GrowingArray]]:
        """Yield files of the fields, in their order; `units` and `documents` take lengths."""
        folder.mkdir()
        files = [
            GrowingArray(folder / "ids.npy", np.int32),
            GrowingArray(folder / "words.npy", np.int8),
            GrowingOffsets(folder / "units.npy"),
            GrowingOffsets(folder / "documents.npy"),
            GrowingArray(folder / "hashes.npy", np.uint64),
        ]
        with ExitStack() as stack:
            yield [stack.enter_context(file) for file in files]

    @staticmethod
    def read(folder: Path) -> "Pieces":
        """Read what `writer` wrote."""
        return Pieces(*(mapped(folder / f"{field.name}.npy") for field in fields(Pieces)))


def mapped(path: Path) -> np.ndarray:
    """Map a .npy file into memory; what is written to the array stays out of the file.

    Raises:
        OSError: There is no such file.
        ValueError: It is no whole .npy file.
    """
    try:
        # Copy on write: torch warns of arrays that cannot be written.
        return np.asarray(np.load(path, mmap_mode="c"))
    except (EOFError, ValueError) as error:
        # Nothing can be mapped of an array of no values.
        values = np.load(path) if path.stat().st_size else None
        if values is None or values.size:
            raise ValueError(f"{path}: {error}") from None
        return values


def joined(
    pieces: Pieces, spans: np.ndarray, glue: Glue
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Put rows together from their parts and the special tokens around them.

    Returns:
        Ids, int32, words and token types, int8, of all rows, one after the other; and tokens a row,
        (N,) int64.
    """
    counts = spans[..., 1] - spans[..., 0]  # (N, K)
    lengths = counts.sum(1) + glue.size
    at = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    ids, types = np.empty(total, np.int32), np.zeros(total, np.int8)
    words = np.full(total, SPECIAL, np.int8)
    for number, special in enumerate(glue.around):
        for token, kind in special:
            ids[at], types[at] = token, kind
            at = at + 1
        if number < len(glue.types):
            target = ranges(at, counts[:, number])
            source = ranges(spans[:, number, 0], counts[:, number])
            ids[target], words[target] = pieces.ids[source], pieces.words[source]
            types[target] = glue.types[number]
            at = at + counts[:, number]
    # The rest of a word that a cut has parted begins as a word does.
    words[1:][(words[1:] == LATER) & (words[:-1] == SPECIAL)] = FIRST
    return ids, words, types, lengths


def cut(
    pieces: Pieces, mode: str, room: int, separator: int, kinds: Sequence[bool], seed: Sequence[int]
) -> Iterator[Spans]:
    """Cut documents into rows.

    Args:
        pieces: The documents; of `packed` with the separator as the last token of each.
        mode: `packed`, `sentences`, `documents` or `pairs`.
        room: Tokens a row, special ones not counted.
        separator: Id of the separator.
        kinds: Of `pairs`: whether there are second runs from another document, which needs two
            different texts, and swapped ones.
        seed: Draws the pairs.
    """
    if mode in ("sentences", "documents"):
        for start in range(0, len(pieces.units) - 1, _ROWS):
            units = pieces.units[start : start + _ROWS + 1]
            yield np.stack([units[:-1], np.minimum(units[1:], units[:-1] + room)], 1)[:, None], None
        return
    pairs = mode == "pairs"
    rows = _pairs(pieces, room, kinds, seed) if pairs else _packed(pieces, room, separator)
    while block := list(islice(rows, _ROWS)):
        order = np.array([kind for _, kind in block], np.int8) if pairs else None
        yield np.array([spans for spans, _ in block], np.int64), order


def _packed(pieces: Pieces, room: int, separator: int) -> Iterator[_Row]:
    ids, words, total = pieces.ids, pieces.words, len(pieces.ids)
    start = 0
    while start < total:
        stop = min(start + room, total)
        if stop < total and words[stop] == LATER:
            begins = np.flatnonzero(words[start + 1 : stop] != LATER)
            # a word longer than a row is cut
            stop = start + 1 + int(begins[-1]) if len(begins) else stop
        end = stop
        # A row ends in a separator of its own.
        while end > start and words[end - 1] == SPECIAL and ids[end - 1] == separator:
            end -= 1
        while stop < total and words[stop] == SPECIAL and ids[stop] == separator:
            stop += 1
        if end > start:
            yield ((start, end),), FOLLOWS
        start = stop


def _pairs(pieces: Pieces, room: int, kinds: Sequence[bool], seed: Sequence[int]) -> Iterator[_Row]:
    elsewhere, swapped = kinds
    random = np.random.default_rng(seed)
    drawn = [FOLLOWS, *([SWAPPED] if swapped else []), *([ELSEWHERE] if elsewhere else [])]
    for number, (begin, end) in enumerate(pairwise(pieces.documents)):
        units = pieces.units[begin : end + 1]  # where each sentence begins, and the end
        first, count = 0, len(units) - 1
        while count - first >= 2:
            last = min(max(first + _fitting_units(units[first:], room), first + 2), count)
            if count - last == 1:  # one sentence would be left, and make no pair
                last += 1 if last - first == 2 else -1
            middle = int(random.integers(first + 1, last))
            kind = drawn[int(random.integers(len(drawn)))]
            a, b = (int(units[first]), int(units[middle])), (int(units[middle]), int(units[last]))
            if kind == ELSEWHERE:
                b = _other(pieces, number, room - (a[1] - a[0]), random)
                last = middle  # what has not been read is read next
            a, b = _fitting(a, b, room)
            yield (b, a) if kind == SWAPPED else (a, b), kind
            first = last


def _fitting_units(units: np.ndarray, room: int) -> int:
    """Count the units from the first that fit in a room of tokens together."""
    return int(np.searchsorted(units, units[0] + room, side="right")) - 1


def _other(pieces: Pieces, number: int, room: int, random: np.random.Generator) -> _Span:
    """Draw a document of another text and, from a drawn sentence on, as many as there is room for.

    At least one. They are whole, like those of a half that follows: a cut would tell the two apart.
    """
    other = number
    while pieces.hashes[other] == pieces.hashes[number]:
        other = int(random.integers(len(pieces.hashes)))
    first, end = int(pieces.documents[other]), int(pieces.documents[other + 1])
    units = pieces.units[int(random.integers(first, end)) : end + 1]
    return int(units[0]), int(units[max(_fitting_units(units, room), 1)])


def _fitting(a: _Span, b: _Span, room: int) -> tuple[_Span, _Span]:
    """Cut two runs to fit, the longer first, at the ends where they do not meet."""
    long_a, long_b = a[1] - a[0], b[1] - b[0]
    keep_a = min(long_a, max(room - long_b, room - room // 2))
    keep_b = min(long_b, room - keep_a)
    return (a[1] - keep_a, a[1]), (b[0], b[0] + keep_b)

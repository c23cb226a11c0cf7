"""Tokenised documents cut into rows: packed end to end, by sentence, by document, or two runs of sentences a row."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distillkit.data.pieces import ranges
from distillkit.data.rows import ELSEWHERE, FIRST, FOLLOWS, LATER, SPECIAL, SWAPPED

_ROWS = 8192  # joined together

# Numbers of the first token and of the one after the last of each of the K parts of N rows, (N, K,
# 2) int64; and what `TextRows.order` is of each, (N,) int8, where rows have two parts.
Spans = tuple[np.ndarray, np.ndarray | None]


class GrowingArray:
    """A .npy file of one dimension that is written piece by piece."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self._dtype, self._length = np.dtype(dtype), 0
        self._stream = path.open("wb")
        self._head()

    def _head(self) -> None:
        # numpy leaves room in the header for a first dimension that grows, so that it can be
        # written anew in its place.
        head = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._length,),
        }
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


class GrowingOffsets:
    """A .npy file of offsets, to which lengths are appended."""

    def __init__(self, array: GrowingArray) -> None:
        self._array, self._end = array, 0
        array.append(np.zeros(1, np.int64))

    def append(self, lengths: np.ndarray) -> None:
        """Write where what has these lengths ends."""
        ends = np.cumsum(lengths) + self._end
        self._array.append(ends)
        self._end = int(ends[-1]) if len(ends) else self._end


@dataclass(frozen=True)
class Pieces:
    """D tokenised documents without special tokens, in U units (sentences, or whole documents), in files that memory maps.

    `ids` and `words` are those of all tokens; unit u is `ids[units[u]:units[u + 1]]`, document d
    has the units `documents[d]` to `documents[d + 1] - 1`, and equal documents have equal `hashes`.
    """

    ids: np.ndarray
    words: np.ndarray
    units: np.ndarray
    documents: np.ndarray
    hashes: np.ndarray

    @staticmethod
    @contextmanager
    def writer(folder: Path) -> Iterator[Callable[..., None]]:
        """Yield what writes further documents: ids, words, tokens a unit, units a document, hashes."""
        folder.mkdir()
        kinds = (
            ("ids", np.int32),
            ("words", np.int8),
            ("units", np.int64),
            ("documents", np.int64),
            ("hashes", np.uint64),
        )
        with ExitStack() as stack:
            arrays = [
                stack.enter_context(GrowingArray(folder / f"{name}.npy", kind))
                for name, kind in kinds
            ]
            ids, words, units, documents, hashes = arrays
            into = [
                ids.append,
                words.append,
                GrowingOffsets(units).append,
                GrowingOffsets(documents).append,
                hashes.append,
            ]

            def write(*values: np.ndarray) -> None:
                for append, more in zip(into, values, strict=True):
                    append(more)

            yield write

    @staticmethod
    def read(folder: Path) -> "Pieces":
        """Read what `writer` wrote."""
        names = ("ids", "words", "units", "documents", "hashes")
        return Pieces(*(mapped(folder / f"{name}.npy") for name in names))


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


@dataclass(frozen=True)
class Glue:
    """The special tokens around the parts of a row, as (id, token type), and the token type of each part."""

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
    ids, words, types = (
        np.empty(total, np.int32),
        np.full(total, SPECIAL, np.int8),
        np.zeros(total, np.int8),
    )
    for number, special in enumerate(glue.around):
        for token, kind in special:
            ids[at], types[at] = token, kind
            at = at + 1
        if number < len(glue.types):
            target, source = (
                ranges(at, counts[:, number]),
                ranges(spans[:, number, 0], counts[:, number]),
            )
            ids[target], words[target], types[target] = (
                pieces.ids[source],
                pieces.words[source],
                glue.types[number],
            )
            at = at + counts[:, number]
    # What is left of a word that a cut has parted begins as a word does.
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
        kinds: Of `pairs`: whether there are second runs from another document, of which two with
            different texts are needed, and swapped ones.
        seed: Draws the pairs.
    """
    if mode in ("sentences", "documents"):
        for start in range(0, len(pieces.units) - 1, _ROWS):
            units = pieces.units[start : start + _ROWS + 1]
            yield np.stack([units[:-1], np.minimum(units[1:], units[:-1] + room)], 1)[:, None], None
        return
    found = (
        _pairs(pieces, room, kinds, seed) if mode == "pairs" else _packed(pieces, room, separator)
    )
    waiting: list[tuple[tuple[tuple[int, int], ...], int]] = []
    for row in found:
        waiting.append(row)
        if len(waiting) == _ROWS:
            yield _stacked(waiting, mode)
            waiting = []
    if waiting:
        yield _stacked(waiting, mode)


def _stacked(rows: list[tuple[tuple[tuple[int, int], ...], int]], mode: str) -> Spans:
    order = np.array([kind for _, kind in rows], np.int8) if mode == "pairs" else None
    return np.array([spans for spans, _ in rows], np.int64), order


def _packed(
    pieces: Pieces, room: int, separator: int
) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
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


def _pairs(
    pieces: Pieces, room: int, kinds: Sequence[bool], seed: Sequence[int]
) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
    elsewhere, swapped = kinds
    random = np.random.default_rng(seed)
    drawn = [FOLLOWS, *([SWAPPED] if swapped else []), *([ELSEWHERE] if elsewhere else [])]
    for number in range(len(pieces.documents) - 1):
        units = pieces.units[
            pieces.documents[number] : pieces.documents[number + 1] + 1
        ]  # where each sentence begins, and the end
        first, count = 0, len(units) - 1
        while count - first >= 2:
            last = min(
                max(int(np.searchsorted(units, units[first] + room, side="right")) - 1, first + 2),
                count,
            )
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


def _other(pieces: Pieces, number: int, room: int, random: np.random.Generator) -> tuple[int, int]:
    """Draw a document of another text, and return as many of its sentences, from some one on, as there is room for; one at least.

    They are whole, as are those of a half that follows: else it would be told from the cut what
    does not.
    """
    other = number
    while pieces.hashes[other] == pieces.hashes[number]:
        other = int(random.integers(len(pieces.hashes)))
    first, end = int(pieces.documents[other]), int(pieces.documents[other + 1])
    units = pieces.units[int(random.integers(first, end)) : end + 1]
    count = max(int(np.searchsorted(units, units[0] + room, side="right")) - 1, 1)
    return int(units[0]), int(units[count])


def _fitting(
    a: tuple[int, int], b: tuple[int, int], room: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Cut two runs to what there is room for, the longer first, at the ends where they do not meet."""
    long_a, long_b = a[1] - a[0], b[1] - b[0]
    keep_a = min(long_a, max(room - long_b, room - room // 2))
    keep_b = min(long_b, room - keep_a)
    return (a[1] - keep_a, a[1]), (b[0], b[0] + keep_b)

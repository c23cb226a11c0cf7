"""A corpus as flat arrays: tagged texts, their lexicon, and writing changed texts out again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distillkit.data.checked import read_arrow, write_arrow
from distillkit.data.counter import below
from distillkit.errors import InputError

# A text's (word, tag) pairs.
TaggedText = Sequence[tuple[str, str]]
_TEXT = pa.dictionary(pa.int32(), pa.string())
# A text is "".join(gap + word ...) + tail, byte for byte.
TAGGED = pa.schema(
    [("word", pa.list_(_TEXT)), ("gap", pa.list_(_TEXT)), ("tag", pa.list_(_TEXT)), ("tail", _TEXT)]
)
LEXICON = "lexicon.arrow"
_STRINGS = ("strings", "tags")
_NUMBERS = ("entries", "accept", "alias", "starts")


def tagged_batch(texts: Sequence[str], tagged: Iterable[TaggedText]) -> pa.RecordBatch:
    """Lay tagged texts out flat.

    Args:
        texts: N texts.
        tagged: Each text's (word, tag) pairs.

    Returns:
        N rows of the schema TAGGED.

    Raises:
        InputError: A tagger's word does not stand in its text.
    """
    words, gaps, tags, tails, offsets = [], [], [], [], [0]
    for text, pairs in zip(texts, tagged, strict=True):
        end = 0
        for word, tag in pairs:
            start = text.find(word, end)
            if start < 0 or not word:
                raise InputError(
                    f"the tagger's word {word!r} does not stand in {text!r}; a tagger must return the words of the text, in order and unchanged"
                )
            words.append(word)
            gaps.append(text[end:start])
            tags.append(tag)
            end = start + len(word)
        tails.append(text[end:])
        offsets.append(len(words))
    where = pa.array(offsets, pa.int32())
    lists = [pa.ListArray.from_arrays(where, _encoded(column)) for column in (words, gaps, tags)]
    return pa.record_batch([*lists, _encoded(tails)], schema=TAGGED)


def _encoded(values: list[str]) -> pa.DictionaryArray:
    return pa.array(values, pa.string()).dictionary_encode()


@dataclass(frozen=True)
class Block:
    """N tagged texts, as numbers of the lexicon's strings.

    Word w stands after gap w. Text i has the words `offsets[i]` to `offsets[i + 1] - 1`.
    """

    words: np.ndarray  # (W,) int32
    gaps: np.ndarray  # (W,) int32
    tags: np.ndarray  # (W,) int32, into the lexicon's tags
    tails: np.ndarray  # (N,) int32
    offsets: np.ndarray  # (N + 1,) int64

    def __len__(self) -> int:
        return len(self.tails)

    @property
    def lengths(self) -> np.ndarray:
        """Words a text, (N,) int64."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Lexicon:
    """Every string of a corpus once, and for each tag an alias table.

    The table draws a word of the tag by its frequency, in constant time.

    Source: Walker 1977, An efficient method for generating discrete random variables with general
    distributions.
    """

    strings: pa.StringArray
    """Words, gaps and tails; number 0 is the empty string, number 1 the mask word."""
    tags: pa.StringArray
    # (E,) int32: the words of tag 0, then those of tag 1, ..., as numbers of strings
    entries: np.ndarray
    accept: np.ndarray  # (E,) uint64: below it an entry stands, else its alias, of 2 ** 32
    alias: np.ndarray  # (E,) int32: as entries
    starts: np.ndarray  # (tags + 1,) int64: where a tag begins in entries
    empty: int = field(default=0, init=False)
    mask: int = field(default=1, init=False)

    @classmethod
    def build(cls, batches: Iterable[pa.RecordBatch], mask: str) -> "Lexicon":
        """Count the words of every tag over batches of the schema TAGGED; memory holds types."""
        seen = [_NO_COUNTS]
        strings = pa.array([], pa.string())
        for batch in batches:
            seen.append(_counts(batch))
            if len(seen) == 64:
                seen = [_sum(seen)]
            spacing = [batch["gap"].values.dictionary, batch["tail"].dictionary]
            strings = pc.unique(pa.concat_arrays([strings, *spacing]))
        counts = _sum(seen).sort_by([("tag", "ascending"), ("word", "ascending")])
        words, tag_column = (counts[name].combine_chunks() for name in ("word", "tag"))
        others = pc.unique(pa.concat_arrays([strings, words]))
        others = others.filter(pc.invert(pc.is_in(others, value_set=pa.array(["", mask]))))
        strings = pa.concat_arrays([pa.array(["", mask]), others.take(pc.sort_indices(others))])
        tags = pc.unique(tag_column)
        entries, n = _numbers_of(words, strings), counts["n"].to_numpy().astype(np.int64)
        starts = np.searchsorted(_numbers_of(tag_column, tags), np.arange(len(tags) + 1))
        accept, alias = np.empty(len(entries), np.uint64), np.empty(len(entries), np.int32)
        for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            accept[a:b], place = _alias_table(n[a:b])
            alias[a:b] = entries[a:b][place]
        return cls(strings, tags, entries, accept, alias, starts)

    def block(self, batch: pa.RecordBatch) -> Block:
        """Turn tagged texts of this corpus into a block of numbers."""
        word, gap, tag, tail = (batch[name] for name in TAGGED.names)
        first, last = word.offsets[0].as_py(), word.offsets[-1].as_py()
        flat = [
            _renumber(column.values.slice(first, last - first), known)
            for column, known in ((word, self.strings), (gap, self.strings), (tag, self.tags))
        ]
        offsets = word.offsets.to_numpy().astype(np.int64) - first
        return Block(flat[0], flat[1], flat[2], _renumber(tail, self.strings), offsets)

    def draw_words(self, tags: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw a word of each tag by its frequency there.

        Args:
            tags: (M,) int32.
            u: (M,) uint64, whose lower 32 bits are used.

        Returns:
            Numbers of words, (M,) int32.
        """
        start = self.starts[tags]
        count = (self.starts[tags + 1] - start).astype(np.uint64)
        place = start + below(u, count)
        # What is left of the 32 bits after the entry is chosen decides between it and its alias.
        rest = (u & np.uint64(0xFFFFFFFF)) * count & np.uint64(0xFFFFFFFF)
        return np.where(rest < self.accept[place], self.entries[place], self.alias[place])

    def write_out(
        self, gaps: np.ndarray, words: np.ndarray, offsets: np.ndarray, tails: np.ndarray
    ) -> pa.StringArray:
        """Write texts out: `gaps`, `words` and `tails` are numbers of this lexicon's strings."""
        segments = self.strings.take(pa.array(np.stack([gaps, words], 1).ravel()))
        lists = pa.ListArray.from_arrays(pa.array((2 * offsets).astype(np.int32)), segments)
        texts = pc.binary_join(lists, "")
        if not tails.any():
            return texts
        return pc.binary_join_element_wise(texts, self.strings.take(pa.array(tails)), "")

    def save(self, folder: Path) -> None:
        """Write the lexicon for other processes: one file, whole or absent, a list a field."""
        columns = {name: pa.array(getattr(self, name)) for name in (*_STRINGS, *_NUMBERS)}
        lists = {name: _one_list(values) for name, values in columns.items()}
        write_arrow(pa.table(lists), folder / LEXICON)

    @classmethod
    def load(cls, folder: Path) -> "Lexicon":
        """Read what `save` wrote."""
        table = read_arrow(folder / LEXICON)
        strings, tags = (table[name].chunk(0).flatten() for name in _STRINGS)
        numbers = (table[name].chunk(0).flatten().to_numpy() for name in _NUMBERS)
        return cls(strings, tags, *numbers)


def _one_list(values: pa.Array) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)


def _counts(batch: pa.RecordBatch) -> pa.Table:
    word, tag = batch["word"].flatten(), batch["tag"].flatten()
    pairs = pa.table({"tag": tag.indices, "word": word.indices}).group_by(["tag", "word"])
    table = pairs.aggregate([([], "count_all")])
    return pa.table(
        {
            "tag": tag.dictionary.take(table["tag"]),
            "word": word.dictionary.take(table["word"]),
            "n": table["count_all"],
        }
    )


_NO_COUNTS = pa.schema(
    [("tag", pa.string()), ("word", pa.string()), ("n", pa.int64())]
).empty_table()


def _sum(tables: list[pa.Table]) -> pa.Table:
    total = pa.concat_tables(tables).group_by(["tag", "word"]).aggregate([("n", "sum")])
    return total.select(["tag", "word", "n_sum"]).rename_columns(["tag", "word", "n"])


def _numbers_of(values: pa.StringArray, known: pa.StringArray) -> np.ndarray:
    numbers = pc.index_in(values, value_set=known)
    return numbers.to_numpy(zero_copy_only=False).astype(np.int32)


def _renumber(column: pa.DictionaryArray, known: pa.StringArray) -> np.ndarray:
    return _numbers_of(column.dictionary, known)[column.indices.to_numpy(zero_copy_only=False)]


def _alias_table(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Build Walker's table: entry i stands below accept[i] of 2 ** 32, else alias[i].

    Whole numbers make it the same on every machine.
    """
    n, total = len(counts), int(counts.sum())
    share = [int(c) * n for c in counts]  # of `total` each
    accept, alias = np.full(n, 2**32, np.uint64), np.arange(n)
    small = [i for i in range(n) if share[i] < total]
    large = [i for i in range(n) if share[i] >= total]
    while small and large:
        i, j = small.pop(), large[-1]
        accept[i], alias[i] = (share[i] << 32) // total, j
        share[j] -= total - share[i]
        if share[j] < total:
            small.append(large.pop())
    return accept, alias

"""n_iter variants of every text or pair, each by one augmentation method, with its provenance."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distillkit.augment.corpus import Block
from distillkit.augment.rules import RULES, SELF, SWAPPED, Variants, Variation, lists_of
from distillkit.data.counter import draw, high, seed_key
from distillkit.data.labels import LABEL_TYPES
from distillkit.recipe import AugmentConfig

ORIGINS = ("original", "unlabelled", "generated", "augmented")
NAME = pa.dictionary(pa.int8(), pa.string())
# Every combination of rules as it is written, found by its bits.
_NAMES = pa.array(
    ["+".join(name for bit, name in RULES.items() if fired & bit) for fired in range(2 * SELF)]
)
# Sequences of a slot's own numbers: its method, turns (of the pair; which text of it is varied beside
# itself), its sides' keys.
_METHOD, _TURN, _SIDES = 0, 1, 2
_SLICE = 16_384  # variants worked on at a time: their arrays stay in the processor's cache


def schema(
    pairs: bool, label: pa.DataType = LABEL_TYPES["classification"], *, two_rows: bool = False
) -> pa.Schema:
    """Return the columns of a transfer set.

    Args:
        pairs: Of pairs, not of single texts.
        label: Type of the labels.
        two_rows: The texts of a pair may come from two rows.
    """
    sides = ("", "_pair") if pairs else ("",)
    fields = [(f"text{side}", pa.string()) for side in sides]
    fields += [("label", label), ("origin", NAME), ("source_row", pa.int64())]
    # No dictionary: a method's own rows name what it likes, and Arrow's files have one a column.
    fields += [("iteration", pa.int32()), ("rules", pa.string())]
    if two_rows:
        fields += [("source_row_pair", pa.int64())]
    for side in sides:
        fields += [(f"changed{side}", pa.list_(pa.int32()))]
        fields += [(f"start{side}", pa.int32()), (f"stop{side}", pa.int32())]
    return pa.schema(fields)


def origin_column(name: str, rows: int) -> pa.DictionaryArray:
    """Return an `origin` column that says the same of every row."""
    numbers = pa.array(np.full(rows, ORIGINS.index(name), np.int8))
    return pa.DictionaryArray.from_arrays(numbers, pa.array(ORIGINS))


def rules_column(fired: np.ndarray) -> pa.StringArray:
    """Turn bits of RULES, (M,) uint8, into names: mask, pos, ngram, ..., joined by a plus."""
    return _NAMES.take(pa.array(fired))


class VariantMaker:
    """Makes variants as the configuration mixes them.

    Args:
        config: Iterations, weights, which sides of a pair.
        seed: Draws everything.
        variations: By name, one for each augmentation method in use that makes variants; their
            order is part of the bytes.
        unlabelled: The texts are the unlabelled ones, which draw numbers of their own.
        label: Type of the column `label`, where no variant has one.
        self_pairs: Names of the variations that stand beside the text they are made from, and not
            beside the other text of its pair.
    """

    def __init__(
        self,
        config: AugmentConfig,
        seed: int,
        variations: Mapping[str, Variation],
        *,
        unlabelled: bool = False,
        label: pa.DataType = LABEL_TYPES["classification"],
        self_pairs: Collection[str] = (),
    ) -> None:
        self.config, self.variations, self.label = config, variations, label
        self.beside_self = np.array([name in self_pairs for name in variations], bool)
        self.key = seed_key(seed, int(unlabelled))
        weights = asdict(config.mix)
        # Where each method's slots end, of 2 ** 32; a slot past them is a whole row's of a
        # method that brings rows.
        ends = np.cumsum([weights[name] for name in variations])
        self.bounds = np.round(ends / sum(weights.values()) * 2**32).astype(np.uint64)

    def __call__(
        self, first: Block, second: Block | None, table: pa.Table, first_row: int
    ) -> Iterator[pa.Table]:
        """Make every variant of some rows, row by row, iteration by iteration.

        Args:
            first: The rows' texts, tagged.
            second: The rows' second texts, tagged; None for single texts.
            table: The rows, with `text` and, for pairs, `text_pair`.
            first_row: Number of the first of them in its source.

        Yields:
            Tables of `schema`, some thousand rows each.
        """
        n_iter, total = self.config.n_iter, len(first) * self.config.n_iter
        for begin in range(0, total, _SLICE):
            slots = np.arange(begin, min(begin + _SLICE, total))
            rows, iterations = slots // n_iter, slots % n_iter
            keys = draw(draw(self.key, first_row + rows), iterations)
            yield self._slots(first, second, table, first_row, rows, iterations, keys)

    def _slots(
        self,
        first: Block,
        second: Block | None,
        table: pa.Table,
        first_row: int,
        rows: np.ndarray,
        iterations: np.ndarray,
        keys: np.ndarray,
    ) -> pa.Table:
        u = high(draw(keys, np.full(len(keys), _METHOD)))
        method = np.searchsorted(self.bounds, u, side="right")
        made = method < len(self.variations)
        if not made.all():
            rows, iterations, keys, method = rows[made], iterations[made], keys[made], method[made]
        sides = [(first, table["text"])]
        if second is not None:
            sides.append((second, table["text_pair"]))
        turns, alone = draw(keys, np.full(len(keys), _TURN)), self.beside_self[method]
        varied = ((turns >> np.uint64(1)) & np.uint64(1)).astype(np.int64)  # the side, where alone
        results = []
        for number in range(len(sides)):
            changes = self._changes(iterations, number, second is not None)
            changes = np.where(alone, varied == number, changes)
            own = draw(keys, np.full(len(keys), _SIDES + number))
            results.append(self._side(sides, number, rows, own, method, changes, alone))
        fired = np.bitwise_or.reduce([side.fired for side in results])
        fired = fired | np.where(alone, SELF, 0).astype(np.uint8)
        texts = [side.texts for side in results]
        if self.config.swap and second is not None:
            turned = (turns & np.uint64(1)).astype(bool)
            fired = fired | np.where(turned, SWAPPED, 0).astype(np.uint8)
            a, b = texts
            texts = [pc.if_else(turned, b, a), pc.if_else(turned, a, b)]
        columns = [
            *texts,
            pa.nulls(len(rows), self.label),
            origin_column("augmented", len(rows)),
            pa.array(first_row + rows),
            pa.array(iterations.astype(np.int32)),
            rules_column(fired),
        ]
        for side in results:
            columns += [side.changed, pa.array(side.start), pa.array(side.stop)]
        return pa.table(columns, schema=schema(second is not None, self.label))

    def _changes(self, iterations: np.ndarray, side: int, pairs: bool) -> np.ndarray:
        """Say of which rows this side is changed, (M,) bool."""
        if not pairs:
            return np.ones(len(iterations), bool)
        if self.config.pair_sides == "turn":  # the first, the second, both
            return iterations % 3 != 1 - side
        changed = self.config.pair_sides in (("first", "second")[side], "both")
        return np.full(len(iterations), changed)

    def _side(
        self,
        sides: Sequence[tuple[Block, pa.ChunkedArray]],
        number: int,
        rows: np.ndarray,
        keys: np.ndarray,
        method: np.ndarray,
        changes: np.ndarray,
        alone: np.ndarray,
    ) -> Variants:
        """Make one side's variants, each by its method, and put them back in order."""
        parts: list[tuple[np.ndarray, Variants]] = []
        for which, variation in enumerate(self.variations.values()):
            mine = np.flatnonzero(changes & (method == which))
            if len(mine):
                parts.append((mine, variation(sides[number][0], rows[mine], keys[mine])))
        # What is not changed is the pair's text, or the text whose variant stands beside it.
        for source, kept in ((number, ~changes & ~alone), (1 - number, ~changes & alone)):
            same = np.flatnonzero(kept)
            if len(same) or not parts:
                parts.append((same, _unchanged(*sides[source], rows[same])))
        if len(parts) == 1:
            return parts[0][1]
        order = np.argsort(np.concatenate([mine for mine, _ in parts]))
        every = [part for _, part in parts]
        return Variants(
            pa.concat_arrays([part.texts for part in every]).take(order),
            np.concatenate([part.fired for part in every])[order],
            pa.concat_arrays([part.changed for part in every]).take(order),
            np.concatenate([part.start for part in every])[order],
            np.concatenate([part.stop for part in every])[order],
        )


def _unchanged(block: Block, texts: pa.ChunkedArray, rows: np.ndarray) -> Variants:
    length = block.lengths[rows].astype(np.int32)
    nothing = lists_of(np.array([]), np.array([], bool), np.zeros(len(rows) + 1, np.int64))
    same = pa.chunked_array(texts.take(pa.array(rows))).combine_chunks()
    return Variants(same, np.zeros(len(rows), np.uint8), nothing, np.zeros_like(length), length)

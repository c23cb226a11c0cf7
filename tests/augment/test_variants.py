"""Which variants are made of which rows: ways by weight, sides, turns, and numbers of their own for each."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binomtest, chisquare

from distillkit.augment import variants
from distillkit.augment.corpus import Lexicon, tagged_batch
from distillkit.augment.rules import (
    CUT,
    INFILLED,
    MASKED,
    NEIGHBOUR,
    REPLACED,
    RULES,
    SWAPPED,
    Rules,
    Variants,
)
from distillkit.augment.taggers import load_tagger
from distillkit.augment.variants import ORIGINS, VariantMaker, origin_column, rules_column, schema
from distillkit.data.counter import draw, high, seed_key
from distillkit.recipe import AugmentConfig, MixConfig

FAIR = 1e-4


class Stamp:
    """A way of making variants that writes its name, the row and the key, and remembers what it was asked for."""

    def __init__(self, name, fired=0):
        self.name, self.fired = name, fired
        self.rows, self.keys = np.empty(0, np.int64), np.empty(0, np.uint64)

    def __call__(self, block, rows, keys):
        self.rows, self.keys = np.concatenate([self.rows, rows]), np.concatenate([self.keys, keys])
        texts = pa.array(
            [f"{self.name} {row} {key}" for row, key in zip(rows, keys, strict=True)], pa.string()
        )
        changed = pa.array([[int(row)] for row in rows], pa.list_(pa.int32()))
        length = block.lengths[rows].astype(np.int32)
        return Variants(
            texts, np.full(len(rows), self.fired, np.uint8), changed, np.zeros_like(length), length
        )


def corpus(texts, pairs=None):
    columns = {"text": texts} | ({} if pairs is None else {"text_pair": pairs})
    batches = [tagged_batch(column, load_tagger("none")(column)) for column in columns.values()]
    lexicon = Lexicon.build(batches, "[MASK]")
    blocks = [lexicon.block(batch) for batch in batches]
    return lexicon, blocks[0], blocks[1] if pairs is not None else None, pa.table(columns)


def make(texts, pairs=None, *, seed=1, first_row=0, unlabelled=False, ways=None, **options):
    lexicon, first, second, table = corpus(texts, pairs)
    config = AugmentConfig(tagger="none", **options)
    maker = VariantMaker(
        config, seed, ways or {"rules": Rules(lexicon, config)}, unlabelled=unlabelled
    )
    tables = list(maker(first, second, table, first_row))
    return pa.concat_tables(tables) if tables else schema(pairs is not None).empty_table()


def stamps():
    return {
        "rules": Stamp("rules", MASKED),
        "infill": Stamp("infill", INFILLED),
        "neighbours": Stamp("near", NEIGHBOUR),
    }


@pytest.mark.parametrize("pairs", [None, ["c d", "e"]])
def test_columns_are_the_schemas(pairs):
    table = make(["a", "b c"], pairs, n_iter=3)
    assert table.schema == schema(pairs is not None)
    assert table["source_row"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert table["iteration"].to_pylist() == [0, 1, 2] * 2
    assert set(table["origin"].to_pylist()) == {"augmented"}
    assert set(table["label"].to_pylist()) == {None}


def test_schema_of_pairs_says_where_both_texts_come_from():
    single = [
        "text",
        "label",
        "origin",
        "source_row",
        "iteration",
        "rules",
        "changed",
        "start",
        "stop",
    ]
    assert schema(pairs=False).names == single
    assert schema(pairs=True).names == [
        "text",
        "text_pair",
        *single[1:],
        "changed_pair",
        "start_pair",
        "stop_pair",
    ]


def test_rules_are_named_in_order_whatever_their_combination():
    fired = np.arange(64, dtype=np.uint8)
    assert rules_column(fired).to_pylist() == [
        "+".join(name for bit, name in RULES.items() if i & bit) for i in range(64)
    ]
    assert rules_column(np.array([0, CUT | MASKED, REPLACED | SWAPPED], np.uint8)).to_pylist() == [
        "",
        "mask+ngram",
        "pos+swap",
    ]


def test_origins_are_named():
    for name in ORIGINS:
        assert origin_column(name, 2).to_pylist() == [name, name]


@pytest.mark.parametrize("n_iter", [0, 1, 7])
def test_each_row_is_varied_n_iter_times(n_iter):
    table = make(["a b", "", "c"], n_iter=n_iter)
    assert Counter(table["source_row"].to_pylist()) == Counter(
        {row: n_iter for row in range(3) if n_iter}
    )


@pytest.mark.parametrize("slots", [1, 7, 64, 10**6])
@pytest.mark.parametrize("pairs", [False, True])
def test_how_many_are_worked_on_at_a_time_changes_nothing(slots, pairs, monkeypatch):
    texts = [f"w{i} x{i} y" for i in range(20)]
    options = {"n_iter": 8, "p_mask": 0.3, "p_ng": 0.5, "swap": pairs}
    expected = make(texts, texts[::-1] if pairs else None, **options).combine_chunks()
    monkeypatch.setattr(variants, "_SLICE", slots)
    assert make(texts, texts[::-1] if pairs else None, **options).combine_chunks().equals(expected)


@pytest.mark.parametrize("cut", [1, 3, 11])
def test_rows_made_apart_by_their_number_are_the_rows_made_together(cut):
    texts = [f"w{i} x y z" for i in range(12)]
    lexicon, first, _, table = corpus(texts)
    config = AugmentConfig(tagger="none", n_iter=6, p_mask=0.3)
    maker = VariantMaker(config, 1, {"rules": Rules(lexicon, config)})
    together = pa.concat_tables(maker(first, None, table, 100)).to_pylist()
    apart = []
    for start in range(0, 12, cut):
        batch = tagged_batch(
            texts[start : start + cut], load_tagger("none")(texts[start : start + cut])
        )
        apart += pa.concat_tables(
            maker(lexicon.block(batch), None, table.slice(start, cut), 100 + start)
        ).to_pylist()
    assert apart == together
    assert [row["source_row"] for row in together[::6]] == list(range(100, 112))


def test_more_iterations_leave_the_first_as_they_are():
    texts = ["one two three four", "five six"]
    few, many = make(texts, n_iter=3).to_pylist(), make(texts, n_iter=9).to_pylist()
    assert few == [row for row in many if row["iteration"] < 3]


def test_seeds_and_unlabelled_texts_draw_numbers_of_their_own():
    texts = ["one two three four five"] * 5
    made = [
        make(texts, seed=seed, unlabelled=u)["text"].to_pylist()
        for seed in (1, 2)
        for u in (False, True)
    ]
    assert made[0] == make(texts, seed=1)["text"].to_pylist()
    assert all(a != b for i, a in enumerate(made) for b in made[:i])


# ---- ways


@pytest.mark.parametrize(
    "weights", [(1, 0, 0), (1, 1, 1), (6, 1, 3), (0, 1, 0), (0, 0.2, 0.8), (1, 0, 3)]
)
def test_ways_share_the_variants_by_weight(weights):
    ways = stamps()
    table = make(["a"] * 400, ways=ways, n_iter=25, mix=MixConfig(*weights))
    found = [len(way.rows) for way in ways.values()]
    assert sum(found) == len(table) == 10_000
    for count, weight in zip(found, weights, strict=True):
        assert binomtest(count, 10_000, weight / sum(weights)).pvalue > FAIR


def test_what_sentences_and_generated_texts_take_is_left_out():
    ways = stamps()
    table = make(["a"] * 400, ways=ways, n_iter=25, mix=MixConfig(3, 1, 2, 3, 1))
    assert len(table) == sum(len(way.rows) for way in ways.values())
    for way, weight in zip(ways.values(), (3, 1, 2), strict=True):
        assert binomtest(len(way.rows), 10_000, weight / 10).pvalue > FAIR
    slots = list(zip(table["source_row"].to_pylist(), table["iteration"].to_pylist(), strict=True))
    assert slots == sorted(set(slots))


def test_only_sentences_leave_no_variant():
    table = make(["a", "b"], ways={}, mix=MixConfig(rules=0, sentences=1))
    assert len(table) == 0
    assert table.schema == schema(pairs=False)


def test_another_ways_weight_changes_no_variant_that_is_still_made():
    """A variant made by the rules in two mixes is the same in both."""
    texts = ["one two three four five", "six seven"] * 20
    alone = {(row["source_row"], row["iteration"]): row for row in make(texts).to_pylist()}
    lexicon, first, _, table = corpus(texts)
    config = AugmentConfig(tagger="none", mix=MixConfig(rules=1, infill=1, sentences=1))
    maker = VariantMaker(config, 1, stamps() | {"rules": Rules(lexicon, config)})
    mixed = [
        row
        for row in pa.concat_tables(maker(first, None, table, 0)).to_pylist()
        if row["rules"] != "infill"
    ]
    assert 200 < len(mixed) < 340
    assert all(row == alone[row["source_row"], row["iteration"]] for row in mixed)


def test_results_of_several_ways_come_back_to_their_rows():
    table = make(["a b", "c", "d e f"] * 50, ways=stamps(), mix=MixConfig(1, 1, 1), n_iter=4)
    names = {"rules": "mask", "infill": "infill", "near": "neighbour"}
    found = Counter()
    for row in table.to_pylist():
        way, place, _ = row["text"].split()
        assert int(place) == row["source_row"]
        assert row["changed"] == [row["source_row"]]
        assert row["stop"] == (2, 1, 3)[row["source_row"] % 3]
        assert row["rules"] == names[way]
        found[way] += 1
    assert min(found.values()) > 150


def test_both_sides_of_a_pair_are_made_one_way():
    table = make(["a"] * 30, ["b"] * 30, ways=stamps(), mix=MixConfig(1, 1, 1), pair_sides="both")
    ways = [(row["text"].split()[0], row["text_pair"].split()[0]) for row in table.to_pylist()]
    assert all(a == b for a, b in ways)
    assert len(set(ways)) == 3


# ---- pairs


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ("turn", [("M", "c"), ("a b", "M"), ("M", "M")] * 2),
        ("first", [("M", "c")] * 6),
        ("second", [("a b", "M")] * 6),
        ("both", [("M", "M")] * 6),
    ],
)
def test_sides_of_a_pair_are_changed_as_asked_for(sides, expected):
    table = make(["a b"], ["c"], n_iter=6, pair_sides=sides, p_mask=1.0, p_pos=0.0, p_ng=0.0)
    rows = [
        {**row, **{side: row[side].replace("[MASK]", "M") for side in ("text", "text_pair")}}
        for row in table.to_pylist()
    ]
    assert [(row["text"].replace("M M", "M"), row["text_pair"]) for row in rows] == expected
    for row in rows:
        first, second = "M" in row["text"], "M" in row["text_pair"]
        assert (row["changed"], row["changed_pair"]) == (
            [0, 1] if first else [],
            [0] if second else [],
        )
        assert (row["start"], row["stop"], row["start_pair"], row["stop_pair"]) == (0, 2, 0, 1)
        assert row["rules"] == "mask"


def test_pair_rules_are_those_of_both_texts():
    rows = make(
        ["a b c"] * 200, ["d e f"] * 200, n_iter=3, p_mask=0.2, p_pos=0.2, p_ng=0.3
    ).to_pylist()
    for row in rows:
        cut = any(row[f"stop{side}"] - row[f"start{side}"] < 3 for side in ("", "_pair"))
        assert ("ngram" in row["rules"]) == cut
        assert ("mask" in row["rules"]) == ("[MASK]" in row["text"] + row["text_pair"])


def test_a_side_left_alone_is_byte_for_byte_the_source():
    odd = ["  odd   spacing ", "é😀", "", "\u3000"]
    rows = make(["x y"] * 4, odd, n_iter=3, pair_sides="first").to_pylist()
    assert [row["text_pair"] for row in rows] == [text for text in odd for _ in range(3)]


def test_swap_turns_half_of_the_variants_and_says_so():
    texts, pairs = ["a b c"] * 300, ["x y z"] * 300
    plain = make(texts, pairs, n_iter=6, p_mask=0.3)
    swapped = make(texts, pairs, n_iter=6, p_mask=0.3, swap=True)
    turned = 0
    for before, after in zip(plain.to_pylist(), swapped.to_pylist(), strict=True):
        if "swap" in after["rules"]:
            turned += 1
            assert (after["text"], after["text_pair"]) == (before["text_pair"], before["text"])
            assert after["rules"] == "+".join([*filter(None, [before["rules"]]), "swap"])
        else:
            assert after["rules"] == before["rules"]
            assert (after["text"], after["text_pair"]) == (before["text"], before["text_pair"])
        # Where words come from is said of the source's first text and its second.
        for name in ("changed", "start", "stop", "changed_pair", "start_pair", "stop_pair"):
            assert after[name] == before[name]
    assert binomtest(turned, 1800).pvalue > FAIR


def test_single_texts_have_nothing_to_swap():
    assert make(["a b"], swap=True).equals(make(["a b"]))


# ---- independence of the numbers themselves, as a way of making variants gets them


def keys_of(rows, n_iter, seed=1, pairs=False, unlabelled=False):
    """The keys of every slot, (rows, n_iter) or, of pairs, both sides' (2, rows, n_iter)."""
    asked = Stamp("rules")
    texts = ["a"] * rows
    make(
        texts,
        texts if pairs else None,
        seed=seed,
        unlabelled=unlabelled,
        ways={"rules": asked},
        n_iter=n_iter,
        pair_sides="both",
    )
    assert len(asked.keys) == rows * n_iter * (1 + pairs)
    return asked.keys.reshape(-1, rows, n_iter)  # one slice of slots: first all of a side


@pytest.fixture
def one_slice(monkeypatch):
    monkeypatch.setattr(variants, "_SLICE", 10**9)


def uncorrelated(a, b):
    a, b = (high(u).astype(float).ravel() for u in (a, b))
    return abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(len(a))


@pytest.mark.usefixtures("one_slice")
def test_a_words_numbers_are_independent_across_words_rows_iterations_sides_and_seeds():
    rows, n_iter = 2000, 12
    first, second = keys_of(rows, n_iter, pairs=True)
    words = draw(first[..., None], np.arange(2, 7))  # (rows, n_iter, words)
    assert uncorrelated(words[..., :-1], words[..., 1:])
    assert uncorrelated(words[:-1], words[1:])
    assert uncorrelated(words[:, :-1], words[:, 1:])
    assert uncorrelated(words, draw(second[..., None], np.arange(2, 7)))
    for other in (
        keys_of(rows, n_iter, seed=2, pairs=True),
        keys_of(rows, n_iter, pairs=True, unlabelled=True),
    ):
        assert uncorrelated(words, draw(other[0][..., None], np.arange(2, 7)))
    # A word's and the cut's; the words of one row moved to the place of the next row's, or the next
    # iteration's.
    assert uncorrelated(words[..., 0], draw(first, np.zeros_like(first)))
    assert uncorrelated(words[:-1, :, 1:], words[1:, :, :-1])
    assert uncorrelated(words[:, :-1, 1:], words[:, 1:, :-1])
    assert uncorrelated(words[:, :-1, :-1], words[:, 1:, 1:])


@pytest.mark.usefixtures("one_slice")
def test_pairs_of_neighbouring_numbers_fill_the_square_evenly():
    (keys,) = keys_of(3000, 10)
    x = high(draw(keys[..., None], np.arange(2, 6))) >> np.uint32(29)
    for a, b in ((x[..., :-1], x[..., 1:]), (x[:-1], x[1:]), (x[:, :-1], x[:, 1:])):
        counts = np.bincount((a.astype(np.int64) * 8 + b).ravel(), minlength=64)
        assert chisquare(counts).pvalue > FAIR


@pytest.mark.usefixtures("one_slice")
def test_no_two_variants_sides_or_seeds_share_a_key():
    keys = np.concatenate([keys_of(2000, 20, seed=seed, pairs=True).ravel() for seed in (1, 2)])
    keys = np.concatenate([keys, keys_of(2000, 20, unlabelled=True).ravel()])
    assert len(np.unique(keys)) == len(keys)


@pytest.mark.usefixtures("one_slice")
def test_keys_are_the_documented_nesting():
    """seed -> kind -> row -> iteration -> side: what anybody can compute alone."""
    for number, side in enumerate(keys_of(3, 4, seed=5, pairs=True)):
        for row in range(3):
            for iteration in range(4):
                slot = draw(draw(seed_key(5, 0), np.array([row])), np.array([iteration]))
                assert side[row, iteration] == draw(slot, np.array([2 + number]))[0]

"""Which variants are made of which rows: methods by weight, sides, turns, numbers of their own."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binomtest
from tagged_corpus import batch_of

from distillkit.augment import variants
from distillkit.augment.corpus import Lexicon
from distillkit.augment.rules import (
    CUT,
    MASKED,
    NEIGHBOUR,
    REPLACED,
    SWAPPED,
    Rules,
    Variants,
)
from distillkit.augment.variants import VariantMaker, rules_column, schema
from distillkit.data.counter import draw, high, seed_key
from distillkit.recipe import AugmentConfig, MixConfig

FAIR = 1e-4


class Stamp:
    """A method that writes its name and the row, and remembers what it was asked for."""

    def __init__(self, name, fired=0):
        self.name, self.fired = name, fired
        self.rows, self.keys = np.empty(0, np.int64), np.empty(0, np.uint64)

    def __call__(self, block, rows, keys):
        self.rows, self.keys = np.concatenate([self.rows, rows]), np.concatenate([self.keys, keys])
        texts = pa.array([f"{self.name} {row}" for row in rows], pa.string())
        changed = pa.array([[int(row)] for row in rows], pa.list_(pa.int32()))
        length = block.lengths[rows].astype(np.int32)
        fired = np.full(len(rows), self.fired, np.uint8)
        return Variants(texts, fired, changed, np.zeros_like(length), length)


def stamps():
    names = {"rules": MASKED, "neighbours": NEIGHBOUR}
    return {name: Stamp(name, fired) for name, fired in names.items()}


def make(
    texts,
    pairs=None,
    *,
    seed=1,
    first_row=0,
    unlabelled=False,
    methods=None,
    self_pairs=(),
    **options,
):
    """The variants of some rows; `methods` in place of the rules, where a name is theirs."""
    columns = {"text": texts} | ({} if pairs is None else {"text_pair": pairs})
    batches = [batch_of(column) for column in columns.values()]
    lexicon = Lexicon.build(batches, "[MASK]")
    blocks = [lexicon.block(batch) for batch in batches]
    config = AugmentConfig(tagger="none", **options)
    methods = {"rules": Rules(lexicon, config)} | (methods or {})
    maker = VariantMaker(config, seed, methods, unlabelled=unlabelled, self_pairs=self_pairs)
    tables = list(maker(blocks[0], blocks[1] if pairs else None, pa.table(columns), first_row))
    return pa.concat_tables(tables) if tables else schema(pairs is not None).empty_table()


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
    both = ["text", "text_pair", *single[1:], "changed_pair", "start_pair", "stop_pair"]
    assert schema(pairs=True).names == both


def test_rules_are_named_in_order_whatever_their_combination():
    fired = np.array([0, CUT | MASKED, REPLACED | SWAPPED, NEIGHBOUR], np.uint8)
    names = ["", "mask+ngram", "pos+swap", "neighbour"]
    assert rules_column(fired).to_pylist() == names


@pytest.mark.parametrize("n_iter", [0, 1, 7])
def test_each_row_is_varied_n_iter_times(n_iter):
    table = make(["a b", "", "c"], n_iter=n_iter)
    assert table["source_row"].to_pylist() == sorted([0, 1, 2] * n_iter)


@pytest.mark.parametrize("slots", [1, 7, 64, 10**6])
@pytest.mark.parametrize("pairs", [False, True])
def test_how_many_are_worked_on_at_a_time_changes_nothing(slots, pairs, monkeypatch):
    texts = [f"w{i} x{i} y" for i in range(20)]
    pair_texts = texts[::-1] if pairs else None
    options = {"n_iter": 8, "p_mask": 0.3, "p_ng": 0.5, "swap": pairs}
    expected = make(texts, pair_texts, **options).combine_chunks()
    monkeypatch.setattr(variants, "_SLICE", slots)
    assert make(texts, pair_texts, **options).combine_chunks().equals(expected)


@pytest.mark.parametrize("cut", [1, 3, 11])
def test_rows_made_apart_by_their_number_are_the_rows_made_together(cut):
    texts = [f"w{i} x y z" for i in range(12)]
    options = {"n_iter": 6, "p_mask": 0.3, "p_pos": 0.0}
    together = make(texts, first_row=100, **options).to_pylist()
    apart = []
    for start in range(0, 12, cut):
        part = make(texts[start : start + cut], first_row=100 + start, **options)
        apart += part.to_pylist()
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


# ---- methods


@pytest.mark.parametrize(
    "weights",
    [(1, 0, 0, 0, 0), (1, 1, 1, 0, 0), (6, 1, 3, 0, 0), (0, 0.2, 0.8, 0, 0), (3, 1, 2, 3, 1)],
)
def test_methods_share_the_variants_by_weight(weights):
    """Sentences and generated texts take their share, and leave no variant."""
    methods = stamps()
    table = make(["a"] * 400, methods=methods, n_iter=25, mix=MixConfig(*weights))
    assert len(table) == sum(len(method.rows) for method in methods.values())
    for method, weight in zip(methods.values(), weights, strict=False):
        assert binomtest(len(method.rows), 10_000, weight / sum(weights)).pvalue > FAIR
    slots = list(zip(table["source_row"].to_pylist(), table["iteration"].to_pylist(), strict=True))
    assert slots == sorted(set(slots))


def test_only_sentences_leave_no_variant():
    table = make(["a", "b"], mix=MixConfig(rules=0, sentences=1))
    assert len(table) == 0
    assert table.schema == schema(pairs=False)


def test_another_methods_weight_changes_no_variant_that_is_still_made():
    """A variant made by the rules in two mixes is the same in both."""
    texts = ["one two three four five", "six seven"] * 20
    alone = {(row["source_row"], row["iteration"]): row for row in make(texts).to_pylist()}
    others = {"neighbours": Stamp("neighbours", NEIGHBOUR)}
    mix = MixConfig(rules=1, neighbours=1, sentences=1)
    mixed = make(texts, methods=others, mix=mix).to_pylist()
    mixed = [row for row in mixed if row["rules"] != "neighbour"]
    assert 200 < len(mixed) < 340
    assert all(row == alone[row["source_row"], row["iteration"]] for row in mixed)


def test_results_of_several_methods_come_back_to_their_rows():
    table = make(["a b", "c", "d e f"] * 50, methods=stamps(), mix=MixConfig(1, 1, 1), n_iter=4)
    names = {"rules": "mask", "neighbours": "neighbour"}
    found = Counter()
    for row in table.to_pylist():
        method, place = row["text"].split()
        assert int(place) == row["source_row"]
        assert row["changed"] == [row["source_row"]]
        assert row["stop"] == (2, 1, 3)[row["source_row"] % 3]
        assert row["rules"] == names[method]
        found[method] += 1
    assert min(found.values()) > 150


SELF_PAIRS = {"self_pairs": ("self_pairs",), "mix": MixConfig(rules=1, self_pairs=3)}


@pytest.mark.parametrize("swap", [False, True])
def test_a_self_pair_is_a_text_of_the_pair_beside_its_own_variant(swap):
    texts, others = [f"a{i} b c d" for i in range(100)], [f"x{i} y" for i in range(100)]
    methods = {"self_pairs": Stamp("varied", MASKED)}
    table = make(texts, others, methods=methods, swap=swap, n_iter=8, **SELF_PAIRS)
    rows = [row for row in table.to_pylist() if "self" in row["rules"].split("+")]
    assert binomtest(len(rows), 800, 3 / 4).pvalue > FAIR
    sides = Counter()
    for row in rows:
        number, turned = row["source_row"], "swap" in row["rules"]
        first, second = (row["text"], row["text_pair"])[:: -1 if turned else 1]
        own = second if first.startswith("varied") else first
        assert {first, second} == {own, f"varied {number}"}
        assert own in (texts[number], others[number])
        words = len(own.split())
        assert (row["start"], row["stop"]) == (row["start_pair"], row["stop_pair"]) == (0, words)
        varied = "changed" if first.startswith("varied") else "changed_pair"
        assert row[varied] == [number]
        assert row["rules"] == ("mask+swap+self" if turned else "mask+self")
        sides[varied, own == texts[number], turned] += 1
    assert len(sides) == (4 if swap else 2)  # the text's variant stands first, the pair's second
    assert min(sides.values()) > len(rows) / len(sides) / 1.3


def test_self_pairs_leave_the_other_variants_as_they_are():
    texts, others = ["one two three four five"] * 20, ["six seven eight"] * 20
    alone = {(row["source_row"], row["iteration"]): row for row in make(texts, others).to_pylist()}
    methods = {"self_pairs": Stamp("varied")}
    mixed = make(texts, others, methods=methods, **SELF_PAIRS).to_pylist()
    left = [row for row in mixed if row["rules"] != "self"]
    assert 60 < len(left) < 140
    assert all(row == alone[row["source_row"], row["iteration"]] for row in left)


def test_both_sides_of_a_pair_are_made_by_one_method():
    options = {"mix": MixConfig(1, 1, 1), "pair_sides": "both"}
    table = make(["a"] * 30, ["b"] * 30, methods=stamps(), **options)
    rows = table.to_pylist()
    found = {(row["text"].split()[0], row["text_pair"].split()[0]) for row in rows}
    assert found == {(name, name) for name in stamps()}


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
    options = {"n_iter": 6, "p_mask": 1.0, "p_pos": 0.0, "p_ng": 0.0}
    rows = make(["a b"], ["c"], pair_sides=sides, **options).to_pylist()
    for row, (first, second) in zip(rows, expected, strict=True):
        assert row["text"] == ("[MASK] [MASK]" if first == "M" else first)
        assert row["text_pair"] == ("[MASK]" if second == "M" else second)
        assert row["changed"] == ([0, 1] if first == "M" else [])
        assert row["changed_pair"] == ([0] if second == "M" else [])
        assert (row["start"], row["stop"], row["start_pair"], row["stop_pair"]) == (0, 2, 0, 1)
        assert row["rules"] == "mask"


def test_pair_rules_are_those_of_both_texts():
    rates = {"p_mask": 0.2, "p_pos": 0.2, "p_ng": 0.3}
    for row in make(["a b c"] * 200, ["d e f"] * 200, n_iter=3, **rates).to_pylist():
        cut = any(row[f"stop{side}"] - row[f"start{side}"] < 3 for side in ("", "_pair"))
        assert ("ngram" in row["rules"]) == cut
        assert ("mask" in row["rules"]) == ("[MASK]" in row["text"] + row["text_pair"])


def test_a_side_left_alone_is_byte_for_byte_the_source():
    odd = ["  odd   spacing ", "é😀", "", "\u3000"]
    rows = make(["x y"] * 4, odd, n_iter=3, pair_sides="first").to_pylist()
    assert [row["text_pair"] for row in rows] == [text for text in odd for _ in range(3)]


def test_swap_turns_half_of_the_variants_of_pairs_and_says_so():
    texts, pairs = ["a b c"] * 300, ["x y z"] * 300
    plain = make(texts, pairs, n_iter=6, p_mask=0.3)
    swapped = make(texts, pairs, n_iter=6, p_mask=0.3, swap=True)
    turned = 0
    for before, after in zip(plain.to_pylist(), swapped.to_pylist(), strict=True):
        if "swap" in after["rules"]:
            turned += 1
            a, b, rules = before["text_pair"], before["text"], [before["rules"], "swap"]
            before |= {"text": a, "text_pair": b, "rules": "+".join(filter(None, rules))}
        # Where words come from is said of the source's first text and its second.
        assert after == before
    assert binomtest(turned, 1800).pvalue > FAIR
    assert make(["a b"], swap=True).equals(make(["a b"]))  # single texts have nothing to swap


# ---- independence of the numbers themselves, as a method gets them


def keys_of(rows, n_iter, seed=1, pairs=False, unlabelled=False):
    """The keys of every slot, (sides, rows, n_iter)."""
    asked, texts = Stamp("rules"), ["a"] * rows
    options = {"seed": seed, "unlabelled": unlabelled, "methods": {"rules": asked}}
    make(texts, texts if pairs else None, n_iter=n_iter, pair_sides="both", **options)
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
    def words_of(keys):
        return draw(keys[..., None], np.arange(2, 7))  # (rows, n_iter, words)

    first, second = keys_of(2000, 12, pairs=True)
    words = words_of(first)
    assert uncorrelated(words[..., :-1], words[..., 1:])
    assert uncorrelated(words[:-1], words[1:])
    assert uncorrelated(words[:, :-1], words[:, 1:])
    assert uncorrelated(words, words_of(second))
    assert uncorrelated(words, words_of(keys_of(2000, 12, seed=2, pairs=True)[0]))
    assert uncorrelated(words, words_of(keys_of(2000, 12, pairs=True, unlabelled=True)[0]))
    # A word's and the cut's; the words of one row moved to the place of the next row's, or the next
    # iteration's.
    assert uncorrelated(words[..., 0], draw(first, np.zeros_like(first)))
    assert uncorrelated(words[:-1, :, 1:], words[1:, :, :-1])
    assert uncorrelated(words[:, :-1, 1:], words[:, 1:, :-1])
    assert uncorrelated(words[:, :-1, :-1], words[:, 1:, 1:])


@pytest.mark.usefixtures("one_slice")
def test_no_two_variants_sides_or_seeds_share_a_key():
    keys = [keys_of(2000, 20, seed=seed, pairs=True) for seed in (1, 2)]
    keys = np.concatenate([*keys, keys_of(2000, 20, unlabelled=True)])
    assert len(np.unique(keys)) == keys.size


@pytest.mark.usefixtures("one_slice")
def test_keys_are_the_documented_nesting():
    """seed -> kind -> row -> iteration -> side: what anybody can compute alone."""
    for number, side in enumerate(keys_of(3, 4, seed=5, pairs=True)):
        for row in range(3):
            for iteration in range(4):
                slot = draw(draw(seed_key(5, 0), np.array([row])), np.array([iteration]))
                assert side[row, iteration] == draw(slot, np.array([2 + number]))[0]

"""The transfer set on disk: which rows it has, and the same bytes however it was made."""

import importlib
import os
import signal
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from distillkit import AugmentConfig, Augmenter
from distillkit.augment import taggers, transfer_set, variants
from distillkit.augment.method import AugmentOptions
from distillkit.augment.transfer_set import build_transfer_set
from distillkit.augment.variants import schema
from distillkit.data.tables import mask_of, read_table
from distillkit.data.words import split_words
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig

SOURCE = pa.table({"text": ["a b c", "  Odd   😀 ", "c d"], "label": ["x", "y", "x"]})
PAIRS = pa.table(
    {"text": ["a b", "c d e", "f"], "text_pair": ["g h", "i", "j k l"], "label": ["x", "y", "x"]}
)


def table_of(*texts, labels=None):
    return pa.table({"text": list(texts)} | ({} if labels is None else {"label": list(labels)}))


def build(
    target,
    original=SOURCE,
    unlabelled=(),
    generated=(),
    held_out=(),
    *,
    seed=1,
    workers=1,
    tagger=None,
    named="none",
    **options,
):
    """The transfer set, read back, and its report."""
    config = AugmentConfig(**{"tagger": named, "n_iter": 6} | options)
    sources = {"original": [original], "unlabelled": unlabelled, "generated": generated}
    report = build_transfer_set(
        sources,
        target,
        AugmentOptions(config, seed, held_out=held_out, tagger=tagger, workers=workers),
    )
    table = pq.read_table(target)
    assert report["rows"] == len(table)
    return table, report


@pytest.fixture
def target(tmp_path):
    return tmp_path / "t.parquet"


def work_of(target):
    return target.with_name(f".{target.name}.work")


def rows_of(table, origin):
    return [row for row in table.to_pylist() if row["origin"] == origin]


def content(row):
    return row["text"], row.get("text_pair")


def in_any_order(rows):
    return sorted(rows, key=repr)


# ---- what is in it


def test_originals_come_back_byte_for_byte_with_their_labels(target):
    texts = [
        "  odd   spacing ",
        "😀👍🏽 e\u0301",
        "这部 电影",
        "Case",
        "case",
        "a\u00a0b",
        "one\ttwo\nthree",
    ]
    table, report = build(target, table_of(*texts, labels="xyxyxyx"))
    originals = rows_of(table, "original")
    assert [(row["text"], row["label"]) for row in originals] == list(
        zip(texts, "xyxyxyx", strict=True)
    )
    assert [row["source_row"] for row in originals] == list(range(7))
    assert report["original"] == 7


def test_columns_are_plain_and_say_where_a_row_is_from(target):
    table, _ = build(target, n_iter=30)
    assert table.schema.names == schema(pairs=False).names
    assert not any(pa.types.is_dictionary(field.type) for field in table.schema)
    for row in table.to_pylist():
        made = row["origin"] == "augmented"
        assert (
            (row["iteration"] is not None)
            == (row["changed"] is not None)
            == (row["start"] is not None)
            == made
        )
        assert made or row["rules"] == ""


def test_variants_are_the_augmenters_and_have_no_label(target):
    table, _ = build(target, n_iter=30, seed=7)
    made = Augmenter(AugmentConfig(tagger="none", n_iter=30), seed=7)(SOURCE["text"].to_pylist())
    assert [row["text"] for row in rows_of(table, "augmented")] == made
    assert {row["label"] for row in rows_of(table, "augmented")} == {None}


def test_a_text_given_twice_stands_once_and_with_two_labels_has_none(target):
    table, report = build(target, table_of("a", "b", "a", "b", labels="xyxx"), n_iter=0)
    assert table.select(["text", "label"]).to_pylist() == [
        {"text": "a", "label": "x"},
        {"text": "b", "label": None},
    ]
    assert (report["rows"], report["duplicates"]) == (2, 2)


@pytest.mark.parametrize(
    ("labels", "kind"), [([["a", "b"], []], pa.list_(pa.string())), ([0.25, -3.0], pa.float64())]
)
def test_labels_of_every_kind_of_task_come_back_on_originals_alone(target, labels, kind):
    source = PAIRS.slice(0, 2).set_column(2, "label", pa.array(labels, kind))
    unlabelled = PAIRS.slice(2).drop_columns(["label"])
    table, _ = build(target, source, [unlabelled], swap=True)
    assert table.schema.field("label").type == kind
    assert [row["label"] for row in rows_of(table, "original")] == labels
    assert {row["label"] for row in table.to_pylist() if row["origin"] != "original"} == {None}
    again = read_table(
        str(target),
        ColumnsConfig(text_pair="text_pair"),
        task="regression" if kind == pa.float64() else "multi-label",
        labels="optional",
    )
    assert again["label"].to_pylist() == table["label"].to_pylist()


def test_a_text_with_two_scores_has_none(target):
    source = table_of("a", "a", "b", "b", "c").append_column(
        "label", pa.array([1.0, 1.5, 2.0, 2.0, 3.0])
    )
    table, _ = build(target, source, n_iter=0)
    assert table["label"].to_pylist() == [None, 2.0, 3.0]


def test_three_labels_of_one_text_leave_it_without_a_label(target):
    table, _ = build(target, table_of("a", "a", "a", labels="xyy"), n_iter=0)
    assert table["label"].to_pylist() == [None]


def test_unlabelled_text_is_taken_as_it_is(target):
    more = [table_of("p  q r", "a b c", "p  q r")]
    table, report = build(target, unlabelled=more, n_iter=60)
    assert [(row["text"], row["source_row"]) for row in rows_of(table, "unlabelled")] == [
        ("p  q r", 0)
    ]
    assert report["unlabelled"] == 1
    assert not any(
        {"p", "q", "r"} & set(row["text"].split()) for row in rows_of(table, "augmented")
    )


@pytest.mark.parametrize("vary", [False, True])
def test_unlabelled_text_is_varied_only_where_that_is_asked_for(target, vary):
    more = [table_of("alpha beta gamma delta"), table_of("epsilon zeta")]
    options = {"p_mask": 0.0, "p_pos": 0.0, "p_ng": 1.0, "n_iter": 20, "vary_unlabelled": vary}
    table, report = build(
        target, table_of("one two three", labels="x"), more, [table_of("eta theta")], **options
    )
    words = {word for row in rows_of(table, "augmented") for word in row["text"].split()}
    assert words == {"one", "two", "three"} | (
        {"alpha", "beta", "gamma", "delta", "epsilon", "zeta"} if vary else set()
    )
    assert (report["unlabelled"], report["generated"]) == (2, 1)


def test_unlabelled_texts_are_not_changed_where_the_originals_of_their_place_are(target):
    options = {"p_mask": 0.5, "p_pos": 0.0, "p_ng": 0.0, "n_iter": 40, "vary_unlabelled": True}
    table, _ = build(
        target, table_of("a b c d e f", labels="x"), [table_of("p q r s t u")], **options
    )
    changed = {"a": {}, "p": {}}
    for row in rows_of(table, "augmented"):
        changed["p" if set("pqrstu") & set(row["text"]) else "a"][row["iteration"]] = row["changed"]
    both = changed["a"].keys() & changed["p"].keys()
    assert len(both) > 10
    assert sum(changed["a"][i] == changed["p"][i] for i in both) < 4


def test_an_original_comes_before_all_else_whatever_the_order_of_the_sources(target):
    sources = {
        "generated": [table_of("a", "g", "u")],
        "unlabelled": [table_of("u", "a")],
        "original": [table_of("z", "a", labels="xy")],
    }
    build_transfer_set(sources, target, AugmentOptions(AugmentConfig(n_iter=0)))
    found = {
        row["text"]: (row["origin"], row["label"]) for row in pq.read_table(target).to_pylist()
    }
    assert found == {
        "z": ("original", "x"),
        "a": ("original", "y"),
        "u": ("unlabelled", None),
        "g": ("generated", None),
    }


def test_no_iteration_makes_no_variant_and_needs_no_tagger(target):
    table, report = build(
        target, n_iter=0, tagger=lambda texts: 1 / 0, unlabelled=[table_of("new")]
    )
    assert table["text"].to_pylist() == [*SOURCE["text"].to_pylist(), "new"]
    assert report["augmented"] == 0


def test_no_source_makes_an_empty_file(target):
    table, report = build(target, SOURCE.slice(0, 0))
    assert len(table) == report["rows"] == 0
    assert table.schema.names == schema(pairs=False).names


def test_the_mask_word_travels_with_the_file(target):
    build(target, mask="<blank>", p_mask=0.9)
    again = read_table(str(target), ColumnsConfig(), labels="optional")
    assert mask_of(again) == "<blank>"
    assert again.column_names == ["text", "label", "origin", "rules"]
    assert any("<blank>" in text for text in again["text"].to_pylist())


def test_a_callable_tagger_replaces_the_named_one(target):
    def whole(texts):
        return [[(text.strip(), "T")] for text in texts]

    table, _ = build(target, tagger=whole, p_mask=1.0, p_pos=0.0, p_ng=0.0, n_iter=1)
    assert [row["text"] for row in rows_of(table, "augmented")] == ["[MASK]", "  [MASK] "]


def test_chinese_is_tagged_word_by_word(target):
    pytest.importorskip("jieba")
    config = AugmentConfig(p_mask=1.0, p_pos=0.0, p_ng=0.0)
    build_transfer_set(
        {"original": [table_of("电影好看", labels="x")]}, target, AugmentOptions(config)
    )
    assert pq.read_table(target)["text"].to_pylist() == ["电影好看", "[MASK][MASK]"]


# ---- leaks


def normal(text):
    return " ".join(text.casefold().split())


def test_no_added_row_is_a_held_out_one_case_and_space_aside(tmp_path):
    options = {"p_mask": 0.0, "p_pos": 0.5, "n_iter": 200}
    source = table_of("a b", "b c", "c a", labels="xyx")
    free, _ = build(tmp_path / "free.parquet", source, **options)
    held = [table_of("A  C ", "zz", "cafe\u0301"), table_of(" C", "generated STRASSE")]
    more = [table_of("ZZ", "new text", "Caf\u00e9")]
    found, report = build(
        tmp_path / "t.parquet", source, more, [table_of("Generated  straße")], held, **options
    )
    assert {"a c", "c"} <= set(free["text"].to_pylist())  # they would be there
    added = {normal(row["text"]) for row in found.to_pylist() if row["origin"] != "original"}
    assert not added & {"a c", "zz", "c", "generated strasse", "caf\u00e9"}
    assert "new text" in added
    assert set(free["text"].to_pylist()) - set(found["text"].to_pylist()) == {"a c", "c"}
    assert (report["leaks"], report["generated"]) == (5, 0)


def test_no_added_pair_is_a_held_out_one(target):
    source = pa.table({"text": ["a b"], "text_pair": ["c"], "label": ["x"]})
    held = [pa.table({"text": ["[mask]  [MASK]", "a"], "text_pair": ["C", "b [MASK]"]})]
    table, report = build(target, source, held_out=held, p_mask=1.0, p_pos=0.0, p_ng=0.0, n_iter=3)
    assert [content(row) for row in rows_of(table, "augmented")] == [
        ("a b", "[MASK]"),
        ("[MASK] [MASK]", "[MASK]"),
    ]
    assert report["leaks"] == 1


def test_an_original_stays_even_if_it_is_held_out_too(target):
    held = [table_of("A B C", "A", "New")]
    table, report = build(
        target,
        unlabelled=[table_of("new")],
        held_out=held,
        n_iter=60,
        p_ng=1.0,
        p_mask=0.0,
        p_pos=0.0,
    )
    assert [row["text"] for row in rows_of(table, "original")] == SOURCE["text"].to_pylist()
    assert {row["text"] for row in table.to_pylist()} >= {"b", "c", "a b"}
    assert not {row["text"] for row in table.to_pylist()} & {"a", "new"}
    assert report["leaks"] == 2


def test_what_was_held_out_last_time_is_not_what_is_now(target):
    for held, kept in (("p", ["q"]), ("q", ["p"]), ("r", ["p", "q"])):
        table, _ = build(
            target, unlabelled=[table_of("p", "q")], held_out=[table_of(held)], n_iter=0
        )
        assert [row["text"] for row in rows_of(table, "unlabelled")] == kept


# ---- pairs


def test_originals_of_pairs_come_back_with_both_texts(target):
    table, _ = build(target, PAIRS)
    assert [(*content(row), row["label"]) for row in rows_of(table, "original")] == [
        tuple(r.values()) for r in PAIRS.to_pylist()
    ]
    assert table.schema.names == schema(pairs=True).names


@pytest.mark.parametrize(
    ("sides", "changed"),
    [
        ("first", {(1, 0)}),
        ("second", {(0, 1)}),
        ("both", {(1, 1)}),
        ("turn", {(1, 0), (0, 1), (1, 1)}),
    ],
)
def test_sides_of_a_pair_are_changed_as_asked_for(target, sides, changed):
    table, _ = build(target, PAIRS, pair_sides=sides, p_mask=1.0, p_pos=0.0, p_ng=0.0)
    masked = {
        tuple(int("[MASK]" in text) for text in content(row)) for row in rows_of(table, "augmented")
    }
    assert masked == changed
    assert len(rows_of(table, "augmented")) == 3 * len(changed)


def test_swap_adds_each_pair_the_other_way_round_and_turns_variants(target):
    source = pa.concat_tables(
        [PAIRS, pa.table({"text": ["same"], "text_pair": ["same"], "label": ["x"]})]
    )
    table, report = build(target, source, swap=True, n_iter=20)
    given = [content(row) for row in source.to_pylist()]
    found = {content(row): row for row in table.to_pylist()}
    assert len(found) == len(table)
    for a, b in given[:3]:
        row = found[b, a]
        assert (row["origin"], row["label"], row["rules"], row["iteration"]) == (
            "augmented",
            None,
            "swap",
            None,
        )
    assert (found["same", "same"]["origin"], found["same", "same"]["label"]) == ("original", "x")
    turned = [row for row in rows_of(table, "augmented") if "swap" in row["rules"]]
    assert 3 < len(turned) - 3 < report["augmented"] - 6
    assert report["rules"]["swap"] == len(turned)


def test_swap_leaves_unlabelled_pairs_as_they_are(target):
    more = [pa.table({"text": ["p"], "text_pair": ["q"]})]
    table, _ = build(target, PAIRS, more, swap=True, n_iter=0)
    assert [content(row) for row in table.to_pylist() if set(content(row)) == {"p", "q"}] == [
        ("p", "q")
    ]
    assert len(table) == 7


# ---- the report


@pytest.mark.parametrize("pairs", [False, True])
def test_counts_add_up(target, pairs):
    texts = [f"w{i % 4} x{i % 3} y" for i in range(12)]
    columns = {"text": texts, "label": ["x"] * 12} | (
        {"text_pair": [f"z {i % 2}" for i in range(12)]} if pairs else {}
    )
    more = {"text": ["w0", "more of it", "held  OUT"], "text_pair": ["z", "z 9", "k"]}
    more = pa.table({name: more[name] for name in columns if name in more})
    held = pa.table(
        {
            name: [text]
            for name, text in (("text", "Held out"), ("text_pair", "k"))
            if name in columns
        }
    )
    options = {"n_iter": 10, "vary_unlabelled": True, "swap": True, "p_mask": 0.2}
    table, report = build(target, pa.table(columns), [more], [more.slice(1, 1)], [held], **options)
    candidates = 12 + 3 + 1 + 10 * (12 + 3) + (12 if pairs else 0)
    assert report["rows"] + report["duplicates"] + report["leaks"] == candidates
    assert report["leaks"] >= 1
    origins = Counter(table["origin"].to_pylist())
    assert {
        name: report[name] for name in ("original", "unlabelled", "generated", "augmented")
    } == {name: origins[name] for name in ("original", "unlabelled", "generated", "augmented")}
    assert len({content(row) for row in table.to_pylist()}) == len(table) == report["rows"]
    assert report["rules"] == Counter(
        rule for rules in table["rules"].to_pylist() for rule in rules.split("+") if rule
    )
    assert sum(report["lengths"].values()) == report["rows"]


def test_lengths_count_words_in_bins_that_double(target):
    lengths = [1, 2, 3, 4, 5, 8, 9, 16, 17, 33]
    _, report = build(
        target,
        table_of(*[" ".join(f"w{i}" for i in range(n)) for n in lengths], labels="x" * 10),
        n_iter=0,
    )
    assert report["lengths"] == {
        "0-1": 1,
        "2": 1,
        "3-4": 2,
        "5-8": 2,
        "9-16": 2,
        "17-32": 1,
        "33-64": 1,
    }
    assert list(report["lengths"]) == ["0-1", "2", "3-4", "5-8", "9-16", "17-32", "33-64"]


def test_lengths_of_variants_are_those_of_what_is_left(target):
    table, report = build(
        target,
        table_of("one two three four five six", "7 8", labels="xy"),
        n_iter=40,
        p_mask=0.3,
        p_ng=0.8,
    )
    words = Counter(
        max(len(split_words(text.replace("[MASK]", "M"))) - 1, 0).bit_length()
        for text in table["text"].to_pylist()
    )
    assert list(report["lengths"].values()) == [words[b] for b in sorted(words)]


# ---- the same rows in any blocks, as a plain dict makes them


def reference(config, seed, originals, unlabelled=(), generated=()):
    """The rows of a transfer set by a dict; `originals` as rows with a label."""
    pairs = "text_pair" in originals[0]
    first, labels = {}, {}
    blank = {field.name: None for field in schema(pairs)} | {"rules": ""}
    for origin, rows in (
        ("original", originals),
        ("unlabelled", unlabelled),
        ("generated", generated),
    ):
        for number, row in enumerate(rows):
            first.setdefault(content(row), blank | row | {"origin": origin, "source_row": number})
            labels.setdefault(content(row), set()).update({row.get("label")} - {None})
    columns = [
        [row[name] for row in originals] for name in (("text", "text_pair") if pairs else ("text",))
    ]
    for table in Augmenter(config, seed).variants(*columns):
        for row in table.to_pylist():
            first.setdefault(content(row), row)
    for key, found in labels.items():
        if len(found) > 1:
            first[key]["label"] = None
    return in_any_order(first.values())


WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3).map(" ".join)


@pytest.mark.parametrize("pairs", [False, True])
@settings(max_examples=15, deadline=None)
@given(
    data=st.data(),
    block=st.integers(1, 4),
    unit=st.sampled_from([1, 12, 2**17]),
    group=st.sampled_from([1, 5, 2**17]),
)
def test_rows_are_those_of_a_plain_dict_in_any_blocks(
    pairs, tmp_path_factory, data, block, unit, group
):
    names = ("text", "text_pair") if pairs else ("text",)
    row = st.fixed_dictionaries(dict.fromkeys(names, WORDS))
    originals = data.draw(
        st.lists(
            st.fixed_dictionaries(dict.fromkeys(names, WORDS) | {"label": st.sampled_from("xy")}),
            min_size=1,
            max_size=9,
        )
    )
    unlabelled, generated = (data.draw(st.lists(row, max_size=6)) for _ in range(2))
    config = AugmentConfig(tagger="none", n_iter=4, p_mask=0.2, p_pos=0.3)
    sources = {"original": originals, "unlabelled": unlabelled, "generated": generated}
    sources = {name: [pa.Table.from_pylist(rows)] if rows else [] for name, rows in sources.items()}
    target = tmp_path_factory.mktemp("built") / "t.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer_set, "BLOCK_ROWS", block)
        patch.setattr(transfer_set, "_UNIT_CANDIDATES", unit)
        patch.setattr(transfer_set, "_GROUP_ROWS", group)
        build_transfer_set(sources, target, AugmentOptions(config, 3, workers=1))
    found = pq.read_table(target).to_pylist()
    assert in_any_order(found) == reference(config, 3, originals, unlabelled, generated)
    # Those of an origin are in the order of their source.
    for origin in ("original", "unlabelled", "generated"):
        numbers = [row["source_row"] for row in found if row["origin"] == origin]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_swapped_pairs_are_the_same_in_any_blocks(target, block, monkeypatch):
    pairs = [
        ("a b", "c"),
        ("c", "a b"),
        ("a", "c d"),
        ("b b", "b"),
        ("c d", "a"),
        ("e", "f"),
        ("f", "e"),
    ]
    source = pa.table(
        {
            "text": [a for a, _ in pairs],
            "text_pair": [b for _, b in pairs],
            "label": list("xxyxyxy"),
        }
    )
    whole, counts = build(target, source, swap=True, n_iter=12)
    monkeypatch.setattr(transfer_set, "BLOCK_ROWS", block)
    parts, again = build(target, source, swap=True, n_iter=12)
    assert sorted(map(content, parts.to_pylist())) == sorted(map(content, whole.to_pylist()))
    assert rows_of(parts, "original") == rows_of(whole, "original")
    assert {name: counts[name] for name in ("rows", "duplicates")} == {
        name: again[name] for name in ("rows", "duplicates")
    }


def test_duplicates_and_two_labels_are_found_across_blocks(target, monkeypatch):
    monkeypatch.setattr(transfer_set, "BLOCK_ROWS", 2)
    source = table_of("a", "b", "c", "d", "a", "e", "b", labels="xxxxyxx")
    more = [table_of("p", "a"), table_of("q", "r", "p")]
    table, report = build(target, source, more, n_iter=0)
    assert [(row["text"], row["label"], row["source_row"]) for row in table.to_pylist()] == [
        ("a", None, 0),
        ("b", "x", 1),
        ("c", "x", 2),
        ("d", "x", 3),
        ("e", "x", 5),
        ("p", None, 0),
        ("q", None, 2),
        ("r", None, 3),
    ]
    assert report["duplicates"] == 4


def test_an_original_comes_before_an_equal_variant_of_an_earlier_block(target, monkeypatch):
    monkeypatch.setattr(transfer_set, "BLOCK_ROWS", 1)
    source = table_of("a b c", "b c", "c", labels="xyx")
    table, _ = build(target, source, p_mask=0.0, p_pos=0.0, p_ng=1.0, n_iter=40)
    assert [(row["text"], row["label"]) for row in rows_of(table, "original")] == [
        ("a b c", "x"),
        ("b c", "y"),
        ("c", "x"),
    ]
    assert {row["text"] for row in rows_of(table, "augmented")} == {"a", "b", "a b"}


# ---- the same bytes however it is made

MANY = {
    "original": [
        table_of(*[f"w{i % 9} x{i % 5}  y{i % 3} ." for i in range(25)], labels="xyzxy" * 5)
    ],
    "unlabelled": [table_of(*[f"w{i % 7} more {i}" for i in range(11)])],
    "generated": [table_of("w1", "w2 x2", "written by a model")],
}
MANY_PAIRS = {
    "original": [
        pa.table(
            {
                "text": [f"w{i % 5} x" for i in range(9)],
                "text_pair": [f"y z{i % 5}" for i in range(9)],
                "label": list("xyx" * 3),
            }
        )
    ],
    "unlabelled": [pa.table({"text": ["w1 x", "p"], "text_pair": ["y z1", "q r"]})],
}
HELD = {
    "single": [table_of("W2", "w1 MORE 1")],
    "pairs": [pa.table({"text": ["W1 x", "P"], "text_pair": ["Y", "q  R"]})],
}


@pytest.fixture(params=["single", "pairs"])
def make(request, tmp_path, monkeypatch):
    """Build a transfer set of several blocks at a path of its own; return its bytes."""
    monkeypatch.setattr(transfer_set, "BLOCK_ROWS", 10 if request.param == "single" else 4)
    monkeypatch.setenv("DISTILLKIT_CACHE", str(tmp_path / "cache"))
    sources = MANY if request.param == "single" else MANY_PAIRS

    def build(name="t.parquet", *, sources=sources, seed=1, workers=1, **options):
        options = {
            "tagger": "pattern",
            "n_iter": 5,
            "p_mask": 0.2,
            "vary_unlabelled": True,
            "swap": True,
        } | options
        target = tmp_path / name
        report = build_transfer_set(
            sources,
            target,
            AugmentOptions(
                AugmentConfig(**options),
                seed,
                held_out=HELD[request.param],
                workers=workers,
            ),
        )
        assert report["leaks"]
        assert report["duplicates"]
        assert not work_of(target).exists()
        return target.read_bytes()

    build.sources, build.target, build.held_out = (
        sources,
        tmp_path / "t.parquet",
        HELD[request.param],
    )
    return build


def test_bytes_do_not_depend_on_the_number_of_processes(make):
    assert make(workers=2) == make("other.parquet", workers=1)


@pytest.mark.parametrize("slots", [1, 13])
def test_bytes_do_not_depend_on_how_many_variants_are_made_at_a_time(make, slots, monkeypatch):
    expected = make()
    monkeypatch.setattr(variants, "_SLICE", slots)
    assert make() == expected


def test_bytes_do_not_depend_on_the_memory(make, monkeypatch):
    expected = make(memory_mb=64)
    compared = []
    keep_first = transfer_set.keep_first
    monkeypatch.setattr(
        transfer_set, "keep_first", lambda *given: compared.append(given[1:3]) or keep_first(*given)
    )
    monkeypatch.setattr(transfer_set, "BYTES_A_ROW", 2**20 // 2)
    for megabytes in (1, 7):
        compared.clear()
        assert make(memory_mb=megabytes) == expected
        (shares,) = {of for _, of in compared}
        assert sorted(share for share, _ in compared) == list(range(shares))
        assert shares > 2


def test_row_groups_have_many_units_rows(make, monkeypatch):
    expected = pq.read_table(pa.BufferReader(make()))
    for rows in (1, 10):
        monkeypatch.setattr(transfer_set, "_GROUP_ROWS", rows)
        file = pq.ParquetFile(pa.BufferReader(make()))
        assert file.read().equals(expected)
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert len(groups) > 1
        assert min(groups[:-1]) >= rows


def test_bytes_do_not_depend_on_the_order_of_the_work(make, monkeypatch):
    expected = make()

    def backwards(function, items, **_):
        return reversed([function(item) for item in reversed(items)])

    monkeypatch.setattr(transfer_set, "each", backwards)
    assert make() == expected


def test_bytes_do_not_depend_on_how_the_sources_are_cut(make):
    expected = make()
    for rows in (1, 7):
        cut = {
            name: (table.slice(i, rows) for table in tables for i in range(0, len(table), rows))
            for name, tables in make.sources.items()
        }
        assert make(sources=cut) == expected


def test_another_seed_makes_another_transfer_set(make):
    assert make(seed=2) != make(seed=1)


def test_tags_are_made_once_for_all_seeds_and_targets(make, tmp_path, monkeypatch):
    module = f"tagger_of_{tmp_path.name}"  # one that this process has not imported
    (tmp_path / f"{module}.py").write_text(
        f"def tag(texts):\n    open({str(tmp_path / 'calls')!r}, 'a').write('.' * len(texts))\n"
        "    return [[(word, 'X') for word in text.split()] for text in texts]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    first = make(tagger=f"{module}:tag")
    calls = (tmp_path / "calls").read_text()
    rows = sum(len(table) for name in ("original", "unlabelled") for table in make.sources[name])
    assert len(calls) == rows * (
        2 if "text_pair" in make.sources["original"][0].column_names else 1
    )
    assert make("other.parquet", tagger=f"{module}:tag") == first
    make(seed=9, tagger=f"{module}:tag")
    assert (tmp_path / "calls").read_text() == calls


# ---- killed and resumed


class Stop:
    """Ends the program when the n-th file is about to be, or has just been, put in its place."""

    def __init__(self, n, after, end):
        self.n, self.after, self.end, self.replace = n, after, end, os.replace

    def __call__(self, source, target):
        self.n -= 1
        if self.n or self.after:
            self.replace(source, target)
        if not self.n:
            self.end()


def interrupt():
    raise KeyboardInterrupt


@pytest.fixture
def stop_at():
    """Run a function and end it at its n-th file; say whether it got there."""

    def run(n, function, *, after=False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "replace", Stop(n, after, interrupt))
            try:
                function()
            except KeyboardInterrupt:
                return True
        return False

    return run


def files_made(function):
    stop = Stop(-1, False, interrupt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", stop)
        function()
    return -1 - stop.n


@pytest.mark.parametrize("after", [False, True])
def test_a_build_stopped_at_any_file_goes_on_to_the_same_bytes(make, stop_at, after):
    expected = make("never-stopped.parquet")
    for n in range(1, files_made(make) + 1):
        make.target.unlink(missing_ok=True)
        assert stop_at(n, make, after=after)
        assert work_of(make.target).is_dir()
        assert make() == expected


def test_a_build_stopped_again_and_again_gets_there(make, stop_at):
    expected = make("never-stopped.parquet")
    # Enough to lay the sources out anew and, at the end, to write all that stays; a few files
    # further each time.
    attempts = next(attempt for attempt in range(100) if not stop_at(15, make))
    assert attempts > 1
    assert make.target.read_bytes() == expected


def test_what_is_done_is_not_done_again(make, stop_at):
    make("never-stopped.parquet")
    last = files_made(make)

    def done():
        return {
            path.name: path.stat().st_mtime_ns
            for path in work_of(make.target).rglob("*.*")
            if path.name.startswith(("tags", "lexicon", "candidates", "hashes", "first", "done"))
        }

    assert stop_at(last, make)
    before = done()
    assert len(before) > 15
    assert stop_at(last - len(before), make)
    assert done() == before


def test_an_old_file_stays_until_the_new_one_is_whole(make, stop_at):
    make.target.write_bytes(b"old")
    assert stop_at(12, make)
    assert make.target.read_bytes() == b"old"
    assert sorted(
        path.name for path in make.target.parent.iterdir() if "t.parquet" in path.name
    ) == [
        ".t.parquet.work",
        "t.parquet",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"p_mask": 0.4},
        {"tagger": "none"},
        {"n_iter": 2},
        {"mask": "<m>"},
        {"memory_mb": 1},
        {"vary_unlabelled": False},
        {"sources": "fewer"},
        {"sources": "other"},
    ],
    ids=str,
)
def test_a_stopped_build_of_other_settings_leaves_no_trace(make, stop_at, change):
    original = make.sources["original"][0]
    other = original.set_column(
        0, "text", pa.array([text.replace("w1", "v1") for text in original["text"].to_pylist()])
    )
    sources = {
        "fewer": make.sources | {"original": [original.slice(0, 5)]},
        "other": make.sources | {"original": [other]},
    }
    change = {
        name: sources[value] if name == "sources" else value for name, value in change.items()
    }
    expected = make("never-stopped.parquet", **change)
    make("tagged.parquet")
    assert stop_at(files_made(make) - 1, make)
    assert make(**change) == expected


def by_letter(texts):
    return [[(word, word[0]) for word in text.split()] for text in texts]


def all_alike(texts):
    return [[(word, "") for word in text.split()] for text in texts]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_tagger_of_ones_own_is_asked_each_time(tmp_path, stop_at, stopped):
    def run(tagger, name="t.parquet"):
        return build(tmp_path / name, MANY["original"][0], tagger=tagger, p_pos=0.8, p_mask=0.1)[0]

    expected = run(by_letter, "expected.parquet")
    last = files_made(lambda: run(all_alike))
    if stopped:
        assert stop_at(last, lambda: run(all_alike))
    assert run(by_letter) == expected


def test_a_stopped_build_forgets_the_tags_of_a_module_that_has_changed(
    tmp_path, monkeypatch, stop_at
):
    monkeypatch.syspath_prepend(tmp_path)
    module = "tagger_that_changes"

    def run(tag, name="t.parquet"):
        (tmp_path / f"{module}.py").write_text(
            f"def tag(texts): return [[(w, {tag}) for w in t.split()] for t in texts]\n"
        )
        sys.modules.pop(module, None)
        importlib.invalidate_caches()
        taggers._loaded.cache_clear()
        return build(
            tmp_path / name, MANY["original"][0], named=f"{module}:tag", p_pos=0.8, p_mask=0.1
        )[0]

    expected = run("w[0]", "expected.parquet")
    run("''", "tagged.parquet")
    assert stop_at(files_made(lambda: run("''")), lambda: run("''"))
    assert run("w[0]") == expected
    sys.modules.pop(module)
    taggers._loaded.cache_clear()


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
import test_transfer_set as test
from distillkit.augment import transfer_set
transfer_set.BLOCK_ROWS = 10
os.replace = test.Stop({n}, {after}, lambda: os.kill(os.getpid(), signal.SIGKILL))
config = test.AugmentConfig(tagger="none", n_iter=5, p_mask=0.2)
transfer_set.build_transfer_set(test.MANY, test.transfer_set.Path({target!r}), test.AugmentOptions(config, held_out=test.HELD["single"], workers=1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_killed_process_is_taken_up_by_another(tmp_path, monkeypatch, share):
    monkeypatch.setattr(transfer_set, "BLOCK_ROWS", 10)
    config = AugmentConfig(tagger="none", n_iter=5, p_mask=0.2)

    def run(name):
        build_transfer_set(
            MANY, tmp_path / name, AugmentOptions(config, held_out=HELD["single"], workers=1)
        )
        return (tmp_path / name).read_bytes()

    files = files_made(lambda: run("whole.parquet"))
    path = [os.path.dirname(__file__), *filter(None, sys.path)]
    script = KILLED.format(
        path=path, n=int(files * share), after=share > 0.5, target=str(tmp_path / "t.parquet")
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not (tmp_path / "t.parquet").exists()
    left = {path.name for path in work_of(tmp_path / "t.parquet").rglob("*.arrow")}
    assert "rows-000000.arrow" in left
    assert run("t.parquet") == (tmp_path / "whole.parquet").read_bytes()
    assert not work_of(tmp_path / "t.parquet").exists()


# ---- mistakes


def refused(match, target, *given, **options):
    with pytest.raises(InputError, match=match) as caught:
        build(target, *given, **options)
    assert "\n" not in str(caught.value)
    assert not target.exists()
    assert not work_of(target).exists()


@pytest.mark.parametrize("where", ["original", "unlabelled", "generated"])
def test_a_text_that_holds_the_mask_is_refused_wherever_it_is(target, where):
    bad = table_of("fine", "press [MASK] now")
    given = {"original": bad} if where == "original" else {where: [bad]}
    refused(r"'press \[MASK\] now' holds the mask word", target, **given)


def test_a_second_text_that_holds_the_mask_is_refused(target):
    refused(
        "holds the mask word",
        target,
        pa.table({"text": ["a"], "text_pair": ["[MASK]"], "label": ["x"]}),
    )


@pytest.mark.parametrize("where", ["unlabelled", "generated", "held_out"])
@pytest.mark.parametrize("original", [SOURCE, PAIRS])
def test_pairs_and_single_texts_are_not_mixed(target, where, original):
    other = SOURCE if original is PAIRS else PAIRS
    refused("some tables have pairs and some single texts", target, original, **{where: [other]})


@pytest.mark.parametrize("name", ["patern", "no_such_module:tag", "json:no_such_function"])
def test_an_unknown_tagger_is_refused(target, name):
    with pytest.raises(InputError, match=name.partition(":")[2] or name):
        build_transfer_set(
            {"original": [SOURCE]}, target, AugmentOptions(AugmentConfig(tagger=name))
        )
    assert not work_of(target).exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_tagger_that_changes_words_is_refused(target, workers, monkeypatch):
    monkeypatch.setattr(transfer_set, "BLOCK_ROWS", 1)
    refused(
        "does not stand in",
        target,
        table_of("Film", "Other", labels="xy"),
        tagger=lambda texts: [[(t.lower(), "T")] for t in texts],
        workers=workers,
    )


def test_another_process_at_it_is_said_and_left_alone(target):
    work_of(target).mkdir()
    (work_of(target) / "rows-000000.arrow").write_text("its")
    with FileLock(work_of(target) / ".lock"):
        with pytest.raises(InputError, match=r"t\.parquet: another process is making it"):
            build(target)
        assert (work_of(target) / "rows-000000.arrow").read_text() == "its"
    build(target)
    assert not work_of(target).exists()


def test_with_swap_a_held_out_pair_is_guarded_the_other_way_round_too(tmp_path):
    source = pa.table({"text": ["a b"], "text_pair": ["c"], "label": ["x"]})
    held = pa.table({"text": ["A  B"], "text_pair": ["C"]})
    target = tmp_path / "t.parquet"
    report = build_transfer_set(
        {"original": [source]},
        target,
        AugmentOptions(
            AugmentConfig(tagger="none", n_iter=0, swap=True),
            held_out=[held],
        ),
    )
    assert (report["original"], report["leaks"]) == (1, 1)
    assert pq.read_table(target)["text"].to_pylist() == ["a b"]

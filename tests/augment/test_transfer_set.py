"""The transfer set on disk: which rows it has, and the same bytes however it was made."""

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

from distillkit import AugmentConfig, Augmenter, pipeline
from distillkit.augment import layout, transfer_set
from distillkit.augment.method import AugmentOptions
from distillkit.augment.transfer_set import build_transfer_set
from distillkit.augment.variants import ORIGINS, schema
from distillkit.data.tables import mask_of, read_table
from distillkit.errors import InputError, Unfinished
from distillkit.recipe import ColumnsConfig

MASK_ALL = {"p_mask": 1.0, "p_pos": 0.0, "p_ng": 0.0}
CUT_ALL = {"p_mask": 0.0, "p_pos": 0.0, "p_ng": 1.0}


def table_of(*texts, labels=None):
    return pa.table({"text": list(texts)} | ({} if labels is None else {"label": list(labels)}))


def pairs_of(*rows, labels=None):
    texts, pairs = zip(*rows, strict=True)
    return table_of(*texts, labels=labels).add_column(1, "text_pair", [list(pairs)])


SOURCE = table_of("a b c", "  Odd   😀 ", "c d", labels="xyx")
PAIRS = pairs_of(("a b", "g h"), ("c d e", "i"), ("f", "j k l"), labels="xyx")


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
    options = AugmentOptions(config, seed, held_out=held_out, tagger=tagger, workers=workers)
    report = build_transfer_set(sources, target, options)
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
        "1\t2\n3",
    ]
    table, report = build(target, table_of(*texts, labels="xyxyxyx"))
    originals = rows_of(table, "original")
    assert [row["text"] for row in originals] == texts
    assert [row["label"] for row in originals] == list("xyxyxyx")
    assert [row["source_row"] for row in originals] == list(range(7))
    assert report["original"] == 7


def test_variants_are_the_augmenters_and_only_they_say_what_was_changed(target):
    table, _ = build(target, n_iter=30, seed=7)
    made = Augmenter(AugmentConfig(tagger="none", n_iter=30), seed=7)(SOURCE["text"].to_pylist())
    assert [row["text"] for row in rows_of(table, "augmented")] == made
    assert {row["label"] for row in rows_of(table, "augmented")} == {None}
    assert table.schema.names == schema(pairs=False).names
    assert not any(pa.types.is_dictionary(field.type) for field in table.schema)
    for row in table.to_pylist():
        made = row["origin"] == "augmented"
        for name in ("iteration", "changed", "start"):
            assert (row[name] is not None) == made
        assert made or row["rules"] == ""


@pytest.mark.parametrize(
    ("texts", "labels", "expected"),
    [
        ("abab", "xyxx", {"a": "x", "b": None}),
        ("aaa", "xyy", {"a": None}),
        ("aba", [None, "y", "x"], {"b": "y", "a": "x"}),
        ("aabbc", [1.0, 1.5, 2.0, 2.0, 3.0], {"a": None, "b": 2.0, "c": 3.0}),
    ],
)
def test_a_text_stands_once_and_without_conflicting_labels(target, texts, labels, expected):
    table, report = build(target, table_of(*texts, labels=labels), n_iter=0)
    rows = zip(table["text"].to_pylist(), table["label"].to_pylist(), strict=True)
    assert list(rows) == list(expected.items())
    assert report["duplicates"] == len(texts) - len(expected)


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
    task = "regression" if kind == pa.float64() else "multi-label"
    columns = ColumnsConfig(text_pair="text_pair")
    again = read_table(str(target), columns, task=task, labels="optional")
    assert again["label"].to_pylist() == table["label"].to_pylist()


@pytest.mark.parametrize("vary", [False, True])
def test_unlabelled_text_is_taken_as_it_is_and_varied_only_where_that_is_asked_for(target, vary):
    more = [table_of("alpha  beta gamma", "one two three", "alpha  beta gamma"), table_of("delta")]
    original, options = table_of("one two three", labels="x"), CUT_ALL | {"n_iter": 20}
    generated = [table_of("eta theta")]
    table, report = build(target, original, more, generated, vary_unlabelled=vary, **options)
    unlabelled = [(row["text"], row["source_row"]) for row in rows_of(table, "unlabelled")]
    assert unlabelled == [("alpha  beta gamma", 0), ("delta", 3)]
    words = {word for row in rows_of(table, "augmented") for word in row["text"].split()}
    assert words == {"one", "two", "three"} | ({"alpha", "beta", "gamma"} if vary else set())
    assert (report["unlabelled"], report["generated"]) == (2, 1)


def test_unlabelled_texts_are_not_changed_where_the_originals_of_their_place_are(target):
    options = {"p_mask": 0.5, "p_pos": 0.0, "p_ng": 0.0, "n_iter": 40, "vary_unlabelled": True}
    original, more = table_of("a b c d e f", labels="x"), table_of("p q r s t u")
    table, _ = build(target, original, [more], **options)
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
    rows = pq.read_table(target).to_pylist()
    assert {row["text"]: (row["origin"], row["label"]) for row in rows} == {
        "z": ("original", "x"),
        "a": ("original", "y"),
        "u": ("unlabelled", None),
        "g": ("generated", None),
    }


def test_no_iteration_makes_no_variant_and_no_source_an_empty_file(target):
    table, report = build(
        target, n_iter=0, tagger=lambda texts: 1 / 0, unlabelled=[table_of("new")]
    )
    assert table["text"].to_pylist() == [*SOURCE["text"].to_pylist(), "new"]
    assert report["augmented"] == 0
    table, report = build(target, SOURCE.slice(0, 0))
    assert len(table) == report["rows"] == 0
    assert table.schema.names == schema(pairs=False).names


def test_the_mask_word_travels_with_the_file(target):
    build(target, mask="<blank>", p_mask=0.9)
    again = read_table(str(target), ColumnsConfig(), labels="optional")
    assert mask_of(again) == "<blank>"
    assert again.column_names == ["text", "label", "origin", "rules"]
    assert any("<blank>" in text for text in again["text"].to_pylist())


def test_chinese_is_tagged_word_by_word(target):
    table, _ = build(target, table_of("电影好看", labels="x"), named="auto", **MASK_ALL)
    assert table["text"].to_pylist() == ["电影好看", "[MASK][MASK]"]


# ---- leaks


def normal(text):
    return " ".join(text.casefold().split())


def test_no_added_row_is_a_held_out_one_case_and_space_aside(tmp_path):
    options = {"p_mask": 0.0, "p_pos": 0.5, "n_iter": 200}
    source = table_of("a b", "b c", "c a", labels="xyx")
    free, _ = build(tmp_path / "free.parquet", source, **options)
    held = [table_of("A  C ", "zz", "cafe\u0301"), table_of(" C", "generated STRASSE")]
    more = [table_of("ZZ", "new text", "Caf\u00e9")]
    generated = [table_of("Generated  straße")]
    found, report = build(tmp_path / "t.parquet", source, more, generated, held, **options)
    assert {"a c", "c"} <= set(free["text"].to_pylist())  # they would be there
    added = {normal(row["text"]) for row in found.to_pylist() if row["origin"] != "original"}
    assert not added & {"a c", "zz", "c", "generated strasse", "caf\u00e9"}
    assert "new text" in added
    assert set(free["text"].to_pylist()) - set(found["text"].to_pylist()) == {"a c", "c"}
    assert (report["leaks"], report["generated"]) == (5, 0)


def test_no_added_pair_is_a_held_out_one_nor_with_swap_one_turned_round(target):
    source = pairs_of(("a b", "c"), labels="x")
    held = [pairs_of(("[mask]  [MASK]", "C"), ("a", "b [MASK]"))]
    table, report = build(target, source, held_out=held, n_iter=3, **MASK_ALL)
    made = [content(row) for row in rows_of(table, "augmented")]
    assert made == [("a b", "[MASK]"), ("[MASK] [MASK]", "[MASK]")]
    assert report["leaks"] == 1
    held = [pairs_of(("A  B", "C"))]
    table, report = build(target, source, held_out=held, n_iter=0, swap=True)
    assert [content(row) for row in table.to_pylist()] == [("a b", "c")]
    assert report["leaks"] == 1


def test_an_original_stays_even_if_it_is_held_out_too(target):
    held = [table_of("A B C", "A", "New")]
    table, report = build(target, unlabelled=[table_of("new")], held_out=held, n_iter=60, **CUT_ALL)
    found = table["text"].to_pylist()
    assert found[:3] == SOURCE["text"].to_pylist()
    assert {"b", "c", "a b"} <= set(found)
    assert not {"a", "new"} & set(found)
    assert report["leaks"] == 2


def test_what_was_held_out_last_time_is_not_what_is_now(target):
    for held, kept in (("p", ["q"]), ("q", ["p"]), ("r", ["p", "q"])):
        more = [table_of("p", "q")]
        table, _ = build(target, unlabelled=more, held_out=[table_of(held)], n_iter=0)
        assert [row["text"] for row in rows_of(table, "unlabelled")] == kept


# ---- pairs


def test_swap_adds_each_original_pair_the_other_way_round_and_turns_variants(target):
    source = pa.concat_tables([PAIRS, pairs_of(("same", "same"), labels="x")])
    table, report = build(target, source, [pairs_of(("p", "q"))], swap=True, n_iter=20)
    found = {content(row): row for row in table.to_pylist()}
    assert len(found) == len(table)
    turned = {"origin": "augmented", "label": None, "rules": "swap", "iteration": None}
    for a, b in map(content, PAIRS.to_pylist()):
        assert {name: found[b, a][name] for name in turned} == turned
    assert (found["same", "same"]["origin"], found["same", "same"]["label"]) == ("original", "x")
    assert ("p", "q") in found
    assert ("q", "p") not in found
    turned = [row for row in rows_of(table, "augmented") if "swap" in row["rules"]]
    assert 3 < len(turned) - 3 < report["augmented"] - 6
    assert report["rules"]["swap"] == len(turned)


# ---- the report


@pytest.mark.parametrize("pairs", [False, True])
def test_counts_add_up(target, pairs):
    rows = [(f"w{i % 4} x{i % 3} y", f"z {i % 2}") for i in range(12)]
    source = pairs_of(*rows, labels="x" * 12)
    more, held = pairs_of(("w0", "z"), ("more of it", "z 9"), ("held  OUT", "k")), ("Held out", "k")
    tables = [source, more, more.slice(1, 1), pairs_of(held)]
    if not pairs:
        tables = [table.drop_columns(["text_pair"]) for table in tables]
    options = {"n_iter": 10, "vary_unlabelled": True, "swap": True, "p_mask": 0.2}
    table, report = build(target, tables[0], *([table] for table in tables[1:]), **options)
    candidates = 12 + 3 + 1 + 10 * (12 + 3) + (12 if pairs else 0)
    assert report["rows"] + report["duplicates"] + report["leaks"] == candidates
    assert report["leaks"] >= 1
    origins = Counter(table["origin"].to_pylist())
    assert {name: report[name] for name in ORIGINS} == {name: origins[name] for name in ORIGINS}
    assert len({content(row) for row in table.to_pylist()}) == len(table)
    rules = [rule for rules in table["rules"].to_pylist() for rule in rules.split("+") if rule]
    assert report["rules"] == Counter(rules)


# ---- the same rows in any blocks, as a plain dict makes them


def reference(config, seed, originals, unlabelled=(), generated=()):
    """The rows of a transfer set by a dict; `originals` as rows with a label."""
    pairs = "text_pair" in originals[0]
    first, labels = {}, {}
    blank = {field.name: None for field in schema(pairs)} | {"rules": ""}
    sources = {"original": originals, "unlabelled": unlabelled, "generated": generated}
    for origin, rows in sources.items():
        for number, row in enumerate(rows):
            first.setdefault(content(row), blank | row | {"origin": origin, "source_row": number})
            labels.setdefault(content(row), set()).update({row.get("label")} - {None})
    names = ("text", "text_pair") if pairs else ("text",)
    columns = [[row[name] for row in originals] for name in names]
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
    texts = dict.fromkeys(("text", "text_pair") if pairs else ("text",), WORDS)
    row = st.fixed_dictionaries(texts)
    labelled = st.fixed_dictionaries(texts | {"label": st.sampled_from("xy")})
    originals = data.draw(st.lists(labelled, min_size=1, max_size=9))
    unlabelled, generated = (data.draw(st.lists(row, max_size=6)) for _ in range(2))
    config = AugmentConfig(tagger="none", n_iter=4, p_mask=0.2, p_pos=0.3)
    sources = {"original": originals, "unlabelled": unlabelled, "generated": generated}
    sources = {name: [pa.Table.from_pylist(rows)] if rows else [] for name, rows in sources.items()}
    target = tmp_path_factory.mktemp("built") / "t.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "BLOCK_ROWS", block)
        patch.setattr(layout, "_UNIT_CANDIDATES", unit)
        patch.setattr(transfer_set, "_GROUP_ROWS", group)
        build_transfer_set(sources, target, AugmentOptions(config, 3, workers=1))
    found = pq.read_table(target).to_pylist()
    assert in_any_order(found) == reference(config, 3, originals, unlabelled, generated)
    # Those of an origin are in the order of their source.
    for origin in ("original", "unlabelled", "generated"):
        numbers = [row["source_row"] for row in found if row["origin"] == origin]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("block", [1, 3])
def test_swapped_pairs_are_the_same_in_any_blocks(target, block, monkeypatch):
    pairs = ["a b/c", "c/a b", "a/c d", "b b/b", "c d/a", "e/f", "f/e"]
    source = pairs_of(*(pair.split("/") for pair in pairs), labels="xxyxyxy")
    whole, counts = build(target, source, swap=True, n_iter=12)
    monkeypatch.setattr(layout, "BLOCK_ROWS", block)
    parts, again = build(target, source, swap=True, n_iter=12)
    assert sorted(map(content, parts.to_pylist())) == sorted(map(content, whole.to_pylist()))
    assert rows_of(parts, "original") == rows_of(whole, "original")
    assert (counts["rows"], counts["duplicates"]) == (again["rows"], again["duplicates"])


def test_duplicates_and_conflicting_labels_are_found_across_blocks(target, monkeypatch):
    monkeypatch.setattr(layout, "BLOCK_ROWS", 2)
    source = table_of(*"abcdaeb", labels="xxxxyxx")
    table, report = build(target, source, [table_of("p", "a"), table_of("q", "r", "p")], n_iter=0)
    assert table["text"].to_pylist() == list("abcdepqr")
    assert table["label"].to_pylist() == [None, *"xxxx", None, None, None]
    assert table["source_row"].to_pylist() == [0, 1, 2, 3, 5, 0, 2, 3]
    assert report["duplicates"] == 4


# ---- the same bytes however it is made

MANY = {
    "original": [
        table_of(*[f"w{i % 9} x{i % 5}  y{i % 3} ." for i in range(25)], labels="xyzxy" * 5)
    ],
    "unlabelled": [table_of(*[f"w{i % 7} more {i}" for i in range(11)])],
    "generated": [table_of("w1", "w2 x2", "written by a model")],
}
MANY_PAIRS = {
    "original": [pairs_of(*[(f"w{i % 5} x", f"y z{i % 5}") for i in range(9)], labels="xyx" * 3)],
    "unlabelled": [pairs_of(("w1 x", "y z1"), ("p", "q r"))],
}
HELD = {
    "single": [table_of("W2", "w1 MORE 1")],
    "pairs": [pairs_of(("W1 x", "Y"), ("P", "q  R"))],
}
NONE = AugmentConfig(tagger="pattern", n_iter=0)
OPTIONS = {"n_iter": 5, "p_mask": 0.2, "vary_unlabelled": True, "swap": True}


@pytest.fixture(params=["single", "pairs"])
def make(request, tmp_path, monkeypatch):
    """Build a transfer set of several blocks at a path of its own; return its bytes."""
    monkeypatch.setattr(layout, "BLOCK_ROWS", 10 if request.param == "single" else 4)
    monkeypatch.setenv("DISTILLKIT_CACHE", str(tmp_path / "cache"))
    sources = MANY if request.param == "single" else MANY_PAIRS
    held_out = HELD[request.param]

    def build(name="t.parquet", *, sources=sources, seed=1, workers=1, **options):
        config = AugmentConfig(**{"tagger": "pattern"} | OPTIONS | options)
        options = AugmentOptions(config, seed, held_out=held_out, workers=workers)
        report = build_transfer_set(sources, tmp_path / name, options)
        assert report["leaks"]
        assert report["duplicates"]
        assert not work_of(tmp_path / name).exists()
        return (tmp_path / name).read_bytes()

    build.sources, build.target = sources, tmp_path / "t.parquet"
    return build


def test_bytes_depend_on_the_seed_but_not_on_how_the_work_or_the_sources_are_cut(make, monkeypatch):
    expected = make()
    assert make(workers=2) == expected
    for rows in (1, 7):
        cut = {
            name: (table.slice(i, rows) for table in tables for i in range(0, len(table), rows))
            for name, tables in make.sources.items()
        }
        assert make(sources=cut) == expected
    assert make(seed=2) != expected

    def backwards(function, items, **_):
        return reversed([function(item) for item in reversed(items)])

    monkeypatch.setattr(transfer_set, "each", backwards)
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
        (partitions,) = {of for _, of in compared}
        assert sorted(partition for partition, _ in compared) == list(range(partitions))
        assert partitions > 2


def test_bytes_do_not_depend_on_the_files_and_there_are_never_many_of_them(make, monkeypatch):
    expected, usual = make(), files_made(make)
    monkeypatch.setattr(layout, "_FILE_BLOCKS", 3)
    for files in (1, 2):
        monkeypatch.setattr(transfer_set, "_FILES", files)
        made = files_made(make)
        assert stop_at(made, make)
        found = Counter(path.name.split("-")[0] for path in work_of(make.target).rglob("*.*"))
        assert found["hashes"] == found["done"] == files
        assert found["rows"] < found["tags"]
        assert made < usual
        assert make() == expected


def test_bytes_do_not_depend_on_the_batches(make, monkeypatch):
    expected = make()  # a column of more than 2 GiB comes in several
    monkeypatch.setattr(transfer_set, "as_batches", lambda t: t.to_batches(max_chunksize=3))
    assert make() == expected


def test_row_groups_have_many_units_rows(make, monkeypatch):
    expected = pq.read_table(pa.BufferReader(make()))
    for rows in (1, 10):
        monkeypatch.setattr(transfer_set, "_GROUP_ROWS", rows)
        file = pq.ParquetFile(pa.BufferReader(make()))
        assert file.read().equals(expected)
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert len(groups) > 1
        assert min(groups[:-1]) >= rows


def test_tags_are_made_once_for_all_seeds_and_targets(make, counting):
    calls = counting()
    first = make(tagger="counting_tagger:tag")
    given = [table for name in ("original", "unlabelled") for table in make.sources[name]]
    columns = [name for name in ("text", "text_pair") if name in given[0].column_names]
    assert sum(map(len, calls)) == sum(map(len, given)) * len(columns)
    calls.clear()
    assert make("other.parquet", tagger="counting_tagger:tag") == first
    make(seed=9, tagger="counting_tagger:tag")
    assert calls == []


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


def stop_at(n, function, *, after=False):
    """Run a function and end it at its n-th file; say whether it got there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", Stop(n, after, interrupt))
        try:
            function()
        except KeyboardInterrupt:
            return True
    return False


def files_made(function):
    stop = Stop(-1, False, interrupt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", stop)
        function()
    return -1 - stop.n


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_build_stopped_at_any_file_goes_on_to_the_same_bytes(make, after):
    expected = make("never-stopped.parquet")
    for n in range(1, files_made(make) + 1):
        make.target.unlink(missing_ok=True)
        assert stop_at(n, make, after=after)
        assert work_of(make.target).is_dir()
        assert make() == expected


@pytest.mark.parametrize("n", [6, 8, 10])
def test_a_build_stopped_while_it_clears_up_is_done_again(make, monkeypatch, n):
    expected, left, unlink = make("never-stopped.parquet"), [n], os.unlink

    def stop(path, **where):
        left[0] -= work_of(make.target).name in str(path) or "dir_fd" in where
        if not left[0]:
            left[0] = -1  # once
            raise KeyboardInterrupt
        unlink(path, **where)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", stop)
        with pytest.raises(KeyboardInterrupt):
            make()
    assert make() == expected
    assert not [path for path in make.target.parent.iterdir() if "work" in path.name]


def test_what_is_done_is_not_done_again(make):
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
    # A group's candidates go once the rows that stay are written.
    gone = sum(name.startswith("done") for name in before)
    assert not any(name.startswith("candidates") for name in before)
    assert stop_at(last - len(before) - gone, make)
    assert done() == before


def test_an_old_file_stays_until_the_new_one_is_whole(make):
    make.target.write_bytes(b"old")
    assert stop_at(12, make)
    assert make.target.read_bytes() == b"old"
    names = {path.name for path in make.target.parent.iterdir() if "t.parquet" in path.name}
    assert names == {".t.parquet.work", "t.parquet"}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"p_mask": 0.4},
        {"tagger": "none"},
        {"memory_mb": 1},
        "fewer rows",
        "other rows",
    ],
    ids=str,
)
def test_a_stopped_build_of_other_settings_leaves_no_trace(make, change):
    original = make.sources["original"][0]
    if change == "fewer rows":
        change = {"sources": make.sources | {"original": [original.slice(0, 5)]}}
    elif change == "other rows":
        texts = [text.replace("w1", "v1") for text in original["text"].to_pylist()]
        other = original.set_column(0, "text", pa.array(texts))
        change = {"sources": make.sources | {"original": [other]}}
    expected = make("never-stopped.parquet", **change)
    make("tagged.parquet")
    assert stop_at(files_made(make) - 1, make)
    assert make(**change) == expected


def by_letter(texts):
    return [[(word, word[0]) for word in text.split()] for text in texts]


def all_alike(texts):
    return [[(word, "") for word in text.split()] for text in texts]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_tagger_of_ones_own_is_asked_each_time(tmp_path, stopped):
    def run(tagger, name="t.parquet"):
        return build(tmp_path / name, MANY["original"][0], tagger=tagger, p_pos=0.8)[0]

    expected = run(by_letter, "expected.parquet")
    last = files_made(lambda: run(all_alike))
    if stopped:
        assert stop_at(last, lambda: run(all_alike))
    assert run(by_letter) == expected


def test_what_is_done_when_a_worker_dies_is_kept_and_a_mistake_leaves_only_that(
    tmp_path, monkeypatch
):
    died, wrong = Unfinished("died"), InputError("wrong")
    for error, kept in ((wrong, False), (died, True), (wrong, True)):

        def fail(*given, error=error):
            raise error

        monkeypatch.setattr(transfer_set, "_build", fail)
        with pytest.raises(InputError):
            make_many(tmp_path / "t.parquet")
        assert (tmp_path / ".t.parquet.work").exists() == kept


def test_a_stopped_build_forgets_the_tags_of_a_module_that_has_changed(tmp_path, counting):
    def run(tag, name="t.parquet"):
        counting(tag)
        named = "counting_tagger:tag"
        return build(tmp_path / name, MANY["original"][0], named=named, p_pos=0.8)[0]

    expected = run("word[0]", "expected.parquet")
    run("''", "tagged.parquet")
    assert stop_at(files_made(lambda: run("''")), lambda: run("''"))
    assert run("word[0]") == expected


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
import test_transfer_set as test
test.layout.BLOCK_ROWS = 10
os.replace = test.Stop({n}, {after}, lambda: os.kill(os.getpid(), signal.SIGKILL))
test.make_many(test.transfer_set.Path({target!r}))
"""


def make_many(target):
    config = AugmentConfig(tagger="none", n_iter=5, p_mask=0.2)
    options = AugmentOptions(config, held_out=HELD["single"], workers=1)
    build_transfer_set(MANY, target, options)
    return target.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_killed_process_is_taken_up_by_another(tmp_path, target, monkeypatch, share):
    monkeypatch.setattr(layout, "BLOCK_ROWS", 10)
    n = int(files_made(lambda: make_many(tmp_path / "whole.parquet")) * share)
    path = [os.path.dirname(__file__), *filter(None, sys.path)]
    script = KILLED.format(path=path, n=n, after=share > 0.5, target=str(target))
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not target.exists()
    assert "rows-000000.arrow" in {path.name for path in work_of(target).rglob("*.arrow")}
    assert make_many(target) == (tmp_path / "whole.parquet").read_bytes()
    assert not work_of(target).exists()


# ---- mistakes


def refused(match, target, *given, **options):
    with pytest.raises(InputError, match=match) as caught:
        build(target, *given, **options)
    assert "\n" not in str(caught.value)
    assert not target.exists()
    assert not work_of(target).exists()


@pytest.mark.parametrize("where", ["original", "unlabelled", "generated", "second text"])
def test_a_text_that_holds_the_mask_is_refused_wherever_it_is(target, where):
    bad = table_of("fine", "press [MASK] now")
    given = {where: bad if where == "original" else [bad]}
    if where == "second text":
        given = {"original": pairs_of(("a", "press [MASK] now"), labels="x")}
    refused(r"'press \[MASK\] now' holds the mask word", target, **given)


@pytest.mark.parametrize("where", ["unlabelled", "generated", "held_out"])
@pytest.mark.parametrize(("original", "other"), [(SOURCE, PAIRS), (PAIRS, SOURCE)])
def test_pairs_and_single_texts_are_not_mixed(target, where, original, other):
    refused("some tables have pairs and some single texts", target, original, **{where: [other]})


def test_a_tagger_that_is_unknown_or_changes_words_is_refused(target, monkeypatch):
    refused("'patern' is not known", target, named="patern")
    monkeypatch.setattr(layout, "BLOCK_ROWS", 1)
    source = table_of("Film", "Other", labels="xy")

    def lower(texts):
        return [[(text.lower(), "T")] for text in texts]

    refused("does not stand in", target, source, tagger=lower, workers=2)


def test_another_process_at_it_is_said_and_left_alone(target):
    work_of(target).mkdir()
    (work_of(target) / "rows-000000.arrow").write_text("its")
    with FileLock(target.with_name(f".{target.name}.lock")):
        with pytest.raises(InputError, match=r"t\.parquet: another process is writing it"):
            build(target)
        assert (work_of(target) / "rows-000000.arrow").read_text() == "its"
    build(target)
    assert not work_of(target).exists()


def test_a_transfer_set_is_raw_text_beside_a_text_file_in_either_order(tmp_path):
    pq.write_table(MANY["original"][0], tmp_path / "train.parquet")
    pipeline.augment(str(tmp_path / "train.parquet"), tmp_path / "made.parquet", NONE)
    (tmp_path / "raw.txt").write_text("some more\nand more\n")
    raw = [str(tmp_path / "made.parquet"), str(tmp_path / "raw.txt")]
    for number, order in enumerate((raw, raw[::-1])):
        target = tmp_path / f"{number}.parquet"
        pipeline.augment("", target, NONE, unlabelled=order)
        texts = pq.read_table(target)["text"].to_pylist()
        assert set(texts) == {*MANY["original"][0]["text"].to_pylist(), "some more", "and more"}


def test_labels_may_begin_late(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("distillkit.data.tables.BLOCK_ROWS", 4)
    rows = "".join(f"text {i}\t{'x' if i > 6 else ''}\n" for i in range(9))
    (tmp_path / "a.tsv").write_text(f"text\tstars\n{rows}")
    columns = ColumnsConfig(label="stars")
    pipeline.augment(str(tmp_path / "a.tsv"), tmp_path / "t.parquet", NONE, columns)
    labels = pq.read_table(tmp_path / "t.parquet")["label"].to_pylist()
    assert sorted(filter(None, labels)) == ["x", "x"]
    (tmp_path / "b.tsv").write_text("text\tstars\na b\t\n")
    with pytest.raises(InputError, match=r"no row has a label in column 'stars'"):
        pipeline.augment(str(tmp_path / "b.tsv"), tmp_path / "u.parquet", NONE, columns)

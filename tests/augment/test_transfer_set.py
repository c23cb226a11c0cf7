import pyarrow as pa
import pytest

from distillkit import AugmentConfig, Augmenter
from distillkit.augment.transfer_set import build_transfer_set
from distillkit.data.tables import mask_of, read_table, write_table
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig

OFF = Augmenter(AugmentConfig(n_iter=0))
SOURCE = pa.table({"text": ["a b c", "  Odd   😀 ", "c d"], "label": ["x", "y", "x"]})


def rows_of(table, origin):
    return [row for row in table.to_pylist() if row["origin"] == origin]


def normal(text):
    return " ".join(text.casefold().split())


def test_originals_come_first_byte_for_byte_with_their_labels():
    texts = ["  odd   spacing ", "😀👍🏽 e\u0301", "这部 电影", "Case", "case", "a\u00a0b"]
    table = pa.table({"text": texts, "label": list("xyxyxy")})
    found, counts = build_transfer_set(table, Augmenter(AugmentConfig(tagger="none")))
    assert found.slice(0, 6).select(["text", "label"]).to_pylist() == table.to_pylist()
    assert counts["original"] == len(rows_of(found, "original")) == 6


def test_variants_have_no_label_and_counts_add_up():
    table, counts = build_transfer_set(SOURCE, Augmenter(AugmentConfig(tagger="none", n_iter=40)))
    new = rows_of(table, "augmented")
    assert {row["label"] for row in new} == {None}
    assert counts["rows"] == len(table) == 3 + counts["augmented"]
    assert len(new) + counts["duplicates"] + counts["leaks"] == 3 * 40
    assert len(set(table["text"].to_pylist())) == len(table)


def test_a_text_given_twice_stands_once_and_with_two_labels_has_none():
    table, counts = build_transfer_set(pa.table({"text": ["a", "b", "a", "b"], "label": ["x", "y", "x", "x"]}), OFF)
    assert table.select(["text", "label"]).to_pylist() == [{"text": "a", "label": "x"}, {"text": "b", "label": None}]
    assert counts["rows"] == 2


def test_three_labels_of_one_text_leave_it_without_a_label():
    table, _ = build_transfer_set(pa.table({"text": ["a"] * 3, "label": ["x", "y", "y"]}), OFF)
    assert table["label"].to_pylist() == [None]


def test_no_added_row_is_a_held_out_one_case_and_space_aside():
    maker = Augmenter(AugmentConfig(tagger="none", p_mask=0.0, p_pos=0.5, n_iter=200))
    source = pa.table({"text": ["a b", "b c", "c a"], "label": ["x", "y", "x"]})
    free, _ = build_transfer_set(source, maker)
    held = [pa.table({"text": ["A  C ", "zz"]}), pa.table({"text": [" C"]})]
    more = [pa.table({"text": ["ZZ", "new text"]})]
    found, counts = build_transfer_set(source, maker, more, held)
    assert {"a c", "c"} <= set(free["text"].to_pylist())  # they would be there
    added = {normal(row["text"]) for row in found.to_pylist() if row["origin"] != "original"}
    assert not added & {"a c", "zz", "c"}
    assert "new text" in added
    assert counts["leaks"] >= 3


def test_no_added_pair_is_a_held_out_one():
    source = pa.table({"text": ["a b"], "text_pair": ["c"], "label": ["x"]})
    maker = Augmenter(AugmentConfig(tagger="none", p_mask=1.0, p_pos=0.0, p_ng=0.0, n_iter=3))
    held = pa.table({"text": ["[mask]  [MASK]"], "text_pair": ["C"]})
    found, counts = build_transfer_set(source, maker, held_out=[held])
    pairs = [(row["text"], row["text_pair"]) for row in rows_of(found, "augmented")]
    assert pairs == [("a b", "[MASK]"), ("[MASK] [MASK]", "[MASK]")]
    assert counts["leaks"] == 1


def test_an_original_stays_even_if_it_is_held_out_too():
    found, counts = build_transfer_set(SOURCE, OFF, held_out=[pa.table({"text": ["A B C"]})])
    assert found["text"].to_pylist() == SOURCE["text"].to_pylist()
    assert counts["leaks"] == 0


def test_unlabelled_text_is_taken_as_it_is_and_never_varied():
    more = pa.table({"text": ["p  q r", "a b c", "p  q r"]})
    found, counts = build_transfer_set(SOURCE, Augmenter(AugmentConfig(tagger="none", n_iter=60)), [more])
    assert [row["text"] for row in rows_of(found, "unlabelled")] == ["p  q r"]
    assert counts["unlabelled"] == 1
    assert not any({"p", "q", "r"} & set(row["text"].split()) for row in rows_of(found, "augmented"))


def test_unlabelled_text_that_holds_the_mask_is_refused_like_any_other():
    with pytest.raises(InputError, match="mask"):
        build_transfer_set(SOURCE, Augmenter(AugmentConfig(tagger="none")), [pa.table({"text": ["press [MASK] now"]})])


@pytest.mark.parametrize("where", ["unlabelled", "held_out"])
def test_pairs_and_single_texts_are_not_mixed(where):
    pairs = pa.table({"text": ["a"], "text_pair": ["b"]})
    with pytest.raises(InputError, match="pairs"):
        build_transfer_set(SOURCE, OFF, **{where: [pairs]})


def test_the_mask_word_travels_with_the_file(tmp_path):
    table, _ = build_transfer_set(SOURCE, Augmenter(AugmentConfig(tagger="none", mask="<blank>")))
    write_table(table, tmp_path / "t.parquet")
    again = read_table(str(tmp_path / "t.parquet"), ColumnsConfig(), labels="optional")
    assert mask_of(again) == "<blank>"
    assert again.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("vary", [False, True])
def test_unlabelled_text_is_varied_only_where_that_is_asked_for(vary):
    source = pa.table({"text": ["one two three"], "label": ["x"]})
    more = pa.table({"text": ["alpha beta gamma delta"]})
    maker = Augmenter(AugmentConfig(p_mask=0.0, p_pos=0.0, p_ng=1.0, tagger="none", vary_unlabelled=vary), seed=1)
    table, counts = build_transfer_set(source, maker, [more])
    added = [row["text"] for row in table.to_pylist() if row["origin"] == "augmented"]
    assert any("alpha" in text or "beta" in text or "gamma" in text for text in added) is vary
    assert any("two" in text for text in added)
    assert counts["unlabelled"] == 1

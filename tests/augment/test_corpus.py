"""A corpus as flat arrays: byte for byte, in any blocks, with exact alias tables."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tagged_corpus import batch_of, corpus, is_digit

from distillkit.augment.corpus import LEXICON, TAGGED, Lexicon, tagged_batch
from distillkit.augment.taggers import load_tagger
from distillkit.data.checked import read_arrow, write_arrow
from distillkit.errors import InputError

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ARRAYS = ("entries", "accept", "alias", "starts")


def lexicon_of(texts, tag=lambda word: "X"):
    return corpus(texts, tag)[0]


def written(lexicon, block):
    texts = lexicon.write_out(block.gaps, block.words, block.offsets, block.tails)
    return texts.to_pylist()


def same(a, b):
    return (
        a.strings.equals(b.strings)
        and a.tags.equals(b.tags)
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ARRAYS)
    )


def shares(lexicon, tag):
    """What a tag's table says that each word's probability is, exactly."""
    at = lexicon.tags.to_pylist().index(tag)
    a, b = int(lexicon.starts[at]), int(lexicon.starts[at + 1])
    total, columns = Counter(), (getattr(lexicon, name)[a:b] for name in ARRAYS[:3])
    for entry, accept, alias in zip(*columns, strict=True):
        stands = Fraction(int(accept), 2**32)
        total[lexicon.strings[int(entry)].as_py()] += stands / (b - a)
        total[lexicon.strings[int(alias)].as_py()] += (1 - stands) / (b - a)
    return total


@settings(max_examples=80, deadline=None)
@given(st.lists(UNICODE, max_size=5))
@pytest.mark.parametrize("tagger", ["none", "pattern"])
def test_texts_come_back_byte_for_byte(tagger, texts):
    batch = tagged_batch(texts, load_tagger(tagger)(texts))
    lexicon = Lexicon.build([batch], "[MASK]")
    assert batch.schema == TAGGED
    assert written(lexicon, lexicon.block(batch)) == texts


def test_a_text_is_cut_into_gaps_words_and_a_tail():
    assert tagged_batch(["  a  b! ", "", " "], [[("a", "D"), ("b", "N")], [], []]).to_pylist() == [
        {"word": ["a", "b"], "gap": ["  ", "  "], "tag": ["D", "N"], "tail": "! "},
        {"word": [], "gap": [], "tag": [], "tail": ""},
        {"word": [], "gap": [], "tag": [], "tail": " "},
    ]


@pytest.mark.parametrize(
    "pairs", [[("film", "N"), ("a", "D")], [("movie", "N")], [("", "N")], [("A", "D")]]
)
def test_a_tagger_whose_words_do_not_stand_in_the_text_in_order_is_refused(pairs):
    with pytest.raises(InputError, match="does not stand in 'a film'"):
        tagged_batch(["a film"], [pairs])


def test_any_slice_of_a_batch_makes_the_same_block_on_disk_or_off(tmp_path):
    texts = [
        "  odd   1 ",
        "wow 😀👍🏽!",
        "a\u3000b\u00a0c",
        "e\u0301 ï",
        "2\n3",
        "",
        "  ",
        "a b",
        "c",
    ]
    batch = batch_of(texts, is_digit)
    lexicon = Lexicon.build([batch], "[MASK]")
    write_arrow(pa.Table.from_batches([batch]), tmp_path / "tags.arrow")
    for start in range(len(texts)):
        for stop in sorted({start + 1, start + 2, len(texts)}):
            own = texts[start:stop]
            part = read_arrow(tmp_path / "tags.arrow").slice(start, stop - start).combine_chunks()
            for rows in (batch.slice(start, stop - start), part.to_batches()[0]):
                block = lexicon.block(rows)
                assert written(lexicon, block) == own
                assert block.offsets[0] == 0
                words = [word for text in own for word in text.split()]
                assert lexicon.strings.take(pa.array(block.words)).to_pylist() == words
                tags = lexicon.tags.take(pa.array(block.tags)).to_pylist()
                assert tags == [is_digit(word) for word in words]
                assert block.lengths.tolist() == [len(text.split()) for text in own]
                assert len(block) == len(own)


def test_the_empty_string_and_the_mask_come_first_and_every_string_once():
    lexicon = lexicon_of(["b  a", "a [MASK] ", ""])
    strings = lexicon.strings.to_pylist()
    assert strings[:2] == ["", "[MASK]"]
    assert (lexicon.empty, lexicon.mask) == (0, 1)
    assert sorted(strings) == sorted({"", "[MASK]", " ", "  ", "a", "b"})


def test_a_lexicon_does_not_depend_on_how_the_corpus_is_cut_nor_on_its_order():
    texts = [f"w{i % 7}{' ' * (i % 4 + 1)}w{i % 3}{' ' * (i % 5 + 1)}{i % 11} " for i in range(150)]
    whole = lexicon_of(texts, is_digit)
    for cut in (1, 2, 64, 149):
        parts = [batch_of(texts[i : i + cut], is_digit) for i in range(0, 150, cut)]
        for batches in (parts, parts[::-1]):
            assert same(Lexicon.build(batches, "[MASK]"), whole)


def test_a_slice_of_a_batch_counts_its_own_words_only():
    lexicon = Lexicon.build([batch_of(["a a a", "b", "c"], lambda word: "X").slice(1)], "[MASK]")
    assert shares(lexicon, "X") == {"b": Fraction(1, 2), "c": Fraction(1, 2)}


def test_a_corpus_without_words_makes_a_lexicon_without_tags():
    batch = batch_of(["", " "])
    for batches in ([], [batch]):
        lexicon = Lexicon.build(batches, "[MASK]")
        assert len(lexicon.tags) == len(lexicon.entries) == 0
    assert written(lexicon, lexicon.block(batch)) == ["", " "]


COUNTS = st.lists(st.integers(1, 3) | st.integers(1, 300), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(st.lists(COUNTS, min_size=1, max_size=4))
@pytest.mark.parametrize("more", [[], [[1], [10_000, 1], [1] * 9]])
def test_an_alias_tables_probabilities_are_the_frequencies(more, counts):
    # The words of different tags overlap: a word may have several.
    counts = [*counts, *more]
    words = [(f"w{j}", f"T{i}", n) for i, tag in enumerate(counts) for j, n in enumerate(tag)]
    pairs = [(word, tag) for word, tag, n in words for _ in range(n)]
    lexicon = Lexicon.build(
        [tagged_batch([" ".join(word for word, _ in pairs)], [pairs])], "[MASK]"
    )
    for i, tag in enumerate(counts):
        found = shares(lexicon, f"T{i}")
        assert set(found) == {f"w{j}" for j in range(len(tag))}
        for j, n in enumerate(tag):
            assert abs(found[f"w{j}"] - Fraction(n, sum(tag))) <= Fraction(1, 2**32)


@pytest.mark.parametrize("counts", [[50, 1, 7, 7, 300], [3, 1, 9, 3]])
def test_draw_words_reads_the_table_exactly(counts):
    texts = [f"w{j}" for j, n in enumerate(counts) for _ in range(n)] + ["7"] * 3
    lexicon = lexicon_of(texts, is_digit)
    tag = lexicon.tags.to_pylist().index("letter")
    first, n = int(lexicon.starts[tag]), len(counts)
    edges = [0, 2**32 - 1]
    for i in range(n):
        edges += [-(-(i << 32) // n) + d for d in (-1, 0, 1)]  # where an entry begins
        # where its alias does
        edges += [-(-((i << 32) + int(lexicon.accept[first + i])) // n) + d for d in (-1, 0, 1)]
    edges = [u for u in edges if 0 <= u < 2**32]
    expected = []
    for u in edges:
        i, rest = divmod(u * n, 2**32)
        stands = rest < int(lexicon.accept[first + i])
        expected.append(int((lexicon.entries if stands else lexicon.alias)[first + i]))
    for upper in (0, 2**32 - 1):  # is not looked at
        u = np.array([(upper << 32) + u for u in edges], np.uint64)
        assert lexicon.draw_words(np.full(len(u), tag, np.int32), u).tolist() == expected


def test_a_saved_lexicon_is_the_same_again(tmp_path):
    lexicon = lexicon_of(["a b b", "1 é 😀"], is_digit)
    lexicon.save(tmp_path)
    again = Lexicon.load(tmp_path)
    assert same(again, lexicon)
    assert all(getattr(again, name).dtype == getattr(lexicon, name).dtype for name in ARRAYS)
    assert [path.name for path in tmp_path.iterdir()] == [LEXICON]

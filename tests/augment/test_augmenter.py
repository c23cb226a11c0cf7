"""The augmenter in memory: texts in, new texts out."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from distillkit import AugmentConfig, Augmenter
from distillkit.augment.variants import schema
from distillkit.data.tables import paired, texts_of
from distillkit.errors import InputError
from distillkit.recipe import MixConfig

OFF = {"p_mask": 0.0, "p_pos": 0.0, "p_ng": 0.0}
WORDS = "one two three four five six seven eight"
ODD = [
    "  odd   spacing ",
    "wow 😀👍🏽!",
    "a\u3000b\u00a0c",
    "don’t — ever…",
    "cafe\u0301 naïve",
    "line\nbreak",
]


def augmenter(seed=1, tagger="none", **options):
    return Augmenter(AugmentConfig(**OFF | {"n_iter": 3, "tagger": tagger} | options), seed=seed)


def drawn(augmenter, texts, pairs=None):
    """Every variant as (text, second text), row by row."""
    return [row for table in augmenter.variants(texts, pairs) for row in paired(*texts_of(table))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=4))
@pytest.mark.parametrize("tagger", ["none", "pattern"])
def test_without_any_rule_every_text_comes_back_byte_for_byte(tagger, texts):
    new = augmenter(tagger=tagger, n_iter=2)
    texts = [text for text in texts if "[MASK]" not in text]
    assert drawn(new, texts) == [(text, None) for text in texts for _ in range(2)]
    assert new(texts) == []


@pytest.mark.parametrize("tagger", ["jieba", "spacy"])
def test_without_any_rule_other_taggers_change_nothing_either(tagger):
    pytest.importorskip(tagger)
    texts = [*ODD, "这部电影 很好看！ok", "", " "]
    assert drawn(augmenter(tagger=tagger, n_iter=1), texts) == [(text, None) for text in texts]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("  odd   spacing ", "  [MASK]   [MASK] "),
        ("a\u3000b, c", "[MASK]\u3000[MASK][MASK] [MASK]"),
        ("one", "[MASK]"),
        ("", ""),
        ("  ", "  "),
    ],
)
def test_masking_every_word_leaves_the_spacing_alone(text, masked):
    assert drawn(augmenter(p_mask=1.0, n_iter=1), [text]) == [(masked, None)]


def test_another_mask_word_may_be_chosen():
    assert augmenter(p_mask=1.0, mask="<m>")(["a b"]) == ["<m> <m>"]


def test_chinese_is_masked_word_by_word():
    pytest.importorskip("jieba")
    assert augmenter(tagger="jieba", p_mask=1.0)(["电影好看"]) == ["[MASK][MASK]"]


def test_an_ngram_is_kept_and_the_rest_dropped():
    words = WORDS.split()
    grams = {" ".join(words[i : i + n]) for n in range(1, 6) for i in range(len(words) - n + 1)}
    assert set(augmenter(p_ng=1.0, n_iter=1500)([WORDS])) == grams


def test_an_ngram_as_long_as_the_text_is_the_text():
    assert set(augmenter(p_ng=1.0, n_iter=200)(["a b  c "])) == {"a", "b", "c", "a b", "b  c"}


def test_the_ngram_is_cut_from_the_masked_text():
    assert set(augmenter(p_ng=1.0, p_mask=1.0, n_iter=60)(["a b"])) == {"[MASK]", "[MASK] [MASK]"}


def test_words_are_replaced_within_their_tag_by_unigram_frequency():
    texts = ["b b b b b b b c c c 7"] * 20

    def tag(texts):
        return [
            [(word, "number" if word.isdigit() else "letter") for word in text.split()]
            for text in texts
        ]

    config = AugmentConfig(**OFF | {"p_pos": 1.0, "n_iter": 20})
    words = [text.split() for text, _ in drawn(Augmenter(config, 3, tag), texts)]
    assert {row[-1] for row in words} == {"7"}
    counts = Counter(word for row in words for word in row[:-1])
    assert chisquare([counts["b"], counts["c"]], [2800, 1200]).pvalue > 1e-4
    assert chisquare([counts["b"], counts["c"]]).pvalue < 1e-12


def test_a_callable_tagger_replaces_the_named_one():
    config = AugmentConfig(**OFF | {"p_mask": 1.0, "n_iter": 1, "tagger": "no such tagger"})
    one_word = Augmenter(config, 1, lambda texts: ([(text, "T")] for text in texts))
    assert one_word(["a b c"]) == ["[MASK]"]


def test_a_tagger_that_changes_words_is_refused():
    lower = Augmenter(AugmentConfig(), 1, lambda texts: [[(text.lower(), "T")] for text in texts])
    with pytest.raises(InputError, match="'film' does not stand in 'Film'"):
        lower(["Film"])


def test_an_unknown_tagger_is_refused():
    with pytest.raises(InputError, match="'patern' is not known"):
        augmenter(tagger="patern")(["a"])


@pytest.mark.parametrize("pairs", [None, ["fine", "a [MASK] film"]])
def test_a_text_that_holds_the_mask_is_refused(pairs):
    texts = ["fine", "a [MASK] film"] if pairs is None else ["a", "b"]
    with pytest.raises(InputError, match=r"choose another with --augment\.mask"):
        augmenter()(texts, pairs) if pairs else augmenter()(texts)


@pytest.mark.parametrize("pairs", [None, [WORDS[::-1]] * 5])
def test_a_seed_draws_everything_and_another_draws_something_else(pairs):
    texts = [WORDS] * 5

    def made(seed):
        return drawn(Augmenter(AugmentConfig(tagger="none"), seed), texts, pairs)

    assert made(4) == made(4)
    assert made(4) != made(5)


def test_new_texts_are_distinct_and_none_of_the_given():
    texts = ["a b c", "a b", "c"]
    new = Augmenter(AugmentConfig(tagger="none", n_iter=100))(texts)
    assert len(new) == len(set(new)) > 5
    assert not set(new) & set(texts)


@pytest.mark.parametrize("n_iter", [0, 1, 7])
def test_each_text_is_varied_n_iter_times(n_iter):
    assert len(drawn(augmenter(n_iter=n_iter, p_mask=0.5), ["a b", "c", ""])) == 3 * n_iter


@pytest.mark.parametrize("texts", [[], [""], ["", "word", ""]])
def test_no_text_an_empty_text_and_one_word_pass_every_rule(texts):
    rows = drawn(
        Augmenter(AugmentConfig(p_mask=0.3, p_pos=0.3, p_ng=1.0, tagger="none", n_iter=30)), texts
    )
    assert {text for text, _ in rows} <= {"", "word", "[MASK]"}
    assert len(rows) == 30 * len(texts)


def test_a_text_beyond_the_first_slice_keeps_its_own_words():
    texts = [f"w{i} w{i}" for i in range(5000)]
    rows = drawn(augmenter(p_mask=0.5, p_ng=0.5, n_iter=4), texts)
    assert len(rows) == 20_000
    assert all(set(new.split()) <= {f"w{i // 4}", "[MASK]"} for i, (new, _) in enumerate(rows))


def test_pairs_change_the_first_text_then_the_second_then_both():
    rows = drawn(augmenter(p_mask=1.0, n_iter=6), ["a b"], ["c"])
    assert rows == [("[MASK] [MASK]", "c"), ("a b", "[MASK]"), ("[MASK] [MASK]", "[MASK]")] * 2


def test_the_two_sides_of_a_pair_are_drawn_independently():
    rows = drawn(augmenter(p_mask=0.5, n_iter=3), [WORDS] * 200, [WORDS] * 200)[2::3]
    assert len(rows) == 200
    assert sum(a == b for a, b in rows) < 20


def test_pairs_come_back_as_distinct_new_pairs():
    texts, pairs = ["a b", "c d"], ["e f", "g h"]
    new = augmenter(p_mask=0.5, n_iter=30)(texts, pairs)
    assert len(new) == len(set(new)) > 6
    assert not set(new) & set(zip(texts, pairs, strict=True))


def test_new_pairs_are_in_the_order_of_the_given():
    new = augmenter(p_mask=0.5, n_iter=9)(["a b", "c d"], ["e f", "g h"])
    given = [
        "ab" if set(a + b) & set("abef") else "cd" for a, b in new if set(a + b) & set("abcdefgh")
    ]
    assert given == sorted(given)


def test_variants_come_with_where_they_are_from():
    (table,) = Augmenter(AugmentConfig(tagger="none", n_iter=2)).variants(["a b", "c"])
    assert table.schema == schema(pairs=False)
    assert list(
        zip(table["source_row"].to_pylist(), table["iteration"].to_pylist(), strict=True)
    ) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def test_words_of_both_texts_of_a_pair_are_drawn_from():
    rows = drawn(augmenter(p_pos=1.0, n_iter=60), ["a"], ["b"])
    assert set(rows) == {(a, b) for a in "ab" for b in "ab"}


def test_one_text_more_leaves_the_masks_of_the_others_where_they_are():
    """A variant is a function of its text, its number and the seed; only replacements look at the whole corpus."""
    texts = [WORDS] * 3
    few, many = (
        drawn(augmenter(p_mask=0.3, p_ng=0.3, n_iter=5), t)
        for t in (texts, [*texts, "and one more"])
    )
    assert many[:15] == few


@pytest.mark.parametrize("way", ["infill", "neighbours", "sentences", "generated"])
def test_ways_that_need_models_are_refused_in_memory(way):
    with pytest.raises(InputError, match=r"augment\.mix: only the rules are made in memory"):
        augmenter(mix=MixConfig(**{way: 1.0}))

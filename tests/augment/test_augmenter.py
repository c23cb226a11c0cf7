"""The augmenter in memory: texts in, new texts out."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distillkit import AugmentConfig, Augmenter
from distillkit.augment.methods import METHODS
from distillkit.data.content import paired, texts_of
from distillkit.errors import InputError
from distillkit.recipe import MixConfig

OFF = {"p_mask": 0.0, "p_pos": 0.0, "p_ng": 0.0}
WORDS = "one two three four five six seven eight"
ODD = ["  odd   spacing ", "wow 😀👍🏽!", "a\u3000b\u00a0c", "don’t — ever…", "cafe\u0301", "a\nb"]


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
    texts = [*ODD, "这部电影 很好看！ok", "", " "]
    assert drawn(augmenter(tagger=tagger, n_iter=1), texts) == [(text, None) for text in texts]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("  odd   spacing ", "  <m>   <m> "),
        ("a\u3000b, c", "<m>\u3000<m><m> <m>"),
        ("one", "<m>"),
        ("", ""),
        ("  ", "  "),
    ],
)
def test_masking_every_word_leaves_the_spacing_alone(text, masked):
    assert drawn(augmenter(p_mask=1.0, n_iter=1, mask="<m>"), [text]) == [(masked, None)]


def test_a_callable_tagger_replaces_the_named_one_and_must_not_change_words():
    config = AugmentConfig(**OFF | {"p_mask": 1.0, "n_iter": 1, "tagger": "no such tagger"})
    one_word = Augmenter(config, 1, lambda texts: ([(text, "T")] for text in texts))
    assert one_word(["a b c"]) == ["[MASK]"]
    lower = Augmenter(config, 1, lambda texts: [[(text.lower(), "T")] for text in texts])
    with pytest.raises(InputError, match="'film' does not stand in 'Film'"):
        lower(["Film"])


@pytest.mark.parametrize("pairs", [None, ["fine", "a [MASK] film"]])
def test_a_text_that_holds_the_mask_is_refused(pairs):
    texts = ["fine", "a [MASK] film"] if pairs is None else ["a", "b"]
    with pytest.raises(InputError, match=r"choose another with --augment\.mask"):
        augmenter()(texts, pairs)


@pytest.mark.parametrize("pairs", [None, [WORDS[::-1]] * 5])
def test_a_seed_draws_everything_and_another_draws_something_else(pairs):
    def made(seed):
        return drawn(Augmenter(AugmentConfig(tagger="none"), seed), [WORDS] * 5, pairs)

    assert made(4) == made(4)
    assert made(4) != made(5)


@pytest.mark.parametrize("texts", [[], [""], ["", "word", ""]])
def test_no_text_an_empty_text_and_one_word_pass_every_rule(texts):
    rows = drawn(augmenter(p_mask=0.3, p_pos=0.3, p_ng=1.0, n_iter=30), texts)
    assert {text for text, _ in rows} <= {"", "word", "[MASK]"}
    assert len(rows) == 30 * len(texts)


def test_new_texts_are_distinct_and_none_of_the_given():
    texts = ["a b c", "a b", "c"]
    new = Augmenter(AugmentConfig(tagger="none", n_iter=100))(texts)
    assert len(new) == len(set(new)) > 5
    assert not set(new) & set(texts)


def test_new_pairs_are_distinct_none_of_the_given_and_in_their_order():
    texts, pairs = ["a b", "c d"], ["e f", "g h"]
    new = augmenter(p_mask=0.5, n_iter=30)(texts, pairs)
    assert len(new) == len(set(new)) > 6
    assert not set(new) & set(zip(texts, pairs, strict=True))
    of_second = [bool(set(a + b) & set("cdgh")) for a, b in new if set(a + b) & set("abcdefgh")]
    assert of_second == sorted(of_second)


def test_pairs_change_the_first_text_then_the_second_then_both():
    rows = drawn(augmenter(p_mask=1.0, n_iter=6), ["a b"], ["c"])
    assert rows == [("[MASK] [MASK]", "c"), ("a b", "[MASK]"), ("[MASK] [MASK]", "[MASK]")] * 2


def test_words_of_both_texts_of_a_pair_are_drawn_from():
    rows = drawn(augmenter(p_pos=1.0, n_iter=60), ["a"], ["b"])
    assert set(rows) == {(a, b) for a in "ab" for b in "ab"}


def test_one_text_more_leaves_the_masks_of_the_others_where_they_are():
    """Only replacements look at the whole corpus."""
    texts = [WORDS] * 3
    few, many = (
        drawn(augmenter(p_mask=0.3, p_ng=0.3, n_iter=5), t)
        for t in (texts, [*texts, "and one more"])
    )
    assert many[:15] == few


@pytest.mark.parametrize("method", [name for name in METHODS if name != "rules"])
def test_methods_that_need_models_are_refused_in_memory(method):
    with pytest.raises(InputError, match=r"augment\.mix: only the rules are made in memory"):
        augmenter(mix=MixConfig(**{method: 1.0}))


def test_one_text_in_place_of_a_list_is_refused():
    with pytest.raises(InputError, match="expected a list of texts"):
        Augmenter()("one string")


def test_a_column_of_texts_is_taken_and_what_is_no_text_is_named():
    texts = ["one two", "three four"]
    assert augmenter(p_mask=1.0)(pd.Series(texts)) == augmenter(p_mask=1.0)(texts)
    assert augmenter(p_mask=1.0)(text for text in texts) == augmenter(p_mask=1.0)(texts)
    for wrong in (["one", None], pd.Series(["one", None], dtype="string"), [{"text": "one"}]):
        with pytest.raises(InputError, match=": expected a text"):
            augmenter()(wrong)
    with pytest.raises(InputError, match="text_pairs: 1 for 2 texts; expected one for each text"):
        augmenter()(texts, ["one"])


def test_a_seed_of_numpy_is_a_seed():
    texts, config = ["a good film it was", "the plot is thin"], AugmentConfig(n_iter=4)
    assert Augmenter(config, seed=np.int64(3))(texts) == Augmenter(config, seed=3)(texts)

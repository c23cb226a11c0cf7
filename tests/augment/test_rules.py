"""The three rules: word for word as plain Python makes them, and at the paper's rates."""

import importlib.util
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare
from tagged_corpus import corpus, is_digit

from distillkit.augment.corpus import Lexicon, tagged_batch
from distillkit.augment.rules import CUT, REPLACED, RULES, Rules, any_of, lists_of
from distillkit.augment.taggers import load_tagger
from distillkit.data.counter import draw, seed_key
from distillkit.recipe import AugmentConfig

FAIR = 1e-4
OFF = {"p_mask": 0.0, "p_pos": 0.0, "p_ng": 0.0}
LETTERS = " ".join("abcdefgh")
WRAP, LOW = 2**64, 2**32 - 1


def splitmix64(seed, n):
    z = (seed + (n + 1) * 0x9E3779B97F4A7C15) % WRAP
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WRAP
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WRAP
    return z ^ z >> 31


def reference(text, pairs, key, config, lexicon):
    """One variant in plain Python: text, names of rules, positions changed, start, stop."""
    p_mask, p_pos, p_ng = (round(p * 2**32) for p in (config.p_mask, config.p_pos, config.p_ng))
    gaps, end = [], 0
    for word, _ in pairs:
        gaps.append(text[end : text.index(word, end)])
        end += len(gaps[-1]) + len(word)
    start, stop = 0, len(pairs)
    if splitmix64(key, 0) >> 32 < p_ng:
        span = splitmix64(key, 1)
        n = min(1 + ((span >> 32) * config.max_ngram >> 32), len(pairs))
        start = (span & LOW) * (len(pairs) - n + 1) >> 32
        stop = start + n
    rules, changed, new = set(), [], ""
    for i in range(start, stop):
        u = splitmix64(key, 2 + i)
        word, tag = pairs[i]
        if u >> 32 < p_mask + p_pos:
            changed.append(i)
            if u >> 32 < p_mask:
                rules.add("mask")
                word = config.mask
            else:
                rules.add("pos")
                number = lexicon.tags.to_pylist().index(tag)
                drawn = lexicon.draw_words(np.array([number], np.int32), np.array([u], np.uint64))
                word = lexicon.strings[int(drawn[0])].as_py()
        new += ("" if i == start > 0 else gaps[i]) + word
    if (start, stop) == (0, len(pairs)):
        return new + text[end:], rules, changed, start, stop
    return new, rules | {"ngram"}, changed, start, stop


def made(texts, rows, keys, config):
    """Variants by the rules, and the same by the reference."""
    pairs = [list(tagged) for tagged in load_tagger(config.tagger, texts)(texts)]
    batch = tagged_batch(texts, pairs)
    lexicon = Lexicon.build([batch], config.mask)
    rules = Rules(lexicon, config)
    found = rules(lexicon.block(batch), np.array(rows, np.int64), np.array(keys, np.uint64))
    names = [{name for bit, name in RULES.items() if int(fired) & bit} for fired in found.fired]
    columns = [found.texts.to_pylist(), names, found.changed.to_pylist()]
    columns += [found.start.tolist(), found.stop.tolist()]
    expected = [
        reference(texts[row], pairs[row], key, config, lexicon)
        for row, key in zip(rows, keys, strict=True)
    ]
    return list(zip(*columns, strict=True)), expected


def one_text(text, n, tag=lambda word: "X", **rates):
    """N variants of one text with one rule, or some, on."""
    lexicon, block = corpus([text], tag)
    rules = Rules(lexicon, AugmentConfig(**OFF | rates))
    return rules(block, np.zeros(n, np.int64), draw(seed_key(5), np.arange(n)))


WORDS = st.sampled_from(
    ["a", "film", "Film", "the", "isn't", ",", "42", "😀", "👍🏽", "e\u0301", "é", "ﬁ", "x"]
)
GAPS = st.sampled_from(["", " ", "  ", "\t", "\u3000", "\u00a0", "\n"])
SPACED = st.builds(
    lambda words, end: "".join(gap + word for gap, word in words) + end,
    st.lists(st.tuples(GAPS, WORDS), max_size=9),
    GAPS,
)
CHINESE = st.text("这部电影很好看演员真棒，。ok 😀", max_size=15)
PAPER, HALF, MASK_CUT, REPLACE = (0.1, 0.1, 0.25), (0.5,) * 3, (1.0, 0.0, 1.0), (0.0, 1.0, 0.0)
RATES = st.sampled_from([PAPER, HALF, MASK_CUT, REPLACE, (0.3, 0.3, 1.0), (0.0, 0.0, 1.0)])
KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=12)
no_jieba = pytest.mark.skipif(not importlib.util.find_spec("jieba"), reason="no jieba")


@pytest.mark.parametrize("tagger", ["none", "pattern", pytest.param("jieba", marks=no_jieba)])
@settings(max_examples=120, deadline=None)
@given(st.data())
def test_rules_are_the_references_word_for_word(tagger, data):
    texts = data.draw(st.lists(CHINESE if tagger == "jieba" else SPACED, min_size=1, max_size=5))
    rates, keys = data.draw(RATES), data.draw(KEYS)
    max_ngram = data.draw(st.sampled_from([1, 2, 5, 50]))
    rows = [data.draw(st.integers(0, len(texts) - 1)) for _ in keys]
    found, expected = made(texts, rows, keys, AugmentConfig(tagger, *rates, max_ngram))
    assert found == expected


def test_rules_are_the_references_over_many_variants():
    texts = ["  one two  three, four five six ", "one", "", " ", "7 8 9", "the film is n't bad"]
    rows = np.repeat(np.arange(len(texts)), 400)
    keys = draw(draw(seed_key(3), rows), np.arange(len(rows)))
    config = AugmentConfig("pattern", 0.2, 0.3, 0.5)
    found, expected = made(texts, rows.tolist(), keys.tolist(), config)
    assert found == expected
    alone = {frozenset(rules) for _, rules, *_ in found if len(rules) < 2}
    assert alone == {frozenset(), *map(frozenset, (["mask"], ["pos"], ["ngram"]))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a  b c ", {"  a", "b", "c", "  a  b", "b c", "  a  b c "}),
        (" a ", {" a "}),
        ("", {""}),
        ("  ", {"  "}),
    ],
)
def test_an_ngram_loses_the_spacing_of_the_words_that_went(text, expected):
    assert set(one_text(text, 300, p_ng=1.0).texts.to_pylist()) == expected


# ---- rates, each against its own expectation at a fixed seed


def test_defaults_are_the_papers():
    config = AugmentConfig()
    assert (config.p_mask, config.p_pos, config.p_ng) == (0.1, 0.1, 0.25)
    assert (config.max_ngram, config.n_iter) == (5, 20)


@pytest.mark.parametrize(("p_mask", "p_pos"), [(0.1, 0.1), (0.5, 0.0), (0.0, 0.3), (0.25, 0.75)])
def test_words_are_masked_replaced_and_kept_at_their_rates(p_mask, p_pos):
    # The tag has no word of the text, so that every replacement shows.
    batch = tagged_batch(["a b c d e"], [[(word, "X") for word in "abcde"]])
    other = [[(word, "Z") for word in "abcde"], [("1", "X"), ("2", "X")]]
    lexicon = Lexicon.build([tagged_batch(["a b c d e", "1 2"], other)], "[MASK]")
    rules, n = Rules(lexicon, AugmentConfig(p_mask=p_mask, p_pos=p_pos, p_ng=0.0)), 20_000
    found = rules(lexicon.block(batch), np.zeros(n, np.int64), draw(seed_key(1), np.arange(n)))
    for place in range(5):
        words = Counter(text.split()[place] for text in found.texts.to_pylist())
        counts = [words["[MASK]"], words["1"] + words["2"], words["abcde"[place]]]
        assert sum(counts) == n
        for count, p in zip(counts, (p_mask, p_pos, 1 - p_mask - p_pos), strict=True):
            assert binomtest(count, n, min(p, 1.0)).pvalue > FAIR


@pytest.mark.parametrize("p_ng", [0.0, 0.25, 1.0])
def test_texts_are_cut_at_their_rate(p_ng):
    n = 20_000
    found = one_text(LETTERS, n, p_ng=p_ng)  # longer than any n-gram, so that every cut shows
    cut = int((found.stop - found.start < 8).sum())
    assert cut == int((found.fired == CUT).sum())
    assert binomtest(cut, n, p_ng).pvalue > FAIR


@pytest.mark.parametrize("max_ngram", [1, 3, 5])
def test_n_is_uniform(max_ngram):
    found = one_text(LETTERS, 12_000, p_ng=1.0, max_ngram=max_ngram)
    counts = Counter((found.stop - found.start).tolist())
    assert sorted(counts) == list(range(1, max_ngram + 1))
    assert max_ngram == 1 or chisquare(list(counts.values())).pvalue > FAIR


@pytest.mark.parametrize("length", [5, 6, 8])
def test_start_is_uniform_over_every_start_the_last_included(length):
    found = one_text(LETTERS[: 2 * length - 1], 40_000, p_ng=1.0)
    for n in range(1, 6):
        counts = Counter(found.start[found.stop - found.start == n].tolist())
        assert sorted(counts) == list(range(length - n + 1))
        assert len(counts) == 1 or chisquare(list(counts.values())).pvalue > FAIR


@pytest.mark.parametrize("length", [0, 1, 2, 4, 5])
def test_an_n_of_the_texts_length_or_more_keeps_it_whole(length):
    found = one_text(LETTERS[: max(2 * length - 1, 0)], 5000, p_ng=1.0)
    whole = found.stop - found.start == length
    assert (found.start[whole] == 0).all()
    assert not found.fired[whole].any()
    share = (6 - max(length, 1)) / 5  # n = length and every longer one
    assert binomtest(int(whole.sum()), 5000, share).pvalue > FAIR


def test_replacements_have_the_tags_unigram_frequencies_the_word_itself_included():
    text = " ".join(["a"] * 7 + ["b"] * 2 + ["c"] + ["9"] * 5)
    found = one_text(text, 2000, is_digit, p_pos=1.0)
    words = [text.split() for text in found.texts.to_pylist()]
    assert {word for row in words for word in row[10:]} == {"9"}
    for place in (0, 8, 9):
        counts = Counter(row[place] for row in words)
        assert chisquare([counts[word] for word in "abc"], [1400, 400, 200]).pvalue > FAIR
    assert (found.fired == REPLACED).all()


def test_which_word_is_drawn_does_not_depend_on_how_narrowly_it_was():
    """X, of which only small values replace, and the draw are of the same number."""
    found = one_text("a b", 40_000, p_mask=0.0, p_pos=0.05)
    rows = zip(found.texts.to_pylist(), found.changed.to_pylist(), strict=True)
    drawn = Counter(text[0] for text, changed in rows if 0 in changed)
    assert binomtest(drawn["a"], drawn["a"] + drawn["b"], 0.5).pvalue > FAIR
    assert binomtest(drawn["a"] + drawn["b"], 40_000, 0.05).pvalue > FAIR


def test_cut_n_start_and_words_are_drawn_independently():
    found = one_text(LETTERS, 40_000, p_ng=0.5, p_mask=0.5)
    cut, n = found.fired & CUT > 0, found.stop - found.start
    first = np.array([0 in changed for changed in found.changed.to_pylist()])
    for mine in (~cut, *(cut & (n == k) & (found.start == 0) for k in (1, 3, 5))):
        assert binomtest(int(first[mine].sum()), int(mine.sum()), 0.5).pvalue > FAIR
    short, late = cut & (n <= 2), found.start * 2 >= 9 - n
    assert binomtest(int(short.sum()), int(cut.sum()), 0.4).pvalue > FAIR
    # Of n = 1 and 2 with 8 and 7 starts, 4 and 3 are in the upper half.
    share = (4 / 8 + 3 / 7) / 2
    assert binomtest(int((short & late).sum()), int(short.sum()), share).pvalue > FAIR


def test_any_of_and_lists_of_take_empty_lists():
    flags, offsets = np.array([False, True, True, False, True]), np.array([0, 0, 1, 3, 4, 5, 5])
    assert any_of(flags, offsets).tolist() == [False, False, True, False, True, False]
    lists = lists_of(np.array([7, 8, 9]), flags, offsets)
    assert lists.to_pylist() == [[], [], [7, 8], [], [9], []]
    assert lists.type == pa.list_(pa.int32())

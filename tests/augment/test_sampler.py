from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from distillkit.augment.sampler import KEEP, MASK, Corpus, sample
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig

FAIR = 1e-4


def corpus_of(texts, tag=lambda word: "X"):
    return Corpus.build(texts, [[(word, tag(word)) for word in text.split()] for text in texts])


def draw(texts, seed=5, tag=lambda word: "X", **rates):
    config = AugmentConfig(**{"p_mask": 0.0, "p_pos": 0.0, "p_ng": 0.0} | rates)
    return sample(corpus_of(texts, tag), 0, len(texts), config, np.random.default_rng(seed))


def test_defaults_are_the_papers():
    config = AugmentConfig()
    assert (config.p_mask, config.p_pos, config.p_ng, config.max_ngram, config.n_iter) == (0.1, 0.1, 0.25, 5, 20)


def test_words_are_masked_replaced_and_kept_at_the_papers_rates():
    edits = sample(corpus_of(["a b c d e"] * 4000), 0, 4000, AugmentConfig(), np.random.default_rng(1))
    masked, kept = (edits.replacement == MASK).sum(), (edits.replacement == KEEP).sum()
    replaced = (edits.replacement >= 0).sum()
    assert chisquare([masked, replaced, kept], [2000, 2000, 16000]).pvalue > FAIR


def test_texts_are_cut_at_the_papers_rate():
    words = " ".join("abcdefghij")  # longer than any n-gram, so that every cut shows
    edits = sample(corpus_of([words] * 8000), 0, 8000, AugmentConfig(), np.random.default_rng(1))
    cut = int((edits.stop - edits.start < 10).sum())
    assert chisquare([cut, 8000 - cut], [2000, 6000]).pvalue > FAIR


def test_n_is_uniform_over_one_to_five():
    edits = draw([" ".join("abcdefghij")] * 5000, p_ng=1.0)
    counts = Counter((edits.stop - edits.start).tolist())
    assert sorted(counts) == [1, 2, 3, 4, 5]
    assert chisquare(list(counts.values())).pvalue > FAIR


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_start_is_uniform_over_every_start_the_last_included(n):
    edits = draw([" ".join("abcdefgh")] * 12000, p_ng=1.0)
    starts = Counter(edits.start[edits.stop - edits.start == n].tolist())
    assert sorted(starts) == list(range(8 - n + 1))
    assert chisquare(list(starts.values())).pvalue > FAIR


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_an_n_of_the_texts_length_or_more_keeps_it_whole(length):
    edits = draw([" ".join("abcde"[:length])] * 500, p_ng=1.0)
    whole = edits.stop - edits.start == length
    assert (edits.start[whole] == 0).all()
    assert whole.mean() == pytest.approx((6 - max(length, 1)) / 5, abs=0.1)  # n = length and every longer one


def test_replacements_have_the_tags_unigram_frequencies():
    text = ["a"] * 70 + ["b"] * 20 + ["c"] * 10 + ["9"] * 50
    corpus = corpus_of([" ".join(text)] * 40, tag=lambda word: "digit" if word.isdigit() else "letter")
    edits = sample(corpus, 0, 40, AugmentConfig(p_mask=0.0, p_pos=1.0, p_ng=0.0), np.random.default_rng(2))
    old, new = np.array(corpus.words), np.array(corpus.words)[edits.replacement]
    assert set(new[old == "9"]) == {"9"}
    counts = Counter(new[old != "9"].tolist())
    observed = [counts["a"], counts["b"], counts["c"]]
    assert chisquare(observed, [2800, 800, 400]).pvalue > FAIR
    assert chisquare(observed).pvalue < 1e-12  # uniform over types is something else


def test_a_block_in_the_middle_draws_from_its_own_texts_and_the_whole_corpus():
    corpus = corpus_of(["a a", "b", "c c c"], tag=lambda word: "X")
    edits = sample(corpus, 1, 3, AugmentConfig(p_mask=0.0, p_pos=1.0, p_ng=0.0), np.random.default_rng(0))
    assert len(edits.replacement) == 4
    assert len(edits.start) == 2
    drawn = {
        corpus.words[i]
        for seed in range(30)
        for i in sample(corpus, 1, 2, AugmentConfig(p_mask=0, p_pos=1, p_ng=0), np.random.default_rng(seed)).replacement
    }
    assert drawn == {"a", "b", "c"}


def test_a_corpus_holds_its_texts_byte_for_byte():
    texts = ["  a  b ", "", "c\u3000\td", "   "]
    corpus = corpus_of(texts)
    spans = zip(corpus.offsets[:-1], corpus.offsets[1:], corpus.tails, strict=True)
    assert ["".join(corpus.pieces[a:b]) + tail for a, b, tail in spans] == texts


@pytest.mark.parametrize("pairs", [[("film", "N"), ("a", "D")], [("movie", "N")], [("", "N")], [("A", "D")]])
def test_a_tagger_whose_words_do_not_stand_in_the_text_in_order_is_refused(pairs):
    with pytest.raises(InputError, match="does not stand in 'a film'"):
        Corpus.build(["a film"], [pairs])

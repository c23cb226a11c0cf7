"""Vectors from which pieces stand near which: counted by hand, factorised by numpy."""

import numpy as np
import pytest
import torch

from distillkit.data.rows import FIRST, SPECIAL, TextRows
from distillkit.recipe import ObjectivesConfig, ScratchConfig
from distillkit.teacher import cooccurrence
from distillkit.teacher.cooccurrence import cooccurrence_vectors
from distillkit.teacher.pretraining import fresh_network
from distillkit.teacher.scratch import fresh_encoder, start_embeddings

CLS, SEP = 0, 1
TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "THE FIVE BOXING WIZARDS JUMP quickly: 0123456789, café (naïve?!)",
]


def rows_of(*texts):
    """Rows of pieces from 2 on, each between CLS and SEP."""
    ids = torch.tensor([token for text in texts for token in (CLS, *text, SEP)], dtype=torch.int32)
    lengths = torch.tensor([0, *(len(text) + 2 for text in texts)])
    words = torch.where(ids < 2, SPECIAL, FIRST).to(torch.int8)
    return TextRows(ids, None, lengths.cumsum(0), 0, words)


def drawn(count=40, pieces=12, seed=3):
    generator = np.random.default_rng(seed)
    return [
        generator.integers(2, 2 + pieces, generator.integers(0, 30)).tolist() for _ in range(count)
    ]


def by_hand(texts, vocabulary):
    counts = np.zeros((vocabulary, vocabulary))
    for text in texts:
        for i, one in enumerate(text):
            for j, other in enumerate(text):
                if 1 <= abs(i - j) <= 5:
                    counts[one, other] += (6 - abs(i - j)) / 5
    return counts


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_neighbours_are_those_of_the_same_text_and_near_ones_weigh_more(monkeypatch, block):
    monkeypatch.setattr(cooccurrence, "_BLOCK", block)
    texts = drawn()
    np.testing.assert_allclose(
        cooccurrence._neighbours(rows_of(*texts), 14).toarray(), by_hand(texts, 14), rtol=1e-5
    )


def test_vectors_are_the_factors_of_the_positive_information():
    texts = drawn()
    counts = by_hand(texts, 14)[2:, 2:]
    total = counts.sum(1)
    contexts = total**0.75 / (total**0.75).sum()
    information = np.log(counts / total[:, None] / contexts).clip(0)
    left, values, _ = np.linalg.svd(information)
    found = cooccurrence_vectors(rows_of(*texts), 14, 14).double().numpy()
    assert not found[:2].any()
    expected = left * values @ left.T
    np.testing.assert_allclose(found[2:] @ found[2:].T, expected, atol=1e-4)
    few = cooccurrence_vectors(rows_of(*texts), 14, 3).double().numpy()[2:]
    np.testing.assert_allclose(few @ few.T, (left[:, :3] * values[:3]) @ left[:, :3].T, atol=1e-3)


def test_pieces_in_like_places_have_like_vectors():
    # 2 and 3 stand among 6 to 9, 4 and 5 among 10 to 13; 2 never beside 3, nor 4 beside 5.
    generator = np.random.default_rng(1)
    places = {2: range(6, 10), 3: range(6, 10), 4: range(10, 14), 5: range(10, 14)}
    texts = [
        [*generator.choice(places[word], 2), word, *generator.choice(places[word], 2)]
        for word in [2, 3, 4, 5] * 50
    ]
    vectors = torch.nn.functional.normalize(cooccurrence_vectors(rows_of(*texts), 14, 4), dim=1)
    near = vectors @ vectors.T
    assert near[2, 3] > 0.9
    assert near[4, 5] > 0.9
    assert near[[2, 2, 3, 3], [4, 5, 4, 5]].abs().max() < 0.2


@pytest.mark.parametrize("texts", [[[2], [3]], [[], []]], ids=["one piece each", "none"])
def test_text_without_neighbours_gives_none(texts):
    assert not cooccurrence_vectors(rows_of(*texts), 6, 4).any()


def test_vectors_wider_than_the_vocabulary_end_in_zeros():
    found = cooccurrence_vectors(rows_of(*drawn()), 14, 20)
    assert found.shape == (14, 20)
    assert found[2:, :12].any(0).all()
    assert not found[:, 14:].any()


def test_a_fresh_encoder_begins_with_them_where_the_text_has_a_piece():
    shape, tokenizer = fresh_encoder(TEXTS * 5, ScratchConfig(layers=1, hidden_size=64))
    text = tokenizer.convert_tokens_to_ids(["the", "quick", "fox", "jumps", "over", "the", "dog"])
    ids = torch.tensor([2, *text, 3], dtype=torch.int32)
    rows = TextRows(
        ids,
        None,
        torch.tensor([0, len(ids)]),
        0,
        torch.where(ids < 5, SPECIAL, FIRST).to(torch.int8),
    )
    network = fresh_network(shape, ObjectivesConfig())
    before = network.get_input_embeddings().weight.detach().clone()
    start_embeddings(network, rows, 1)
    after = network.get_input_embeddings().weight
    assert torch.equal((before != after).any(1).nonzero()[:, 0], torch.tensor(text).unique())
    assert after[text].std().item() == pytest.approx(0.05, rel=0.1)
    assert network.get_output_embeddings().weight is after
    again = fresh_network(shape, ObjectivesConfig())
    start_embeddings(again, rows, 1)
    assert torch.equal(again.get_input_embeddings().weight[text], after[text])

"""Nearest neighbours: by cosine, of the lexicon's own words, all alike."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tagged_corpus import corpus

from distillkit.augment import neighbours
from distillkit.augment.neighbours import Neighbours, prepare_neighbours
from distillkit.augment.rules import NEIGHBOUR
from distillkit.data.counter import draw, seed_key
from distillkit.recipe import NeighboursConfig

# Angles in degrees, and lengths that a dot product would be led astray by.
PLACES = {
    "good": (0, 1.0),
    "great": (10, 9.0),
    "fine": (25, 0.1),
    "bad": (180, 5.0),
    "awful": (170, 1.0),
    "film": (85, 100.0),
}


def vectors(words):
    angle, length = (torch.tensor([PLACES[word][i] for word in words]) for i in (0, 1))
    return torch.stack(
        [length * torch.cos(torch.deg2rad(angle)), length * torch.sin(torch.deg2rad(angle))], 1
    )


def table_of(lexicon, k, target, ask=vectors):
    prepare_neighbours(lexicon, ask, k, target)
    strings, table = lexicon.strings.to_pylist(), np.load(target)
    assert table.dtype == np.int32
    return {
        word: [strings[n] for n in row] if row[0] >= 0 else None
        for word, row in zip(strings, table, strict=True)
    }


def test_neighbours_are_the_nearest_other_words_by_cosine(tmp_path):
    lexicon, _ = corpus(["good great fine bad", "awful film , 10 ."])
    found = table_of(lexicon, 2, tmp_path / "t.npy")
    nearest = {
        "good": "great fine",
        "fine": "great good",
        "bad": "awful film",
        "film": "fine great",
    }
    assert {word: " ".join(found[word]) for word in nearest} == nearest
    assert [found[word] for word in (",", "10", ".", "", "[MASK]", " ")] == [None] * 6


def test_neighbours_are_the_same_however_few_cosines_fit_in_memory(tmp_path, monkeypatch):
    texts = [" ".join(f"w{i}x" for i in range(200))]
    lexicon, _ = corpus(texts)

    def ask(words):
        return torch.randn(len(words), 16, generator=torch.Generator().manual_seed(0))

    whole = table_of(lexicon, 5, tmp_path / "a.npy", ask)
    monkeypatch.setattr(neighbours, "_PRODUCT_BYTES", 4 * 200 * 7)
    assert table_of(lexicon, 5, tmp_path / "b.npy", ask) == whole
    assert all(len(set(row) - {word}) == 5 for word, row in whole.items() if row)


def test_words_without_a_vector_neither_have_neighbours_nor_are_any(tmp_path):
    lexicon, _ = corpus(["good great unheard bad"])

    def ask(words):
        return torch.stack(
            [torch.zeros(2) if word == "unheard" else vectors([word])[0] for word in words]
        )

    found = table_of(lexicon, 9, tmp_path / "t.npy", ask)
    assert found["unheard"] is None
    assert found["good"] == ["great", "bad"]  # no more than there are


@pytest.mark.parametrize("texts", [["good , 10"], [", 10"], [""]])
def test_a_corpus_without_two_words_is_left_as_it_is(tmp_path, texts):
    lexicon, block = corpus(texts)
    prepare_neighbours(lexicon, vectors, 3, tmp_path / "t.npy")
    out = Neighbours(lexicon, NeighboursConfig(p=1.0), tmp_path / "t.npy")(
        block, np.array([0]), np.array([1], np.uint64)
    )
    assert out.texts.to_pylist() == texts
    assert out.fired.tolist() == [0]


def vary(tmp_path, texts, rows, **config):
    lexicon, block = corpus(texts)
    prepare_neighbours(lexicon, vectors, 2, tmp_path / "t.npy")
    keys = draw(seed_key(3), np.arange(len(rows)))
    return Neighbours(lexicon, NeighboursConfig(**config), tmp_path / "t.npy")(
        block, np.array(rows), keys
    )


def test_words_are_replaced_at_the_rate_by_each_neighbour_alike_in_their_spacing(tmp_path):
    text = " good,  film \t."
    out = vary(tmp_path, [text, "great fine bad awful"], [0] * 4000, p=0.4)
    made, changed = out.texts.to_pylist(), out.changed.to_pylist()
    assert Counter(made)[text] == changed.count([])
    assert all(set(places) <= {0, 2} for places in changed)  # signs stay
    assert sum(map(len, changed)) / 8000 == pytest.approx(0.4, abs=0.03)
    first = Counter(
        new[: new.index(",")] for new, places in zip(made, changed, strict=True) if 0 in places
    )
    assert set(first) == {" great", " fine"}
    assert chisquare(list(first.values())).pvalue > 1e-4
    assert all(
        new.endswith(" \t.") and new[new.index(",") : new.index(",") + 3] == ",  " for new in made
    )
    assert [bool(places) for places in changed] == (out.fired == NEIGHBOUR).tolist()
    assert (out.start[0], out.stop[0]) == (0, 4)


def test_p_is_the_share_from_none_to_all(tmp_path):
    texts = ["good bad film great fine awful ."]
    assert vary(tmp_path, texts, [0], p=0.0).texts.to_pylist() == texts
    assert vary(tmp_path, texts, [0], p=1.0).changed.to_pylist() == [[0, 1, 2, 3, 4, 5]]


def test_a_variant_does_not_depend_on_what_else_is_made(tmp_path):
    texts = ["good bad film", "great fine awful"]
    many = vary(tmp_path, texts, [0, 1] * 50, p=0.5).texts.to_pylist()
    assert vary(tmp_path, texts, [0], p=0.5).texts.to_pylist() == many[:1]
    assert len(set(many)) > 10

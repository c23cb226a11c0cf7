"""Similar words: found among an encoder's embeddings, word vectors or a thesaurus, and put in a word's place piece by piece."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from distillkit.data.rows import FIRST, LATER, SPECIAL, TextRows
from distillkit.errors import InputError
from distillkit.teacher.masker import units
from distillkit.teacher.similar import SimilarWords, _frequent_words, similar_words

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "good",
    "great",
    "fine",
    "bad",
    "awful",
    "film",
    "movie",
    "odd",
    "thought",
    "sens",
    "sil",
    "qui",
    "##ful",
    "##ible",
    "##ly",
    "##s",
    "##ent",
    "##et",
]
NUMBER = {piece: i for i, piece in enumerate(PIECES)}


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizerFast(vocab=NUMBER)


def numbers(text):
    return [NUMBER[piece] for piece in text.split()]


def rows_of(*texts):
    """Make rows of pieces, between [CLS] and [SEP]."""
    rows = [["[CLS]", *text.split(), "[SEP]"] for text in texts]
    kinds = [
        [SPECIAL if p[0] == "[" and p != "[UNK]" else LATER if p[0] == "#" else FIRST for p in row]
        for row in rows
    ]
    return TextRows(
        torch.tensor([NUMBER[piece] for row in rows for piece in row], dtype=torch.int32),
        None,
        torch.tensor(np.cumsum([0, *map(len, rows)])),
        0,
        torch.tensor([kind for row in kinds for kind in row], dtype=torch.int8),
    )


def replaced(similar, rows, uniform=0.0, otherwise="odd"):
    batch = rows.batch(torch.arange(len(rows)))
    ids, unit = batch["input_ids"], units(batch["words"], whole=True)
    even = torch.full((ids.shape[0], ids.shape[1] + 1), uniform)
    new = similar.replace(ids, unit, even, torch.full_like(ids, NUMBER[otherwise]))
    return [
        " ".join(PIECES[i] for i in row[u > 0].tolist()) for row, u in zip(new, unit, strict=True)
    ]


def test_words_of_one_and_of_several_pieces_become_words_of_as_many():
    words = [
        numbers(w)
        for w in ("good", "great", "fine", "thought ##ful ##ly", "sens ##ible ##s", "qui ##et")
    ]
    similar = SimilarWords(words, [[1, 2], [0], [], [4], [3], []])
    assert len(similar) == 4
    rows = rows_of(
        "good thought ##ful ##ly great",
        "great sens ##ible ##s",
        "fine qui ##et film",
        "thought ##ful",
    )
    assert replaced(similar, rows) == [
        "great sens ##ible ##s good",
        "good thought ##ful ##ly",
        "odd odd odd odd",  # known without a similar one, or not known: what stands there otherwise
        "odd odd",  # the beginning of a known word is another word
    ]
    assert replaced(similar, rows, uniform=0.99)[0] == "fine sens ##ible ##s good"
    assert replaced(similar, rows, uniform=0.49)[0] == "great sens ##ible ##s good"


def test_the_order_of_pieces_and_the_place_in_the_row_matter():
    similar = SimilarWords([numbers("thought ##ful ##ly"), numbers("sens ##ible ##s")], [[1], [0]])
    rows = rows_of("good good thought ##ful ##ly", "thought ##ly ##ful", "thought ##ful ##ly ##s")
    assert replaced(similar, rows) == ["odd odd sens ##ible ##s", "odd odd odd", "odd odd odd odd"]


def test_without_any_word_all_is_as_it_else_would_be():
    assert replaced(SimilarWords([], []), rows_of("good film", "")) == ["odd odd", ""]


def naive_words(rows, most=4):
    found = Counter()
    for i in range(len(rows)):
        here = slice(int(rows.offsets[i]), int(rows.offsets[i + 1]))
        word = []
        for piece, kind in [
            *zip(rows.ids[here].tolist(), rows.words[here].tolist(), strict=True),
            (0, FIRST),
        ]:
            if kind != LATER:
                found[tuple(word)] += bool(word) and len(word) <= most
                word = [piece] if kind == FIRST else []
            elif word:
                word.append(piece)
    return {word: count for word, count in found.items() if count}


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(5, 9), st.integers(0, 2)), max_size=12), max_size=5))
def test_frequent_words_are_those_of_a_loop_the_most_frequent_first(content):
    content = [[(2, SPECIAL), *row] for row in content]
    rows = TextRows(
        torch.tensor([piece for row in content for piece, _ in row], dtype=torch.int32),
        None,
        torch.tensor(np.cumsum([0, *map(len, content)])),
        0,
        torch.tensor([kind for row in content for _, kind in row], dtype=torch.int8),
    )
    expected, found = naive_words(rows), _frequent_words(rows)
    assert set(found) == set(expected)
    assert len(found) == len(expected)
    counts = [expected[word] for word in found]
    assert counts == sorted(counts, reverse=True)


def test_without_a_source_neighbours_among_the_embeddings_stand_in(tokenizer):
    torch.manual_seed(0)
    table = torch.randn(len(PIECES), 8)
    for one, other in (
        ("great", "good"),
        ("movie", "film"),
        ("sens", "thought"),
        ("##ible", "##ful"),
        ("##s", "##ly"),
    ):
        # by cosine; the length does not matter
        table[NUMBER[one]] = table[NUMBER[other]] * 3 + 0.01
    rows = rows_of(
        "good great film movie bad thought ##ful ##ly sens ##ible ##s qui ##et",
        "film thought ##ful ##ly",
    )
    similar = similar_words(rows, tokenizer, table)
    assert len(similar) == 7  # qui ##et is the only one of two pieces
    assert replaced(similar, rows) == [
        "great good movie film "
        + replaced(similar, rows_of("bad"))[0]
        + " sens ##ible ##s thought ##ful ##ly odd odd",
        "movie sens ##ible ##s",
    ]


def test_a_word_is_never_its_own_stand_in_nor_is_the_unknown_token_one(tokenizer):
    text = "good great fine bad awful film movie [UNK] [UNK] [UNK]"
    rows = rows_of(text)
    for table in (
        torch.randn(len(PIECES), 4),
        torch.ones(len(PIECES), 4),
        torch.zeros(len(PIECES), 4),
    ):
        similar = similar_words(rows, tokenizer, table)
        assert len(similar) == 7
        for uniform in (0.0, 0.2, 0.4, 0.6, 0.8):
            found = replaced(similar, rows, uniform)[0].split()
            assert all(new != old for new, old in zip(found[:7], text.split(), strict=False))
            assert set(found[:7]) <= set(text.split()) - {"[UNK]"}
            assert found[7:] == ["odd"] * 3


def test_of_many_words_the_nearest_are_those_of_a_full_search(tokenizer, monkeypatch):
    monkeypatch.setattr("distillkit.teacher.similar._BLOCK", 3)  # several blocks
    table = torch.from_numpy(np.random.default_rng(0).normal(size=(len(PIECES), 6))).float()
    names = ["good", "great", "fine", "bad", "awful", "film", "movie", "odd"]
    similar = similar_words(rows_of(" ".join(names)), tokenizer, table)
    unit = torch.nn.functional.normalize(table[numbers(" ".join(names))], dim=1)
    nearest = (unit @ unit.T - 9 * torch.eye(len(names))).topk(5, dim=1).indices
    for i, name in enumerate(names):
        found = [
            replaced(similar, rows_of(name), (k + 0.5) / 5, otherwise="sil")[0] for k in range(5)
        ]
        assert found == [names[j] for j in nearest[i].tolist()]


def test_word_vectors_say_what_is_similar(tokenizer, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(
        "good 1 0\ngreat 0.9 0.1\nawful 0 1\nbad 0.1 0.9\nthoughtfully 1 1\nsensibles 1 0.9\nnowhere 5 5\n"
    )
    rows = rows_of("good bad great awful film thought ##ful ##ly sens ##ible ##s")
    similar = similar_words(rows, tokenizer, torch.zeros(len(PIECES), 4), str(path))
    assert len(similar) == 6
    assert replaced(similar, rows) == [
        "great awful good bad odd sens ##ible ##s thought ##ful ##ly"
    ]


def test_a_thesaurus_says_what_is_similar_in_the_direction_it_has(tokenizer, tmp_path):
    path = tmp_path / "thesaurus.tsv"
    path.write_text(
        "good\tgreat\tfine\tgood\tgreat\n\nthoughtfully\tsensibles\tgood\nfilm\tmovie\nbad\tunheard\tqui et\n"
    )
    rows = rows_of("good great thought ##ful ##ly film", "bad sens ##ible ##s fine movie")
    similar = similar_words(rows, tokenizer, torch.zeros(len(PIECES), 4), str(path))
    assert replaced(similar, rows) == ["great odd sens ##ible ##s movie", "odd odd odd odd odd odd"]
    assert (
        replaced(similar, rows, 0.9)[0] == "fine odd sens ##ible ##s movie"
    )  # two of them, each once


def test_a_byte_level_tokenizer_knows_the_words_of_a_thesaurus_and_of_vectors_within_a_text(
    tmp_path,
):
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        ["good great bad film", " good great bad film"] * 20, 400, show_progress=False
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer)
    ids = tokenizer(" good bad good great film good")["input_ids"]
    # The text begins with a word that no space stands before: other pieces, the same spelling.
    ids = tokenizer("good")["input_ids"] + ids
    assert len(ids) == 7
    rows = TextRows(
        torch.tensor(ids), None, torch.tensor([0, 7]), 0, torch.full((7,), FIRST, dtype=torch.int8)
    )
    thesaurus, vectors = tmp_path / "t.tsv", tmp_path / "v.txt"
    thesaurus.write_text("good\tgreat\n")
    vectors.write_text("good 1 0\ngreat 1 0.1\nbad 0 1\nfilm 0.1 1\n")
    for path in (thesaurus, vectors):
        similar = similar_words(rows, tokenizer, torch.zeros(len(tokenizer), 4), str(path))
        unit = torch.arange(1, 8)[None]
        new = similar.replace(
            torch.tensor([ids]), unit, torch.zeros(1, 8), torch.zeros(1, 7, dtype=torch.long)
        )
        good, great = ids[1], ids[4]
        assert tokenizer.decode([good, great]) == " good great"
        assert new[0, [1, 3, 6]].tolist() == [great] * 3


def test_what_cannot_be_used_is_said_in_one_line(tokenizer, tmp_path):
    rows, table = rows_of("good great film"), torch.zeros(len(PIECES), 4)
    lonely, other, latin, unread = (
        tmp_path / f"{name}.tsv" for name in ("lonely", "other", "latin", "unread")
    )
    vectors = tmp_path / "vectors.txt"
    lonely.write_text("good\tgreat\nfilm\n")
    other.write_text("good\tthoughtfully\n")
    latin.write_bytes("good\tgreat\nfilm\tcaf\xe9\n".encode("latin1"))
    vectors.write_text("elsewhere 1 2\n")
    unread.write_text("awful\tbad\n")
    for source, said in (
        (
            str(tmp_path / "none.txt"),
            r"similar '.*none.txt': no such file; expected a word-vector text file or a \.tsv thesaurus",
        ),
        (str(lonely), r"lonely.tsv:2: a word without a synonym"),
        (str(other), "has no two words of the text with as many word pieces"),
        (str(latin), "latin.tsv:2: byte 9 of the line .* is not UTF-8"),
        (str(unread), "has no two words of the text with as many word pieces"),
        (str(vectors), "has no two words of the text with as many word pieces"),
    ):
        with pytest.raises(InputError, match=said) as error:
            similar_words(rows, tokenizer, table, source)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="no two words of the text"):
        similar_words(rows_of("good", ""), tokenizer, table)

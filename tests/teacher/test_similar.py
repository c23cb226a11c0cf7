"""Similar words: found among embeddings, word vectors or a thesaurus, and put in a word's place."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from distillkit.data.rows import FIRST, LATER, SPECIAL, TextRows
from distillkit.errors import InputError
from distillkit.teacher.masker import units
from distillkit.teacher.similar import SimilarWords, _frequent_words, similar_words

WORDS = "good great fine bad awful film movie odd thought sens sil qui"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
PIECES += ["##ful", "##ible", "##ly", "##s", "##ent", "##et"]
NUMBER = {piece: i for i, piece in enumerate(PIECES)}


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizerFast(vocab=NUMBER)


def numbers(text):
    return [NUMBER[piece] for piece in text.split()]


def text_rows(content):
    """Make rows of (subword's number, kind)."""
    ids, kinds = (torch.tensor([pair[i] for row in content for pair in row]) for i in (0, 1))
    offsets = torch.tensor(np.cumsum([0, *map(len, content)]))
    return TextRows(ids.int(), None, offsets, 0, kinds.to(torch.int8))


def rows_of(*texts):
    """Make rows of subwords, between [CLS] and [SEP]."""

    def kind(p):
        return SPECIAL if p[0] == "[" and p != "[UNK]" else LATER if p[0] == "#" else FIRST

    rows = [["[CLS]", *text.split(), "[SEP]"] for text in texts]
    return text_rows([[(NUMBER[p], kind(p)) for p in row] for row in rows])


def replaced(similar, rows, uniform=0.0, otherwise="odd"):
    batch = rows.batch(torch.arange(len(rows)))
    ids, unit = batch["input_ids"], units(batch["words"], whole=True)
    even = torch.full((ids.shape[0], ids.shape[1] + 1), uniform)
    new = similar.replace(ids, unit, even, torch.full_like(ids, NUMBER[otherwise]))
    return [
        " ".join(PIECES[i] for i in row[u > 0].tolist()) for row, u in zip(new, unit, strict=True)
    ]


def test_words_of_one_and_of_several_subwords_become_words_of_as_many():
    words = ("good", "great", "fine", "thought ##ful ##ly", "sens ##ible ##s", "qui ##et")
    similar = SimilarWords([numbers(word) for word in words], [[1, 2], [0], [], [4], [3], []])
    assert len(similar) == 4
    first = "good thought ##ful ##ly great"
    rows = rows_of(first, "great sens ##ible ##s", "fine qui ##et film", "thought ##ful")
    assert replaced(similar, rows) == [
        "great sens ##ible ##s good",
        "good thought ##ful ##ly",
        "odd odd odd odd",  # known without a similar one, or not known: what stands there otherwise
        "odd odd",  # the beginning of a known word is another word
    ]
    assert replaced(similar, rows, uniform=0.99)[0] == "fine sens ##ible ##s good"
    assert replaced(similar, rows, uniform=0.49)[0] == "great sens ##ible ##s good"


def test_the_order_of_subwords_and_the_place_in_the_row_matter():
    similar = SimilarWords([numbers("thought ##ful ##ly"), numbers("sens ##ible ##s")], [[1], [0]])
    rows = rows_of("good good thought ##ful ##ly", "thought ##ly ##ful", "thought ##ful ##ly ##s")
    assert replaced(similar, rows) == ["odd odd sens ##ible ##s", "odd odd odd", "odd odd odd odd"]
    assert replaced(SimilarWords([], []), rows_of("good film", "")) == ["odd odd", ""]


def naive_words(content, most=4):
    """Count the words of at most `most` subwords, by a loop."""
    found = Counter()
    for row in content:
        word = []
        for subword, kind in [*row, (0, FIRST)]:
            if kind != LATER:
                found[tuple(word)] += bool(word) and len(word) <= most
                word = [subword] if kind == FIRST else []
            elif word:
                word.append(subword)
    return {word: count for word, count in found.items() if count}


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(5, 9), st.integers(0, 2)), max_size=12), max_size=5))
def test_frequent_words_are_those_of_a_loop_the_most_frequent_first(content):
    content = [[(2, SPECIAL), *row] for row in content]
    expected, found = naive_words(content), _frequent_words(text_rows(content))
    assert sorted(found) == sorted(expected)
    counts = [expected[word] for word in found]
    assert counts == sorted(counts, reverse=True)


def test_without_a_source_neighbours_among_the_embeddings_stand_in(tokenizer):
    torch.manual_seed(0)
    table = torch.randn(len(PIECES), 8)
    # by cosine; the length does not matter
    one, other = numbers("great movie sens ##ible ##s"), numbers("good film thought ##ful ##ly")
    table[one] = table[other] * 3 + 0.01
    text = "good great film movie bad thought ##ful ##ly sens ##ible ##s qui ##et"
    rows = rows_of(text, "film thought ##ful ##ly")
    similar = similar_words(rows, tokenizer, table)
    assert len(similar) == 7  # qui ##et is the only one of two subwords
    bad = replaced(similar, rows_of("bad"))[0]
    assert replaced(similar, rows) == [
        f"great good movie film {bad} sens ##ible ##s thought ##ful ##ly odd odd",
        "movie sens ##ible ##s",
    ]


def test_a_word_is_never_its_own_stand_in_nor_is_the_unknown_token_one(tokenizer):
    text = "good great fine bad awful film movie [UNK] [UNK] [UNK]"
    rows = rows_of(text)
    for table in (make(len(PIECES), 4) for make in (torch.randn, torch.ones, torch.zeros)):
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
    names = WORDS.split()[:8]
    similar = similar_words(rows_of(" ".join(names)), tokenizer, table)
    unit = torch.nn.functional.normalize(table[[NUMBER[name] for name in names]], dim=1)
    nearest = (unit @ unit.T - 9 * torch.eye(len(names))).topk(5, dim=1).indices.tolist()
    for name, near in zip(names, nearest, strict=True):
        draws = ((k + 0.5) / 5 for k in range(5))
        found = [replaced(similar, rows_of(name), draw, otherwise="sil")[0] for draw in draws]
        assert found == [names[j] for j in near]


def test_word_vectors_say_what_is_similar(tokenizer, tmp_path):
    path = tmp_path / "vectors.txt"
    vectors = "good 1 0\ngreat 0.9 0.1\nawful 0 1\nbad 0.1 0.9\n"
    path.write_text(vectors + "thoughtfully 1 1\nsensibles 1 0.9\nnowhere 5 5\n")
    rows = rows_of("good bad great awful film thought ##ful ##ly sens ##ible ##s")
    similar = similar_words(rows, tokenizer, torch.zeros(len(PIECES), 4), str(path))
    assert len(similar) == 6
    expected = "great awful good bad odd sens ##ible ##s thought ##ful ##ly"
    assert replaced(similar, rows) == [expected]


def test_chinese_words_of_two_characters_are_found_in_word_vectors(tmp_path):
    tokenizer = BertTokenizerFast(vocab={t: i for i, t in enumerate([*PIECES[:5], *"电影片子"])})
    (tmp_path / "vectors.txt").write_text("电影 1 0\n片子 0.9 0.1\n")
    film, movie = (
        tokenizer(word, add_special_tokens=False)["input_ids"] for word in ("电影", "片子")
    )
    words = [[(film[0], FIRST), (film[1], LATER)], [(movie[0], FIRST), (movie[1], LATER)]]
    rows = text_rows([words[0] + words[1]])
    similar = similar_words(rows, tokenizer, torch.zeros(9, 4), str(tmp_path / "vectors.txt"))
    assert len(similar) == 2


def test_a_thesaurus_says_what_is_similar_in_the_direction_it_has(tokenizer, tmp_path):
    path = tmp_path / "thesaurus.tsv"
    lines = "good\tgreat\tfine\tgood\tgreat\n\nthoughtfully\tsensibles\tgood\nfilm\tmovie\n"
    path.write_text(lines + "bad\tunheard\tqui et\n")
    rows = rows_of("good great thought ##ful ##ly film", "bad sens ##ible ##s fine movie")
    similar = similar_words(rows, tokenizer, torch.zeros(len(PIECES), 4), str(path))
    assert replaced(similar, rows) == ["great odd sens ##ible ##s movie", "odd odd odd odd odd odd"]
    # two of them, each once
    assert replaced(similar, rows, 0.9)[0] == "fine odd sens ##ible ##s movie"


@pytest.mark.parametrize(
    ("name", "content"),
    [("t.tsv", "good\tgreat\n"), ("v.txt", "good 1 0\ngreat 1 0.1\nbad 0 1\nfilm 0.1 1\n")],
)
def test_a_byte_level_tokenizer_knows_the_words_of_a_source_within_a_text(name, content, tmp_path):
    trained = ByteLevelBPETokenizer()
    texts = ["good great bad film", " good great bad film"] * 20
    trained.train_from_iterator(texts, 400, show_progress=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer)
    # The text begins with a word that no space stands before: other subwords, the same spelling.
    ids = tokenizer("good")["input_ids"] + tokenizer(" good bad good great film good")["input_ids"]
    assert len(ids) == 7
    path = tmp_path / name
    path.write_text(content)
    rows, table = text_rows([[(i, FIRST) for i in ids]]), torch.zeros(len(tokenizer), 4)
    similar = similar_words(rows, tokenizer, table, str(path))
    words = (torch.tensor([ids]), torch.arange(1, 8)[None])
    new = similar.replace(*words, torch.zeros(1, 8), torch.zeros(1, 7, dtype=torch.long))
    assert tokenizer.decode([ids[1], ids[4]]) == " good great"
    assert new[0, [1, 3, 6]].tolist() == [ids[4]] * 3


def test_what_cannot_be_used_is_said_in_one_line(tokenizer, tmp_path):
    rows, table = rows_of("good great film"), torch.zeros(len(PIECES), 4)
    none = "has no two words of the text with as many word pieces; give a larger one"
    for name, content, said in (
        ("none.txt", None, "no such file; expected a word-vector text file or a .tsv thesaurus"),
        ("lonely.tsv", b"good\tgreat\nfilm\n", "lonely.tsv:2: a word without a synonym"),
        ("other.tsv", b"good\tthoughtfully\n", none),
        ("latin.tsv", b"good\tgreat\nfilm\tcaf\xe9\n", "latin.tsv:2: byte 9 of the line .* UTF-8"),
        ("unread.tsv", b"awful\tbad\n", none),
        ("vectors.txt", b"elsewhere 1 2\n", none),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=said) as error:
            similar_words(rows, tokenizer, table, str(tmp_path / name))
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="no two words of the text"):
        similar_words(rows_of("good", ""), tokenizer, table)

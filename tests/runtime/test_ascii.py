"""Plain ASCII is cut as the tokenizer cuts it, whatever stands in it."""

import json
import random
import string

import pytest

from distillkit.recipe import VocabularyConfig
from distillkit.runtime.ascii import AsciiWords
from distillkit.runtime.tokens import Texts
from distillkit.student.vocabulary import build_tokenizer

WORDS = """the film isn't un believ able film's don't it's 's 't a , . _x_ unbelievable 3 40"""
WORDS = WORDS.split()
# Of everything that ASCII has, and of what the pattern and the pieces tell apart.
PARTS = [*string.printable, "\x00", "\x1c", "\x1f", "\x7f", *WORDS, "'", "''", "'re", "n't"]
PARTS += ["[UNK]", "[PAD]", "[unk]", "qz" * 60, "A" * 99]


def texts(seed, count):
    draw = random.Random(seed)
    return [
        draw.choice(["", " "]).join(draw.choices(PARTS, k=draw.randrange(12))) for _ in range(count)
    ]


@pytest.fixture(
    scope="module",
    params=[{"subwords": 40}, {}],
    ids=["subwords", "words"],
)
def tokens(request):
    config = VocabularyConfig(unit="word", size=60, **request.param)
    tokenizer = build_tokenizer([" ".join(WORDS), "film film the a"], config, 8)
    return Texts(tokenizer.backend_tokenizer.to_str().encode(), 8, "tokenizer.json")


def test_single_texts_and_pairs_have_the_tokenizers_own_tokens(tokens):
    assert tokens._ascii is not None
    first, second = texts(0, 3000), texts(1, 3000)
    for pairs in (None, second):
        assert tokens._quick(tokens._ascii, first, pairs) == tokens._asked(first, pairs)
    quick = [tokens._ascii.ids(text) for text in first]
    assert sum(ids is None for ids in quick) < 1000  # what names a special token


def test_what_is_not_plain_is_asked_of_the_tokenizer(tokens):
    chinese, curly, smile, accent = "\u4f60\u597d", "film\u2019s", "\U0001f600", "e\u0301"
    for text in ("caf\u00e9 film", chinese, curly, smile, accent, "the [UNK]", "[PAD]"):
        assert tokens._ascii.ids(text) is None
        assert tokens.rows([text, "a"]).ids == [ids for ids, _ in tokens._asked([text, "a"], None)]


def test_new_words_do_not_fill_the_memory(tokens, monkeypatch):
    monkeypatch.setattr(tokens._ascii, "_room", len(tokens._ascii._known) + 5)
    for number in range(50):
        tokens._ascii.ids(f"never{number}")
    assert len(tokens._ascii._known) == tokens._ascii._room
    monkeypatch.setattr(tokens._ascii, "_room", 10**6)
    tokens._ascii.ids("a" * 5000)
    assert max(map(len, tokens._ascii._known)) <= 100
    assert tokens._ascii.ids("never49") == tokens._asked(["never49"], None)[0][0]


def test_a_word_beyond_the_longest_is_unknown_though_the_vocabulary_has_it():
    tokenizer = build_tokenizer(["a b"], VocabularyConfig(unit="word-piece", size=60), 8)
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    word = "b" * 101
    state["model"]["vocab"][word] = len(state["model"]["vocab"])
    words = Texts(json.dumps(state).encode(), 8, "tokenizer.json")
    assert words._quick(words._ascii, [word], None) == words._asked([word], None) == [([1], [0])]


@pytest.mark.parametrize("unit", ["character", "word-piece", "hashed"])
def test_other_vocabularies(unit):
    tokenizer = build_tokenizer(["the film isn't bad"] * 2, VocabularyConfig(unit=unit, size=60), 8)
    data = tokenizer.backend_tokenizer.to_str().encode()
    assert AsciiWords.fits(json.loads(data)) == (unit == "word-piece")
    found = Texts(data, 8, "tokenizer.json")
    texts = ["The film isn't", "", "bad film"]
    wanted = [row.ids for row in found._tokenizer.encode_batch(texts)]
    assert found.rows(texts).ids == wanted

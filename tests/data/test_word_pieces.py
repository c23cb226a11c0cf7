"""Word pieces: the same in every process, the frequent words whole, and every word of known characters spelt."""

import json
import random
import subprocess
import sys
from collections import Counter

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from distillkit.data.word_pieces import count_words, train_word_pieces

WORDS = {
    "playing": 9,
    "player": 7,
    "plays": 7,
    "walking": 5,
    "walker": 3,
    "say": 2,
    "的": 4,
    "电影": 4,
}
SCRIPT = """
import json, sys
from distillkit.data.word_pieces import train_word_pieces
print(json.dumps(train_word_pieces(json.load(sys.stdin), 60)))
"""


def spelt(pieces, word):
    model = models.WordPiece({p: i for i, p in enumerate(["[UNK]", *pieces])}, unk_token="[UNK]")
    return Tokenizer(model).encode(word, add_special_tokens=False).tokens


def test_pieces_are_the_same_in_every_process_and_in_any_order_of_words():
    # Many pairs occur equally often: that is where another order of numbers shows.
    letters = random.Random(1)
    words = {"".join(letters.choices("abcdefghij", k=5)): 2 for _ in range(300)}
    run = [sys.executable, "-c", SCRIPT]
    found = [
        subprocess.run(run, input=json.dumps(words), capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    turned = train_word_pieces(dict(reversed(words.items())), 60)
    assert {process.stdout for process in found} == {json.dumps(turned) + "\n"}


def test_characters_come_first_and_frequent_words_get_whole():
    pieces = train_word_pieces(WORDS, 60)
    assert len(pieces) == len(set(pieces)) <= 60
    short = [piece.removeprefix("##") for piece in pieces]
    assert all(len(piece) == 1 for piece in short[: sum(len(piece) == 1 for piece in short)])
    assert spelt(pieces, "playing") == ["playing"]
    assert spelt(pieces, "电影") == ["电影"]
    assert "".join(spelt(pieces, "walkaying")).replace("##", "") == "walkaying"


@pytest.mark.parametrize("wanted", [1, 5, 20])
def test_no_more_pieces_than_wanted(wanted):
    assert len(train_word_pieces(WORDS, wanted)) <= wanted


def test_a_pair_that_is_too_rare_is_not_merged():
    assert spelt(train_word_pieces({"say": 2, "nod": 5}, 60, least=3), "say") == ["s", "##a", "##y"]
    assert spelt(train_word_pieces({"say": 2, "nod": 5}, 60, least=2), "say") == ["say"]


def test_words_too_long_or_of_private_characters_are_passed_over():
    assert train_word_pieces({"a" * 101: 5, "\U000f0001b": 5, "": 5}, 60) == []


def test_words_are_counted_as_the_tokenizer_cuts_them():
    lower, split = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    texts = ["It is. Is it?", "  It's\tit "] * 5000  # more than are read together
    assert count_words(texts, lower, split) == Counter(
        {"it": 20000, "is": 10000, ".": 5000, "?": 5000, "'": 5000, "s": 5000}
    )

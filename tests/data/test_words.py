"""Where words end, the same for the taggers and for the student's tokenizer."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from distillkit.data.words import (
    CHARACTER_PATTERN,
    WORD_PATTERN,
    is_chinese,
    is_unsegmented,
    split_words,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It isn't bad.", ["It", "isn't", "bad", "."]),
        ("it 's does n't", ["it", "'s", "does", "n't"]),
        ("we ’re isn’t", ["we", "’re", "isn’t"]),
        ("'quoted'", ["'", "quoted", "'"]),
        ("rock'n'roll", ["rock'n'roll"]),
        ("3.5 snake_case", ["3", ".", "5", "snake_case"]),
        ("so...", ["so", ".", ".", "."]),
        ("naïve café", ["naïve", "café"]),
        (" \t\u3000\u2028", []),
        ("", []),
    ],
)
def test_text_is_cut_into_words_and_signs(text, words):
    assert split_words(text) == words


def tokenizer_words(text):
    splitter = pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)
    return [word for word, _ in splitter.pre_tokenize_str(text)]


@settings(deadline=None)
@given(st.text(st.characters(categories=["L", "Nd", "Pd", "Ps", "Pe", "Po", "Sm", "Sc", "Zs"])))
def test_tokenizer_cuts_where_the_taggers_cut(text):
    assert tokenizer_words(text) == split_words(text)


@pytest.mark.parametrize("text", ["हिन्दी में", "cafe\u0301"], ids=["Hindi", "decomposed accent"])
def test_tokenizer_cuts_where_the_taggers_cut_at_combining_marks(text):
    assert tokenizer_words(text) == split_words(text)


@settings(deadline=None)
@given(st.text())
def test_nothing_but_white_space_is_lost(text):
    assert "".join(split_words(text)) == regex.sub(r"\s", "", text)


def test_characters_are_single_but_latin_runs_stay_whole():
    splitter = pre_tokenizers.Split(Regex(CHARACTER_PATTERN), "removed", invert=True)
    assert [piece for piece, _ in splitter.pre_tokenize_str("我爱BERT2,好 吗")] == [
        "我",
        "爱",
        "BERT2",
        ",",
        "好",
        "吗",
    ]


@pytest.mark.parametrize(
    ("text", "unsegmented", "chinese"),
    [
        ("a plain sentence", False, False),
        ("这部电影很好看", True, True),
        ("これはとてもよいえいがです", True, False),
        ("หนังเรื่องนี้ดีมาก", True, False),
        ("이 영화는 좋다", False, False),
        ("Этот фильм хорош", False, False),
        ("the film 电影 is good", False, False),
        ("123 ...", False, False),
        ("", False, False),
    ],
)
def test_script_decides(text, unsegmented, chinese):
    assert (is_unsegmented([text]), is_chinese([text])) == (unsegmented, chinese)


def test_texts_from_all_over_a_file_decide_its_script():
    assert is_chinese(["a good film"] * 1000 + ["这家酒店很好服务也不错"] * 3000)
    assert not is_chinese(["这家酒店很好服务也不错"] * 1000 + ["a good film"] * 3000)


def test_script_of_no_texts_is_neither():
    assert not is_unsegmented([])

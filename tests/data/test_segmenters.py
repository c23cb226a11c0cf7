"""Segmenters by name, and where in a text the words stand that they find."""

import pytest

from distillkit.data.segmenters import (
    load_segmenter,
    resolve_segmenter,
    segmenter_version,
    word_numbers,
)
from distillkit.errors import InputError


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["ab", "c", " ", "ab"], [0, 0, 1, -1, 3, 3]),
        (["ab", "ab"], [0, 0, -1, -1, 1, 1]),
        (["b"], [-1, 0, -1, -1, -1, -1]),
        ([], [-1] * 6),
    ],
)
def test_a_character_is_of_the_word_that_stands_there_in_its_turn(words, numbers):
    assert word_numbers(lambda text: words, "own", "abc ab").tolist() == numbers


def test_a_word_that_the_text_has_not_is_refused():
    with pytest.raises(
        InputError, match="'own': found the word 'ab', which the text has not after character 4"
    ):
        word_numbers(lambda text: ["ab", "c", "ab"], "own", "abxcx")


def test_auto_is_jieba_for_chinese_text_alone():
    assert [resolve_segmenter("auto", texts) for texts in (["这部电影很好"], ["a film"], [])] == [
        "jieba",
        "none",
        "none",
    ]
    assert resolve_segmenter("none", ["这部电影很好"]) == "none"


def test_jieba_finds_words_of_several_characters():
    numbers = word_numbers(load_segmenter("jieba"), "jieba", "这部电影 很").tolist()
    assert numbers[1] != numbers[2] == numbers[3] != numbers[5]
    assert numbers[4] == -1
    assert segmenter_version("jieba").startswith("jieba 0.")


def test_a_function_of_the_users_own_has_another_name_when_its_file_changes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "own_segmenter.py"
    module.write_text("def words(text):\n    return [text[:2], text[2:]]\n")
    assert word_numbers(load_segmenter("own_segmenter:words"), "own", "abcd").tolist() == [
        0,
        0,
        1,
        1,
    ]
    first = segmenter_version("own_segmenter:words")
    assert segmenter_version("own_segmenter:words") == first
    module.write_text(module.read_text() + "# changed\n")
    assert segmenter_version("own_segmenter:words") != first


@pytest.mark.parametrize("name", ["stanza", "no_such_module:words", "json:no_such_function"])
def test_an_unknown_segmenter_is_refused_by_name(name):
    with pytest.raises(InputError, match=name.partition(":")[2] or name):
        segmenter_version(name)

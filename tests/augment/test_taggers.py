import importlib.util

import pytest

from distillkit.augment.taggers import load_tagger
from distillkit.errors import InputError

ENGLISH = ["The film isn't bad , is it ?", "They film it quickly", "", "wow"]
CHINESE = ["这部电影很好看。", "剧情 很差", "", "好"]


def tagged(name, texts):
    return [list(pairs) for pairs in load_tagger(name, texts)(texts)]


def needs(name):
    return pytest.param(name, marks=pytest.mark.skipif(not importlib.util.find_spec(name), reason=f"no {name}"))


@pytest.mark.parametrize("name", ["pattern", "none", needs("spacy"), needs("jieba")])
@pytest.mark.parametrize("texts", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_words_stand_in_the_text_in_order_and_nothing_but_space_is_left_over(name, texts):
    for text, pairs in zip(texts, tagged(name, texts), strict=True):
        assert "".join(word for word, _ in pairs) == "".join(text.split())


@pytest.mark.parametrize("name", ["pattern", needs("spacy")])
def test_english_taggers_give_penn_tags(name):
    tags = dict(tagged(name, ["The film was good"])[0])
    assert (tags["The"], tags["film"], tags["was"], tags["good"]) == ("DT", "NN", "VBD", "JJ")


def test_jieba_cuts_chinese_into_words_of_several_characters():
    pytest.importorskip("jieba")
    tags = dict(tagged("jieba", ["这部电影很好看"])[0])
    assert tags["电影"] == "n"


def test_none_gives_every_word_one_tag():
    assert {tag for pairs in tagged("none", ENGLISH) for _, tag in pairs} == {""}


@pytest.mark.parametrize(("texts", "expected"), [(ENGLISH, "pattern"), (CHINESE, "jieba")])
def test_auto_takes_jieba_for_chinese_and_pattern_for_the_rest(texts, expected):
    pytest.importorskip("jieba")
    assert tagged("auto", texts) == tagged(expected, texts)


def test_a_function_is_found_by_module_and_name(tmp_path, monkeypatch):
    (tmp_path / "own_tagger.py").write_text("def tag(texts):\n    return [[(text, 'X')] for text in texts]\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert tagged("own_tagger:tag", ["a b"]) == [[("a b", "X")]]


@pytest.mark.parametrize("name", ["stanford", "no_such_module:tag", "json:no_such_function", "spacy:no_such_pipeline"])
def test_an_unknown_tagger_is_refused_by_name(name):
    with pytest.raises(InputError, match=name.partition(":")[2] or name):
        load_tagger(name, ["a"])

"""Taggers by name, and the tags that are kept for another time."""

import importlib.util
import sys

import pytest

from distillkit.augment import taggers
from distillkit.augment.corpus import TAGGED, tagged_batch
from distillkit.augment.taggers import (
    load_tagger,
    own_tagger,
    resolve_tagger,
    tag_block,
    tagger_version,
)
from distillkit.errors import InputError

ENGLISH = ["The film isn't bad , is it ?", "They film it quickly", "", "wow"]
CHINESE = ["这部电影很好看。", "剧情 很差", "", "好"]


def tagged(name, texts):
    return [list(pairs) for pairs in load_tagger(name, texts)(texts)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DISTILLKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def needs(name):
    return pytest.param(
        name, marks=pytest.mark.skipif(not importlib.util.find_spec(name), reason=f"no {name}")
    )


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
    tags = dict(tagged("jieba", ["这部电影很好看"])[0])
    assert tags["电影"] == "n"


def test_none_gives_every_word_one_tag():
    assert {tag for pairs in tagged("none", ENGLISH) for _, tag in pairs} == {""}


@pytest.mark.parametrize(("texts", "expected"), [(ENGLISH, "pattern"), (CHINESE, "jieba")])
def test_auto_takes_jieba_for_chinese_and_pattern_for_the_rest(texts, expected):
    assert tagged("auto", texts) == tagged(expected, texts)


def test_a_function_is_found_by_module_and_name(tmp_path, monkeypatch):
    (tmp_path / "own_tagger.py").write_text(
        "def tag(texts):\n    return [[(text, 'X')] for text in texts]\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)  # as a console script, which has not this folder on its path
    assert tagged("own_tagger:tag", ["a b"]) == [[("a b", "X")]]


@pytest.mark.parametrize(
    "name",
    [
        "stanford",
        "no_such_module:tag",
        "json:no_such_function",
        "spacy:no_such_pipeline",
        "spacy:no/such",
    ],
)
def test_an_unknown_tagger_is_refused_by_name(name, cache):
    with pytest.raises(InputError, match=name.partition(":")[2] or name):
        load_tagger(name, ["a"])
    with pytest.raises(InputError, match=name.partition(":")[2] or name):
        tag_block(name, ["a"])


# ---- tags kept for another time


def test_tags_are_made_once_and_found_again(cache, counting):
    calls, texts = counting(), ["a  b", "", "c "]
    expected = tagged_batch(texts, [[("a", "X"), ("b", "X")], [], [("c", "X")]])
    for _ in range(2):
        found = tag_block("counting_tagger:tag", texts)
        assert found.schema == TAGGED
        assert found.to_pylist() == expected.to_pylist()
    assert len(calls) == 1
    assert len(list((cache / "tags").iterdir())) == 1


@pytest.mark.parametrize("texts", [["a", "b c"], ["a b"], ["c", "a b"], ["a", "b", "c"], ["a bc"]])
def test_other_texts_are_tagged_anew(cache, counting, texts):
    calls = counting()
    tag_block("counting_tagger:tag", ["a b", "c"])
    found = tag_block("counting_tagger:tag", texts)
    assert len(calls) == 2
    assert [" ".join(row["word"]) for row in found.to_pylist()] == texts


def test_only_a_tagger_that_the_user_may_change_has_a_version_of_its_own(counting):
    assert own_tagger("auto") == own_tagger("pattern") == {}
    counting("X")
    before = own_tagger("counting_tagger:tag")
    counting("other")
    assert own_tagger("counting_tagger:tag") != before


def test_a_changed_module_tags_anew(cache, counting):
    for tag, asked in (("X", 1), ("other", 1), ("X", 0)):  # back again: its tags are still there
        calls = counting(repr(tag))
        assert tag_block("counting_tagger:tag", ["a b"]).to_pylist()[0]["tag"] == [tag, tag]
        assert len(calls) == asked


def test_a_pipeline_trained_again_in_its_folder_tags_anew(tmp_path):
    (tmp_path / "meta.json").write_text("1")
    before = tagger_version(f"spacy:{tmp_path}")
    (tmp_path / "meta.json").write_text("2")
    taggers._fingerprint.cache_clear()  # as in a new process
    assert tagger_version(f"spacy:{tmp_path}") != before


def test_taggers_do_not_find_each_others_tags(cache):
    for name in ("none", "pattern", "none"):
        expected = tagged_batch(ENGLISH, load_tagger(name)(ENGLISH))
        assert tag_block(name, ENGLISH).to_pylist() == expected.to_pylist()
    assert len(list((cache / "tags").iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"ARROW1\0\0", b"nothing of the kind" * 50, "half"])
def test_a_damaged_file_is_no_error_and_made_anew(cache, counting, damage):
    calls = counting()
    expected = tag_block("counting_tagger:tag", ["a b", "c"]).to_pylist()
    (path,) = (cache / "tags").iterdir()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if damage == "half" else damage)
    assert tag_block("counting_tagger:tag", ["a b", "c"]).to_pylist() == expected
    assert tag_block("counting_tagger:tag", ["a b", "c"]).to_pylist() == expected
    assert len(calls) == 2


# A file in the folder's place; a folder that no one, root included, can make anything in.
@pytest.mark.parametrize("place", ["file", "/proc/nothing"])
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, counting, place):
    calls = counting()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DISTILLKIT_CACHE", str(tmp_path / place))
    for _ in range(2):
        assert tag_block("counting_tagger:tag", ["a b"]).to_pylist()[0]["word"] == ["a", "b"]
    assert len(calls) == 2


@pytest.mark.parametrize(("variable", "below"), [("XDG_CACHE_HOME", "."), ("HOME", ".cache")])
def test_the_users_cache_folder_is_the_default(tmp_path, monkeypatch, variable, below):
    for name in ("DISTILLKIT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    tag_block("none", ["a b"])
    assert len(list((tmp_path / below / "distillkit" / "tags").iterdir())) == 1


def test_only_auto_is_resolved():
    found = [resolve_tagger("auto", texts) for texts in (ENGLISH, CHINESE, [])]
    assert found == ["pattern", "jieba", "pattern"]
    assert resolve_tagger("none", CHINESE) == "none"

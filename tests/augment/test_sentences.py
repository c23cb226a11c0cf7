"""Documents cut into sentences, and as many of them drawn as are wanted."""

import numpy as np
import pyarrow as pa
import pytest

from distillkit.augment import sentences
from distillkit.augment.method import AugmentOptions, RowsJob
from distillkit.augment.sentences import cut_sentences, penn, style_of
from distillkit.data.counter import draw, seed_key
from distillkit.data.sentences import sentences_of
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig, SentencesConfig


def test_penn_is_what_sst2_looks_like():
    assert (
        penn("It isn't “bad” (at all), Mr. Lee's film...")
        == "it is n't `` bad '' ( at all ) , mr. lee 's film ..."
    )


@pytest.mark.parametrize(
    ("texts", "style"),
    [
        (["it 's good .", "a film , and fine", "no signs"] * 40, "penn"),
        (["It 's good .", "a film , and fine"] * 40, "plain"),
        (["it's good.", "a film, and fine"] * 40, "plain"),
        (["no signs at all"], "plain"),
    ],
)
def test_the_style_is_told_from_the_texts_unless_it_is_given(texts, style):
    assert style_of("auto", texts) == style
    assert [style_of(given, texts) for given in ("penn", "plain")] == ["penn", "plain"]


DOCUMENTS = [
    f"This is number {i}. Is it the {i}th? No. It goes on for {i} words and more!"
    for i in range(500)
]


def cut(folder, wanted, documents=DOCUMENTS, style="plain", seed=1, workers=1, **config):
    tables = (pa.table({"text": documents[i : i + 70]}) for i in range(0, len(documents), 70))
    config = AugmentConfig(sentences=SentencesConfig(style=style, **config))
    options = AugmentOptions(config, seed, workers=workers)
    made = cut_sentences(RowsJob(options, tables, wanted, [], "", folder))
    return [text for table in made for text in table["text"].to_pylist()]


def test_all_sentences_of_fitting_length_come_in_order_if_there_are_no_more_than_wanted(tmp_path):
    found = cut(tmp_path, 10**6, min_words=3, max_words=5)
    assert found == [s for i in range(500) for s in (f"This is number {i}.", f"Is it the {i}th?")]
    assert (
        cut(tmp_path, 10**6, min_words=1, max_words=2) == ["No."] * 500
    )  # the sign is one of the two
    assert cut(tmp_path, 0) == []


def test_penn_sentences_are_measured_as_they_are_written(tmp_path):
    assert cut(
        tmp_path, 9, ["It isn't. It is not so bad."], style="penn", min_words=4, max_words=4
    ) == ["it is n't ."]


def test_characters_count_where_words_are_not_spaced(tmp_path):
    assert cut(tmp_path, 9, ["好。这部电影很好。"], min_words=3, max_words=7) == ["这部电影很好。"]


@pytest.mark.parametrize("wanted", [1, 2, 699, 1500])
def test_just_as_many_are_drawn_as_are_wanted_with_the_smallest_numbers(
    tmp_path, monkeypatch, wanted
):
    monkeypatch.setattr(sentences, "_DOCUMENTS", 64)
    every, found = cut(tmp_path, 10**6), cut(tmp_path, wanted)
    assert len(every) == 1500
    assert len(found) == wanted
    counts = [3 * len(DOCUMENTS[i : i + 64]) for i in range(0, 500, 64)]
    key = seed_key(1, 2)
    numbers = np.concatenate(
        [draw(draw(key, np.array([b])), np.arange(n)) for b, n in enumerate(counts)]
    )
    smallest = np.sort(np.argsort(numbers)[:wanted])
    assert found == [every[i] for i in smallest]
    assert wanted == 1500 or cut(tmp_path, wanted, seed=2) != found


@pytest.mark.slow
def test_the_sentences_are_the_same_at_any_number_of_workers_and_after_a_kill(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sentences, "_DOCUMENTS", 64)
    alone = cut(tmp_path / "a", 300)
    assert cut(tmp_path / "b", 300, workers=2) == alone
    sorted((tmp_path / "a").rglob("sentences-*.arrow"))[3].unlink()
    asked = []
    monkeypatch.setattr(
        sentences, "sentences_of", lambda text: asked.append(text) or sentences_of(text)
    )
    assert cut(tmp_path / "a", 300) == alone
    assert asked == DOCUMENTS[3 * 64 : 4 * 64]  # what was there was not cut again


def test_other_documents_or_settings_are_cut_anew(tmp_path):
    first = cut(tmp_path, 10**6, ["One two three. Four."])
    assert cut(tmp_path, 10**6, ["Five six seven. Eight."]) == ["Five six seven."]
    assert cut(tmp_path, 10**6, ["One two three. Four."], min_words=1) == [*first, "Four."]
    assert cut(tmp_path, 10**6, ["One two three. Four."], style="penn") == ["one two three ."]


def test_pairs_are_refused(tmp_path):
    tables = [pa.table({"text": ["a"], "text_pair": ["b"]})]
    job = RowsJob(AugmentOptions(AugmentConfig()), tables, 5, [], "", tmp_path)
    with pytest.raises(InputError, match=r"sentences cuts single texts.*set it to 0"):
        list(cut_sentences(job))

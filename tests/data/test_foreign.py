"""Foreign text: of every kind enough, and none of the task's own corpus."""

from distillkit.data.foreign import foreign_texts


def test_every_kind_has_text_and_the_tasks_own_corpus_is_none():
    found = foreign_texts("embedded:reviews/train")
    assert {"questions", "sentences", "random characters"} <= found.keys()
    assert "reviews" not in found
    assert "reviews" not in foreign_texts("", "embedded:reviews/unlabelled")
    assert {"reviews", "questions"} <= foreign_texts("train.csv").keys()
    for texts in found.values():
        assert len(texts) >= 100
        assert all(text.strip() for text in texts)
    assert found == foreign_texts("embedded:reviews/train")

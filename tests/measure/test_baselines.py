import numpy as np
import pytest

from distillkit.measure.baselines import FrozenBaseline, TfidfBaseline, majority_logits


def gold_of(table):
    names = sorted(set(table["label"].to_pylist()))
    return np.array([names.index(label) for label in table["label"].to_pylist()])


def test_majority_answers_with_the_commonest_label_of_training_or_the_mean_score():
    found = majority_logits(np.array([2, 0, 2, 1, 2]), 4, 3)
    assert found.shape == (3, 4)
    assert found.argmax(1).tolist() == [2, 2, 2]
    assert np.exp(found[0]) == pytest.approx([0.2, 0.2, 0.6, 0], abs=1e-6)
    labels = majority_logits(np.array([[1.0, 0], [1, 0], [1, 1], [0, 0]]), 2, 2, "multi-label")
    assert labels.shape == (2, 2)
    assert 1 / (1 + np.exp(-labels[1])) == pytest.approx([0.75, 0.25])
    assert majority_logits(np.array([1.0, 2.0, 6.0]), 1, 2, "regression").tolist() == [[3], [3]]
    extreme = majority_logits(np.array([[1.0, 0]]), 2, 1, "multi-label")
    assert np.isfinite(found).all()
    assert np.isfinite(extreme).all()


def test_tfidf_learns_what_one_word_decides(train_table, dev_table):
    model = TfidfBaseline(train_table["text"].to_pylist(), None, gold_of(train_table), 2)
    found = model.logits(dev_table["text"].to_pylist())
    assert (found.argmax(1) == gold_of(dev_table)).all()
    np.testing.assert_allclose(np.exp(found).sum(1), 1)
    assert np.isfinite(model.logits(["zebra", ""])).all()  # no known word


def test_tfidf_fits_closer_than_scikit_learn_does_by_default(train_table):
    few = train_table[:40]
    task = few["text"].to_pylist(), None, gold_of(few), 2
    ours, theirs = TfidfBaseline(*task), TfidfBaseline(*task, inverse_penalty=1.0)
    assert np.ptp(ours.logits(task[0])) > 2 * np.ptp(theirs.logits(task[0]))


def test_tfidf_learns_from_two_words_what_one_cannot_say():
    texts = ["good not bad", "bad not good"] * 10
    found = TfidfBaseline(texts, None, np.array([1, 0] * 10), 2).logits(texts[:2])
    assert found.argmax(1).tolist() == [1, 0]


WORDS = [f"word{i}" for i in range(30)]
SAME = [(word, word) for word in WORDS]


def test_tfidf_compares_the_texts_of_a_pair():
    a, b = zip(*SAME, *((word, WORDS[i - 23]) for i, word in enumerate(WORDS)), strict=True)
    gold = np.array([1] * 30 + [0] * 30)
    texts, pairs = zip(*SAME, *((word, WORDS[i - 3]) for i, word in enumerate(WORDS)), strict=True)
    assert (TfidfBaseline(a, b, gold, 2).logits(texts, pairs).argmax(1) == gold).mean() > 0.9
    scores = TfidfBaseline(a, b, np.where(gold, 5.0, 1.0), 1, "regression")
    found = scores.logits(["word1", "word1"], ["word1", "word9"])
    assert found.shape == (2, 1)
    assert found[0, 0] > 3 > found[1, 0]


def test_a_class_that_training_has_not_is_never_the_answer():
    found = TfidfBaseline(["a b", "c d"] * 5, None, np.array([0, 3] * 5), 5).logits(["a", "c d"])
    assert found.shape == (2, 5)
    assert found.argmax(1).tolist() == [0, 3]
    assert (found[:, [1, 2, 4]] == -1e9).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_sure_answers_stay_finite_in_float32(classes):
    gold = np.arange(60) % classes
    texts = [str(answer) for answer in gold]

    def vectors(asked):
        return np.eye(4, dtype=np.float32)[[int(text) for text in asked]] * 1000

    found = FrozenBaseline(vectors, texts, None, gold, classes).logits(texts)
    assert np.isfinite(found).all()
    assert (found.argmax(1) == gold).all()
    np.testing.assert_allclose(np.exp(found).sum(1), 1, rtol=1e-6)


def test_chinese_is_read_by_characters():
    texts = ["这部电影很好看", "这部电影很难看", "那本书好", "那本书难"]
    model = TfidfBaseline(texts, None, np.array([1, 0, 1, 0]), 2)
    assert model.logits(["好", "难"]).argmax(1).tolist() == [1, 0]


@pytest.mark.parametrize("columns", [1, 2])
def test_tfidf_learns_each_label_of_several(columns):
    texts = ["good film", "good cast", "bad film", "bad cast"] * 5
    gold = np.array([["good" in text, "film" in text] for text in texts], np.float32)[:, :columns]
    model = TfidfBaseline(texts, None, gold, columns, "multi-label")
    found = model.logits(["good plot", "bad film"])
    assert found.shape == (2, columns)
    assert ((found > 0) == np.array([[True, False], [False, True]])[:, :columns]).all()

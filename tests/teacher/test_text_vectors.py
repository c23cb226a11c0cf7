import numpy as np

from distillkit.measure.baselines import FrozenBaseline
from distillkit.teacher.text_vectors import TextVectors


def test_a_texts_vector_does_not_depend_on_what_it_is_padded_to(encoder_folder):
    vectors = TextVectors(encoder_folder, 16)
    together = vectors(["the film was great .", "bad", "the plot is weak . " * 20])
    assert together.shape == (3, 16)
    assert np.allclose(together[1], vectors(["bad"])[0], atol=1e-2)  # bf16, where there is any
    assert np.allclose(together[2], vectors(["the plot is weak . " * 4])[0], atol=1e-2)  # truncated
    assert not np.allclose(together[0], together[1], atol=1e-2)


def test_a_linear_model_reads_labels_off_vectors_of_texts_and_of_pairs():
    def vectors(texts):
        return np.array([[len(text), 1.0] for text in texts])

    texts, gold = ["a", "bbbbb", "aa", "bbbb"] * 5, np.array([0, 1, 0, 1] * 5)
    found = FrozenBaseline(vectors, texts, None, gold, 2).logits(["aa", "bbbbbb"])
    assert found.argmax(1).tolist() == [0, 1]
    same = ["a"] * 20
    pairs = FrozenBaseline(vectors, same, texts, gold, 2).logits(["a", "a"], ["aa", "bbbbbb"])
    assert pairs.argmax(1).tolist() == [0, 1]

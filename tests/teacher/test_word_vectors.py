import torch

from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_vectors import word_vectors


def test_a_words_vector_is_the_mean_of_its_own_subwords_states(classifier_folder):
    model, tokenizer = load_classifier(classifier_folder)
    words = ["good", "the film is good", "film", "bad"]
    found = word_vectors(model, tokenizer, words)
    assert found.shape == (4, 16)
    for word, vector in zip(words, found, strict=True):
        with torch.inference_mode():
            states = model.bert(**tokenizer(word, return_tensors="pt")).last_hidden_state[0]
        torch.testing.assert_close(vector, states[1:-1].mean(0), atol=1e-5, rtol=0)
    assert word_vectors(model, tokenizer, ["zebra", "\u200b", "good"]).isfinite().all()

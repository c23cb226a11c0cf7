import torch

from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_states import word_states


def test_a_words_states_are_the_means_of_its_own_subwords(classifier_folder):
    model, tokenizer = load_classifier(classifier_folder)
    words = ["good", "the film is good", "film", "bad"]
    found = word_states(model, tokenizer, words)
    assert found.shape == (4, 3, 16)
    for word, own in zip(words, found, strict=True):
        with torch.inference_mode():
            inputs = tokenizer(word, return_tensors="pt")
            layers = model.bert(**inputs, output_hidden_states=True).hidden_states
        three = torch.cat([layers[0], layers[len(layers) // 2], layers[-1]])  # (3, T, H)
        torch.testing.assert_close(own, three[:, 1:-1].mean(1), atol=1e-5, rtol=0)
    assert word_states(model, tokenizer, ["zebra", "\u200b", "good"]).isfinite().all()

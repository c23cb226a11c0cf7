"""A bundle answers as torch at every length from 0 to 512 tokens, in calls of 1 to 512 rows, on whatever may stand in a text."""

import numpy as np
import pytest

from distillkit.data.batches import encode
from distillkit.pipeline import export
from distillkit.recipe import VocabularyConfig
from distillkit.runtime import Predictor
from distillkit.training.inference import predict_logits

pytestmark = pytest.mark.slow

WORDS = [
    *"abcdefgh",
    "un",
    "known",
    "\u4f60\u597d",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u0645\u0631\u062d\u0628\u0627",
    "\U0001f600",
    "caf\u00e9",
]
WORDS += ["z\x00z", "\u200b"]
STRANGE = [
    "\x00",
    "\x00" * 9,
    "\u202e abc",
    "\ufeff",
    "\t\n\r\x0b\x0c\x1c\x85\u2028",
    "e\u0301",
    "[PAD] a",
]
STRANGE += ["[UNK]", "a" * 5000, "\U0001f469\u200d\U0001f469", "\ud7ff\ue000\U0010ffff"]


@pytest.fixture(scope="module", params=["bilstm", "textcnn", "siamese-bilstm"])
def both(request, student, tmp_path_factory):
    """A bundle, texts (and second texts) of 0 to 512 tokens, and torch's logits for them."""
    vocabulary = VocabularyConfig(unit="word", size=60, subwords=20)
    model, tokenizer = student(
        request.param,
        texts=[" ".join(WORDS[:-5])],
        vocabulary=vocabulary,
        max_tokens=512,
        pooling="max",
    )
    folder = tmp_path_factory.mktemp("sizes")
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    export(str(folder / "model"), folder / "bundle")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, length)) for length in range(520)] + STRANGE
    pairs = texts[::-1] if request.param.startswith("siamese") else None
    wanted = predict_logits(model, encode(tokenizer, texts, pairs, 512)).numpy()
    return Predictor(folder / "bundle"), texts, pairs, wanted


def part(values, start, stop):
    return None if values is None else values[start:stop]


def test_each_length_alone(both):
    predictor, texts, pairs, wanted = both
    found = np.concatenate(
        [predictor.logits([texts[i]], part(pairs, i, i + 1)) for i in range(len(texts))]
    )
    assert np.ptp(wanted, axis=0).min() > 1e-3
    assert np.abs(found - wanted).max() < 1e-4
    assert (found.argmax(1) == wanted.argmax(1)).all()


@pytest.mark.parametrize("size", [2, 3, 7, 32, 100, 255, 512])
def test_calls_of_many_sizes(both, size):
    predictor, texts, pairs, wanted = both
    order = np.random.default_rng(size).permutation(len(texts))
    texts, pairs = [texts[i] for i in order], None if pairs is None else [pairs[i] for i in order]
    found = [
        predictor.logits(texts[i : i + size], part(pairs, i, i + size))
        for i in range(0, len(texts), size)
    ]
    assert np.abs(np.concatenate(found) - wanted[order]).max() < 1e-4

import pytest
import torch

from distillkit.data.batches import encode
from distillkit.recipe import EmbeddingConfig, StudentConfig
from distillkit.student.build import build_student
from distillkit.training.inference import predict_logits

A = ["a b c d", "e f", "a", "g h a b c"]
B = ["e f g", "a b c d", "a", "h"]


@pytest.fixture(scope="module")
def siamese():
    config = StudentConfig(
        "siamese-bilstm", hidden_size=6, head_size=7, embeddings=EmbeddingConfig("random", 5)
    )
    return build_student([*A, *B], ["no", "yes"], config, seed=2)


def vectors(model, tokenizer, texts):
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        return model.encode(**inputs)


def head(model, h1, h2):
    with torch.inference_mode():
        return model.head(torch.cat([h1, h2, h1 * h2, (h1 - h2).abs()], dim=1))


def test_logits_are_the_heads_answer_to_the_encoded_texts(siamese):
    model, tokenizer = siamese
    h1, h2 = vectors(model, tokenizer, A), vectors(model, tokenizer, B)
    found = predict_logits(model, encode(tokenizer, A, B, 99))
    torch.testing.assert_close(found, head(model, h1, h2), atol=1e-5, rtol=0)
    assert (found - head(model, h2, h1)).abs().max() > 1e-4  # and the order of the sides shows


def test_swapping_the_texts_swaps_h1_and_h2(siamese):
    model, tokenizer = siamese
    h1, h2 = vectors(model, tokenizer, A), vectors(model, tokenizer, B)
    found = predict_logits(model, encode(tokenizer, B, A, 99))
    torch.testing.assert_close(found, head(model, h2, h1), atol=1e-5, rtol=0)


def test_both_sides_share_one_encoder(siamese):
    model, tokenizer = siamese
    h1 = vectors(model, tokenizer, A)
    found = predict_logits(model, encode(tokenizer, A, A, 99))
    torch.testing.assert_close(found, head(model, h1, h1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("empty", ["first", "second"])
def test_an_empty_side_is_a_vector_of_zeros(siamese, empty):
    model, tokenizer = siamese
    h, zero = vectors(model, tokenizer, A), torch.zeros(4, 12)
    sides = ([""] * 4, A) if empty == "first" else (A, [""] * 4)
    found = predict_logits(model, encode(tokenizer, *sides, 99))
    expected = head(model, zero, h) if empty == "first" else head(model, h, zero)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_length_of_one_side_does_not_touch_the_other(siamese):
    model, tokenizer = siamese
    rows = encode(tokenizer, [A[0], A[0]], ["a", "a b c d e f g h a b c"], 99)
    found = predict_logits(model, rows, max_batch_tokens=64)
    alone = predict_logits(model, encode(tokenizer, [A[0]], ["a"], 99))
    torch.testing.assert_close(found[:1], alone, atol=1e-5, rtol=0)


def test_without_token_types_there_is_no_second_text(siamese):
    model, tokenizer = siamese
    ids = tokenizer(A[0], return_tensors="pt")["input_ids"]
    h = vectors(model, tokenizer, A[:1])
    torch.testing.assert_close(
        model(ids).logits, head(model, h, torch.zeros(1, 12)), atol=1e-5, rtol=0
    )

import pytest
import torch

from distillkit.data.batches import encode
from distillkit.errors import InputError
from distillkit.teacher.checkpoint import load_classifier
from distillkit.training.inference import predict_logits

TEXTS = [
    "good film .",
    "a plot",
    "the acting was not dull and this story is fine",
    "bad",
    "the cast seems weak .",
] * 3


@pytest.fixture
def teacher(classifier_folder):
    return load_classifier(classifier_folder)


def by_hand(model, tokenizer):
    with torch.inference_mode():
        return torch.cat(
            [model.eval()(**tokenizer(text, return_tensors="pt")).logits for text in TEXTS]
        )


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("max_batch_tokens", [1, 25, 4096])
def test_every_row_is_answered_in_its_own_order_whatever_the_batches(
    teacher, max_batch_tokens, even
):
    model, tokenizer = teacher
    rows = encode(tokenizer, TEXTS, None, 32)
    found = predict_logits(model, rows, max_batch_tokens=max_batch_tokens, even=even)
    torch.testing.assert_close(found, by_hand(model, tokenizer), atol=1e-5, rtol=0)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_and_the_mode_is_given_back(teacher, training):
    model, tokenizer = teacher
    rows = encode(tokenizer, TEXTS, None, 32)
    expected = by_hand(model, tokenizer)
    model.train(training)
    torch.testing.assert_close(predict_logits(model, rows), expected, atol=1e-5, rtol=0)
    assert model.training == training
    assert all(module.training == training for module in model.modules())


def test_weights_and_gradients_are_left_alone_and_logits_may_be_trained_on(teacher):
    model, tokenizer = teacher
    found = predict_logits(model, encode(tokenizer, TEXTS, None, 32))
    assert all(parameter.grad is None for parameter in model.parameters())
    weight = torch.ones(2, requires_grad=True)
    (found * weight).sum().backward()
    torch.testing.assert_close(weight.grad, found.sum(0))


def test_bf16_gives_float32_logits_that_are_near(teacher):
    model, tokenizer = teacher
    rows = encode(tokenizer, TEXTS, None, 32)
    full, half = predict_logits(model, rows), predict_logits(model, rows, precision="bf16")
    assert half.dtype == torch.float32
    assert not torch.equal(full, half)
    torch.testing.assert_close(full, half, atol=0.3, rtol=0.1)


def test_fp16_on_a_cpu_is_refused(teacher):
    model, tokenizer = teacher
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(InputError, match="fp16"):
        predict_logits(model, encode(tokenizer, TEXTS, None, 32), precision="fp16")

import pytest
import torch
from torch.nn.functional import cosine_similarity

from distillkit.data.batches import encode
from distillkit.recipe import EmbeddingConfig, StudentConfig
from distillkit.student.build import build_student
from distillkit.student.interaction import attend, likeness
from distillkit.training.inference import predict_logits

A = ["a b c d", "e f", "a", "g h a b c"]
B = ["e f g", "a b c d", "a", "h"]
LENGTHS = torch.tensor([4, 2, 3, 0])  # of two pairs: the first texts, then the second ones


@pytest.fixture(scope="module", params=["interaction-bilstm", "decomposable"])
def student(request):
    config = StudentConfig(
        request.param, hidden_size=6, head_size=7, embeddings=EmbeddingConfig("random", 5)
    )
    return build_student([*A, *B], ["no", "yes"], config, seed=2)


@pytest.fixture
def states():
    return torch.randn(4, 4, 3, generator=torch.Generator().manual_seed(0))


def test_a_word_attends_to_the_words_of_the_other_text_alone(states):
    found = attend(states, LENGTHS)
    for text, other in ((0, 2), (1, 3), (2, 0), (3, 1)):
        words = states[: LENGTHS[other], other]
        weights = (states[:, text] @ words.T).softmax(1)
        torch.testing.assert_close(found[:, text], weights @ words)
    assert not found[:, 1].any()  # its other text has no words


def test_likeness_is_the_largest_cosine_to_a_word_of_the_other_text(states):
    states[2, 0], states[1, 2] = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 6.0])
    found = likeness(states, LENGTHS)
    for step in range(4):
        cosines = [cosine_similarity(states[step, 0], states[k, 2], dim=0) for k in range(3)]
        torch.testing.assert_close(found[step, 0], max([*cosines, torch.tensor(0.0)]))
    assert found[2, 0] == pytest.approx(1)
    assert not found[:, 1].any()


def test_a_word_unlike_all_others_is_so_beside_padding_and_without():
    first, second = torch.tensor([[1.0, 2.0]]), torch.tensor([[-1.0, -2.0]])
    alone = likeness(torch.stack([first, second], dim=1), torch.tensor([1, 1]))
    padded = torch.stack([first, second], dim=1).repeat(2, 1, 1)
    beside_padding = likeness(padded, torch.tensor([1, 1]))
    torch.testing.assert_close(alone[0], beside_padding[0])


def test_each_text_changes_how_the_other_is_read(student):
    model, tokenizer = student
    inputs = tokenizer(A, return_tensors="pt", padding=True)["input_ids"]
    other = tokenizer(B, return_tensors="pt", padding=True)["input_ids"]
    wide = torch.zeros(4, inputs.shape[1], dtype=torch.int64)
    wide[:, : other.shape[1]] = other
    lengths = [(ids != tokenizer.pad_token_id).sum(1) for ids in (inputs, wide)]
    with torch.inference_mode():
        beside = model.encoder(torch.cat([inputs, wide]), torch.cat(lengths))[:4]
        itself = model.encoder(torch.cat([inputs, inputs]), torch.cat(lengths[:1] * 2))[:4]
    assert ((beside - itself).abs().amax(1) > 1e-4).tolist() == [True, True, False, True]


def test_the_order_of_the_texts_shows(student):
    model, tokenizer = student
    found = predict_logits(model, encode(tokenizer, A, B, 99))
    turned = predict_logits(model, encode(tokenizer, B, A, 99))
    assert (found - turned).abs().max() > 1e-4
    torch.testing.assert_close(found[2], turned[2])  # "a" beside "a"


def test_without_token_types_there_is_no_second_text(student):
    model, tokenizer = student
    ids = tokenizer(A[0], return_tensors="pt")["input_ids"]
    found = predict_logits(model, encode(tokenizer, A[:1], [""], 99))
    torch.testing.assert_close(model(ids).logits, found)

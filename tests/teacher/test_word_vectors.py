import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
    CanineTokenizer,
    PreTrainedTokenizerFast,
)

from distillkit.data.contexts import Contexts
from distillkit.errors import InputError
from distillkit.recipe import VocabularyConfig
from distillkit.student.vocabulary import build_tokenizer
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_vectors import word_vectors

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<mask>"]
PIECES = (
    "the film is was n ' t good ##ness bad ##ly . , ! 好 电 影 de ##light ##ful play ##ing mask [ ]"
)


@pytest.fixture(scope="module")
def teacher():
    """A two-layer BERT of width 16 that knows subwords and Chinese characters, in eval mode."""
    words = [*SPECIAL, *PIECES.split(), "delightfully", "cafe"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = BertTokenizerFast(vocab=vocabulary, mask_token="<mask>", model_max_length=16)
    assert tokenizer.tokenize("goodness好") == ["good", "##ness", "好"]
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 16}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(tokenizer), **sizes, **heads)
    return BertForSequenceClassification(config).eval(), tokenizer


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def students(texts, mask="", **options):
    return build_tokenizer(texts, VocabularyConfig(**{"unit": "word"} | options), 32, mask)


def student_of_subwords(words):
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *words.split()])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=16, **names)


def ask(teacher, tokenizer, words, texts, mask="", precision="fp32"):
    ids = tokenizer.convert_tokens_to_ids(words)
    return word_vectors(*teacher, words, Contexts(texts, tokenizer, ids, mask), precision=precision)


def states_of(teacher, text):
    """The teacher's states of a text's subwords and the characters that each stands for."""
    model, tokenizer = teacher
    inputs = tokenizer(text, return_offsets_mapping=True, truncation=True, return_tensors="pt")
    spans = [set(range(*span)) for span in inputs.pop("offset_mapping")[0].tolist()]
    with torch.inference_mode():
        return model.bert(**inputs).last_hidden_state[0], spans


def by_hand(teacher, *places):
    """Mean over places (a text, the first and last character) of the means of their subwords."""
    found = []
    for text, start, end in places:
        states, spans = states_of(teacher, text)
        own = [i for i, span in enumerate(spans) if span & set(range(start, end))]
        found.append(states[own].mean(0))
    return torch.stack(found).mean(0)


def test_a_words_vector_is_the_mean_of_its_own_subwords_states(classifier_folder):
    model, tokenizer = load_classifier(classifier_folder)
    words = ["good", "the film is good", "film", "bad"]
    found = word_vectors(model, tokenizer, words)
    assert found.shape == (4, 16)
    for word, vector in zip(words, found, strict=True):
        close(vector, states_of((model, tokenizer), word)[0][1:-1].mean(0))
    assert word_vectors(model, tokenizer, ["zebra", "\u200b", "good"]).isfinite().all()


def test_a_context_vector_is_the_mean_over_all_places_of_the_word(teacher):
    texts = ["good film", "the film is good, good", "bad"]
    found = ask(teacher, students(texts), ["good", "film", "bad"], texts)
    # [CLS] good film [SEP], ...
    first, second, third = (states_of(teacher, text)[0] for text in texts)
    close(found[0], (first[1] + second[4] + second[6]) / 3)
    close(found[1], (first[2] + second[2]) / 2)
    close(found[2], third[1])
    assert not torch.allclose(found[0], word_vectors(*teacher, ["good"])[0], atol=1e-2)


@pytest.mark.parametrize(
    ("unit", "text", "word"),
    [
        ("word", "The film isn't good.", "isn't"),  # three subwords
        ("word", "it was delightful!", "delightful"),
        ("word", "it was delightful!", "!"),
        ("word", "GOOD, goodness", "goodness"),
        ("character", "电影好!", "影"),
        ("character", "电影good好", "good"),
        ("word", "caf\u00e9 , cafe\u0301", "caf\u00e9"),  # composed, and in two characters
    ],
)
def test_words_are_found_among_the_teachers_subwords_by_their_characters(teacher, unit, text, word):
    tokenizer = students([text], unit=unit)
    coded, number = tokenizer(text, return_offsets_mapping=True), tokenizer.vocab[word]
    spans = zip(coded["input_ids"], coded["offset_mapping"], strict=True)
    places = [(text, *span) for token, span in spans if token == number]
    assert len(places) == (2 if word == "caf\u00e9" else 1)
    close(ask(teacher, tokenizer, [word], [text])[0], by_hand(teacher, *places))


def test_all_words_of_texts_of_all_lengths_are_those_asked_one_by_one(teacher):
    texts = ["good", "", "the film is goodness , the film", "电影好 good.", "bad " * 30]
    texts = [*texts, "is film . good badly", "delightful playing!"] * 3
    tokenizer = students(texts)
    words = [word for word in tokenizer.get_vocab() if word not in ("[PAD]", "[UNK]")]
    places = {word: [] for word in words}
    for text in texts:
        coded = tokenizer(text, return_offsets_mapping=True)
        reach = max((max(span, default=0) for span in states_of(teacher, text)[1]), default=0)
        for token, (start, end) in zip(coded["input_ids"], coded["offset_mapping"], strict=True):
            if start <= reach:  # the teacher reads 16 subwords
                places[tokenizer.convert_ids_to_tokens(token)].append((text, start, end))
    assert 0 < len(places["bad"]) < 90
    expected = torch.stack([by_hand(teacher, *places[word]) for word in words])
    close(ask(teacher, tokenizer, words, texts), expected)


def test_a_teachers_subword_counts_for_every_word_that_it_reaches_into(teacher):
    tokenizer = student_of_subwords("delight ##fully good")
    found = ask(teacher, tokenizer, ["delight", "##fully"], ["good delightfully"])
    close(found, states_of(teacher, "good delightfully")[0][[2, 2]])


def test_a_subword_is_met_on_its_own_and_inside_words_that_are_whole(teacher):
    tokenizer = student_of_subwords("good goodness bad ##ness ##n ##ess film")
    texts = ["Goodness , the film", "badness"]  # badness is no word: bad, ##ness
    words = ["##ness", "good", "goodness", "##n"]
    found = ask(teacher, tokenizer, words, texts)
    close(found[0], by_hand(teacher, (texts[0], 4, 8), (texts[1], 3, 7)))
    close(found[2], by_hand(teacher, (texts[0], 0, 8)))
    alone = word_vectors(*teacher, words)
    shift = (found[[0, 2]] - alone[[0, 2]]).mean(0)
    # A word is met as a word alone, and the longest subword is the one that is met.
    close(found[[1, 3]], alone[[1, 3]] + shift)


def test_the_mask_is_no_word_and_moves_no_other(teacher):
    text, masked = "the [BLANK] film[BLANK]is good", "the <mask> film<mask>is good"
    tokenizer = students([text, "mask"], mask="[BLANK]")
    words = ["film", "good", "the"]
    found = ask(teacher, tokenizer, [*words, "mask"], [text], "[BLANK]")
    places = [(masked, masked.index(word), masked.index(word) + len(word)) for word in words]
    close(found[:3], torch.stack([by_hand(teacher, place) for place in places]))
    alone = word_vectors(*teacher, [*words, "mask"])
    close(found[3] - alone[3], (found[:3] - alone[:3]).mean(0))


def test_a_word_that_is_met_nowhere_is_moved_with_those_that_are(teacher):
    texts = ["the film is good", "a bad film"]
    words = ["film", "bad", "playing"]
    tokenizer = students([*texts, "playing"])
    found, alone = ask(teacher, tokenizer, words, texts), word_vectors(*teacher, words)
    shift = (found[:2] - alone[:2]).mean(0)
    assert shift.abs().max() > 0.01
    close(found[2], alone[2] + shift, atol=1e-6)
    assert torch.equal(ask(teacher, tokenizer, words[2:], texts), alone[2:])
    assert torch.equal(ask(teacher, tokenizer, words, [""]), alone)


def test_a_context_vector_is_the_same_to_the_last_bit_every_time_and_the_teacher_too(teacher):
    texts = ["the film is good", "good", "电影 was badly playing , the film"] * 20
    before = {name: value.clone() for name, value in teacher[0].state_dict().items()}
    options = {"tokenizer": students(texts), "words": ["good", "film", "was", "badly"]}
    for precision in ("fp32", "bf16"):
        found = (ask(teacher, texts=texts, precision=precision, **options) for _ in range(2))
        assert torch.equal(*found)
    close(dict(teacher[0].state_dict()), before, atol=0)
    assert torch.is_grad_enabled()


def test_a_teacher_without_offsets_is_refused(teacher):
    with pytest.raises(
        InputError, match="teacher-context, but the teacher's tokenizer is not a fa"
    ):
        ask((teacher[0], CanineTokenizer()), students(["good"]), ["good"], ["good"])

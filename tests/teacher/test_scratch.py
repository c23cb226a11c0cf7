"""A vocabulary and a fresh encoder from text alone."""

import json
import subprocess
import sys

import pytest
from transformers import AutoTokenizer, BertModel

from distillkit.errors import InputError
from distillkit.recipe import ScratchConfig
from distillkit.teacher.scratch import fresh_encoder

ENGLISH = [
    "The unbelievable film was unbelievably good; the acting, too.",
    "Café owners believe in filming what nobody else films!",
    "It isn't the worst of films, nor quite the best story ever told 😀.",
    "Quick brown foxes jump over 13 lazy dogs, zigzagging past jukeboxes.",
]
CHINESE = ["这部电影很好看，iPhone也好。", "剧情很差"]


def build(texts=(*ENGLISH, *ENGLISH, *CHINESE), **config):
    return fresh_encoder(texts, ScratchConfig(**{"layers": 1, "hidden_size": 64} | config))


def test_frequent_words_are_subwords_and_others_are_cut_into_them():
    _, tokenizer = build()
    whole = ["the", "films", "'", "unbelievable", "story"]
    assert tokenizer.tokenize("The films' unbelievable story") == whole
    first, *rest = tokenizer.tokenize("believefox")
    assert first + "".join(name.removeprefix("##") for name in rest) == "believefox"
    assert rest
    assert all(name.startswith("##") for name in rest)
    assert tokenizer.tokenize("☂") == ["[UNK]"]


def test_special_tokens_have_their_usual_ids_and_every_subword_another():
    shape, tokenizer = build()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.convert_ids_to_tokens(range(5)) == special
    roles = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(tokenizer, f"{role}_token_id") for role in roles] == [0, 1, 2, 3, 4]
    assert sorted(tokenizer.get_vocab().values()) == list(range(shape.vocab_size))
    pair = tokenizer("film", "good")
    film, good = tokenizer.convert_tokens_to_ids(["film", "good"])
    assert pair.input_ids == [2, film, 3, good, 3]
    assert pair.token_type_ids == [0, 0, 0, 1, 1]


def test_han_characters_each_are_one():
    _, tokenizer = build()
    expected = [*"电影很差", *tokenizer.tokenize("iPhone")]
    assert tokenizer.tokenize("电影很差iPhone") == expected
    assert not [w for w in tokenizer.get_vocab() if len(w) > 1 and set(w) & set(CHINESE[1])]


def test_case_and_accents_are_kept_or_not():
    for lower_case, expected in ((True, ["cafe", "the"]), (False, ["Café", "The"])):
        _, tokenizer = build([*ENGLISH * 3, "Café The"], lower_case=lower_case)
        assert tokenizer.tokenize("Café The") == expected


def test_a_saved_tokenizer_is_the_same_when_it_is_read_again(tmp_path):
    _, tokenizer = build(max_positions=64)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    texts = [*ENGLISH, *CHINESE, "believefox ☂ [MASK]", "film " * 99]
    assert again(texts, truncation=True).input_ids == tokenizer(texts, truncation=True).input_ids
    assert len(again("film " * 99, truncation=True).input_ids) == again.model_max_length == 64
    assert 1 not in again(ENGLISH[0]).input_ids


def test_the_encoder_has_the_shape_that_was_asked_for():
    shape, tokenizer = build(layers=2, hidden_size=128, max_positions=40)
    model = BertModel(shape)
    assert model.embeddings.word_embeddings.weight.shape == (len(tokenizer), 128)
    assert model.embeddings.position_embeddings.weight.shape == (40, 128)
    assert len(model.encoder.layer) == 2
    assert model.encoder.layer[0].intermediate.dense.out_features == 512
    assert shape.num_attention_heads == 2
    assert model(**tokenizer("the film", return_tensors="pt")).last_hidden_state.shape[2] == 128


@pytest.mark.parametrize("size", [100, 110, 130])
def test_a_vocabulary_has_as_many_pieces_as_it_may_and_no_more(size):
    texts = [*ENGLISH * 5, *(chr(0x4E00 + i) * 2 for i in range(200)), "好" * 50]
    shape, tokenizer = build(texts, vocabulary_size=size)
    assert shape.vocab_size == len(tokenizer) == size
    # The rarest characters are left out.
    assert 1 not in tokenizer("the 好").input_ids
    assert 1 in tokenizer("".join(chr(0x4E00 + i) for i in range(200))).input_ids


PRINTED = """
import json, sys
from distillkit.recipe import ScratchConfig
from distillkit.teacher.scratch import fresh_encoder
config = ScratchConfig(layers=1, vocabulary_size=150)
print(json.dumps(fresh_encoder(json.loads(sys.argv[1]), config)[1].get_vocab()))
"""


@pytest.mark.slow
def test_the_same_text_in_any_order_gives_the_same_vocabulary_in_every_process():
    texts = [*ENGLISH, *ENGLISH, *CHINESE]
    command = [sys.executable, "-c", PRINTED, json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    here = [build(some, vocabulary_size=150)[1].get_vocab() for some in (texts, texts[::-1])]
    assert json.loads(done.stdout) == here[0] == here[1]
    assert len(here[0]) == 150


@pytest.mark.parametrize("texts", [[], [" "], ["a film"]])
def test_too_little_text_is_refused(texts):
    with pytest.raises(
        InputError, match=r"the text gives \d+ word pieces, .*expected at least 100"
    ):
        build(texts)

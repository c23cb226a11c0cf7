"""Words filled in by a masked language model: which, by what, and that nothing else moves."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import torch
from tagged_corpus import corpus
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
)

from distillkit.augment.infill import Infill, _whole_words, prepare_infill
from distillkit.augment.rules import INFILLED
from distillkit.data.counter import draw, seed_key
from distillkit.data.words import split_words
from distillkit.errors import InputError
from distillkit.recipe import InfillConfig

ADJECTIVES = {"good", "great", "fine", "bright", "bad", "awful", "dull", "weak"}


def loaded(folder):
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def infill_folder(encoder_folder, train_table, tmp_path_factory):
    """The encoder with a head, taught by a bare loop what stands where, and prepared."""
    torch.manual_seed(0)
    model, tokenizer = loaded(encoder_folder)
    ids = tokenizer(train_table["text"].to_pylist(), padding=True, return_tensors="pt")["input_ids"]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        masked = (torch.rand(ids.shape) < 0.3) & (ids > 4)
        logits = model(ids.masked_fill(masked, tokenizer.mask_token_id), ids.ne(0)).logits
        torch.nn.functional.cross_entropy(logits[masked], ids[masked]).backward()
        optimizer.step()
        optimizer.zero_grad()
    folder = tmp_path_factory.mktemp("job")
    model.save_pretrained(folder / "taught")
    tokenizer.save_pretrained(folder / "taught")
    taught, target = str(folder / "taught"), folder / "infill"
    prepare_infill(taught, lambda n: pytest.fail("it has a head"), InfillConfig(), 1, target)
    return target


def fill(folder, texts, rows=None, keys=None, **config):
    lexicon, block = corpus(texts)
    rows = np.arange(len(texts)) if rows is None else rows
    keys = draw(seed_key(1), rows) if keys is None else keys
    return Infill(lexicon, InfillConfig(**config), folder)(block, rows, keys)


def test_words_that_fit_are_drawn(infill_folder):
    out = fill(infill_folder, ["the film is good ."] * 400, p=0.3)
    rows = zip(out.texts.to_pylist(), out.changed.to_pylist(), strict=True)
    filled = [text.split()[3] for text, places in rows if places == [3]]
    assert len(filled) > 10
    assert sum(word in ADJECTIVES for word in filled) > 0.8 * len(filled)
    assert len(set(filled)) > 3  # drawn, not the likeliest


def test_words_are_replaced_in_their_place_and_spacing_and_the_rest_stays(infill_folder):
    text = "  the film,is \t good . "
    out = fill(infill_folder, [text] * 200, p=0.3)
    gaps, words = ["  ", " ", "", "", " \t ", " "], ["the", "film", ",", "is", "good", "."]
    columns = (out.texts.to_pylist(), out.changed.to_pylist(), out.fired.tolist())
    for new, places, fired in zip(*columns, strict=True):
        found = split_words(new)
        for place, (before, after) in enumerate(zip(words, found, strict=True)):
            assert before == after or place in places
        assert new == "".join(gap + word for gap, word in zip(gaps, found, strict=True)) + " "
        assert fired == (INFILLED if places else 0)
    assert out.start.tolist() == [0] * 200
    assert out.stop.tolist() == [6] * 200
    rate = sum(map(len, out.changed.to_pylist())) / (200 * 6)
    assert rate == pytest.approx(0.3 * 4 / 6, abs=0.05)
    assert all(set(places) <= {0, 1, 3, 4} for places in out.changed.to_pylist())  # signs stay


def test_p_is_the_share_from_none_to_all(infill_folder):
    texts = ["the film is good .", "a", ""]
    none, every = fill(infill_folder, texts, p=0.0), fill(infill_folder, texts, p=1.0)
    assert none.texts.to_pylist() == texts
    assert none.fired.tolist() == [0, 0, 0]
    assert every.changed.to_pylist() == [[0, 1, 2, 3], [0], []]


def test_each_mask_is_filled_by_the_models_own_likeliest_word_for_it_when_cold(infill_folder):
    texts = ["the film is good .", "this story was awful .", "a plot seems bright . not dull"]
    rows, keys = np.arange(90) % 3, draw(seed_key(5), np.arange(90))
    out = fill(infill_folder, texts, rows, keys, p=0.4, temperature=1e-4)
    model, tokenizer = loaded(infill_folder)
    allowed, words = _whole_words(tokenizer, "[MASK]")
    right = total = 0
    made = zip(out.texts.to_pylist(), out.changed.to_pylist(), strict=True)
    for i, (new, places) in enumerate(made):
        masked = texts[i % 3].split()
        for place in places:
            masked[place] = "<mask>"
        ids = tokenizer(" ".join(masked), return_tensors="pt")
        with torch.inference_mode():
            logits = model(**ids).logits[0][ids["input_ids"][0] == tokenizer.mask_token_id]
        best = logits[:, allowed].argmax(1).tolist()
        right += sum(new.split()[place] == words[n] for place, n in zip(places, best, strict=True))
        total += len(places)
    assert total > 100
    assert right > 0.85 * total  # half precision decides near ties otherwise


def test_a_variant_does_not_depend_on_what_else_is_made(infill_folder, train_table):
    texts = train_table["text"].to_pylist()
    every, again = (fill(infill_folder, texts, p=0.3) for _ in range(2))
    assert every.texts.equals(again.texts)
    some = np.array([5, 40, 90])
    alone = fill(infill_folder, texts, rows=some, p=0.3)
    assert alone.texts.equals(every.texts.take(pa.array(some)))


def test_words_beyond_the_models_limit_are_left_alone(infill_folder):
    text = " ".join(["good"] * 60)
    out = fill(infill_folder, [text], p=1.0)  # 32 tokens, two of them special
    assert out.changed.to_pylist() == [list(range(30))]
    assert out.texts[0].as_py().split()[30:] == ["good"] * 30


def test_a_text_that_holds_the_models_own_mask_is_left_alone(infill_folder):
    text = "the <mask> is good"
    out = fill(infill_folder, [text] * 60, p=0.3)
    made, changed = out.texts.to_pylist(), out.changed.to_pylist()
    assert Counter(made)[text] == changed.count([]) > 20
    # Only where the mask was itself among the words that were masked is it clear which masks are to
    # be filled.
    assert all(2 in places for places in changed if places)


def test_only_whole_words_are_drawn_of_word_pieces():
    tokens = [
        "[PAD]",
        "oov",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "[unused1]",
        "film",
        "##s",
        "##!",
        ",",
        "好",
        "blank",
    ]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = BertTokenizerFast(vocab=vocabulary, unk_token="oov")
    assert _whole_words(tokenizer, "blank") == ([6, 10], ["film", "好"])


def test_only_whole_words_are_drawn_of_byte_pairs():
    special = {"mask_token": "<mask>", "unk_token": "<unk>", "pad_token": "<pad>"}
    trained, texts = ByteLevelBPETokenizer(), ["a good film, a good filming!"] * 20
    trained.train_from_iterator(texts, vocab_size=300, special_tokens=list(special.values()))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **special)
    tokens, words = _whole_words(tokenizer, "[MASK]")
    assert {"good", "film", "filming"} <= set(words)
    assert not {"<mask>", "ing", "oo", "", ",", "!"} & set(words)
    assert [tokenizer.decode([token]).strip() for token in tokens] == words


def test_a_checkpoint_with_a_head_is_used_as_it_is(infill_folder):
    taught = infill_folder.parent / "taught"
    old, new = (loaded(folder)[0].state_dict() for folder in (taught, infill_folder))
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)


def test_an_encoder_without_a_head_learns_one_from_the_texts(encoder_folder, tmp_path):
    texts = ["the film is good .", "the film was bad ."]
    found = {}
    for steps in (0, 400):
        target, config = tmp_path / f"{steps}", InfillConfig(head_steps=steps)
        prepare_infill(encoder_folder, lambda n: (texts * n)[:n], config, 1, target)
        made = fill(target, texts * 100, p=0.3).texts.to_pylist()
        found[steps] = sum(set(" ".join(texts).split()) >= set(text.split()) for text in made)
    assert found[400] > 1.5 * found[0]


def test_a_head_is_the_same_for_the_same_seed_and_learns_for_as_long_as_asked(
    encoder_folder, tmp_path
):
    asked = []

    def texts(n):
        asked.append(n)
        return ["the film is good ."] * n

    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        prepare_infill(encoder_folder, texts, InfillConfig(head_steps=2), seed, tmp_path / name)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c
    assert asked == [128] * 3


def test_what_is_no_masked_language_model_is_refused_in_one_line(gpt_folder, tmp_path):
    with pytest.raises(InputError, match=r"gpt\d+: not a checkpoint"):
        prepare_infill(gpt_folder, lambda n: [], InfillConfig(), 1, tmp_path / "infill")
    assert not (tmp_path / "infill").exists()

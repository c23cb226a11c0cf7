"""Words filled in by a masked language model: which, by what, and that nothing else moves."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertTokenizerFast,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from distillkit.augment.corpus import Lexicon, tagged_batch
from distillkit.augment.infill import Infill, _whole_words, prepare_infill
from distillkit.augment.rules import INFILLED
from distillkit.augment.taggers import load_tagger
from distillkit.data.counter import draw, seed_key
from distillkit.errors import InputError
from distillkit.recipe import InfillConfig

ADJECTIVES = {"good", "great", "fine", "bright", "bad", "awful", "dull", "weak"}


@pytest.fixture(scope="module")
def infill_folder(encoder_folder, train_table, tmp_path_factory):
    """The encoder with a head, both taught by a bare loop what stands where in the training texts, and prepared."""
    torch.manual_seed(0)
    model, tokenizer = (
        AutoModelForMaskedLM.from_pretrained(encoder_folder).eval(),
        AutoTokenizer.from_pretrained(encoder_folder),
    )
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
    prepare_infill(
        str(folder / "taught"),
        lambda n: pytest.fail("no head need be learnt"),
        InfillConfig(),
        1,
        folder / "infill",
    )
    return folder / "infill"


def corpus(texts, mask="[MASK]"):
    batch = tagged_batch(texts, load_tagger("none")(texts))
    lexicon = Lexicon.build([batch], mask)
    return lexicon, lexicon.block(batch)


def fill(folder, texts, rows=None, keys=None, **config):
    lexicon, block = corpus(texts)
    rows = np.arange(len(texts)) if rows is None else rows
    keys = draw(seed_key(1), rows) if keys is None else keys
    return Infill(lexicon, InfillConfig(**config), folder)(block, rows, keys)


def test_words_that_fit_are_drawn(infill_folder):
    out = fill(infill_folder, ["the film is good ."] * 400, p=0.3)
    changed = out.changed.to_pylist()
    filled = [
        text.split()[3]
        for text, places in zip(out.texts.to_pylist(), changed, strict=True)
        if places == [3]
    ]
    assert len(filled) > 10
    assert sum(word in ADJECTIVES for word in filled) > 0.8 * len(filled)
    assert len(set(filled)) > 3  # drawn, not the likeliest


def test_words_are_replaced_in_their_place_and_spacing_and_the_rest_stays(infill_folder):
    text = "  the film,is \t good . "
    out = fill(infill_folder, [text] * 200, p=0.3)
    gaps, words = ["  ", " ", "", "", " \t ", " "], ["the", "film", ",", "is", "good", "."]
    for new, places, fired in zip(
        out.texts.to_pylist(), out.changed.to_pylist(), out.fired.tolist(), strict=True
    ):
        new_words = load_tagger("none")([new])
        found = [word for word, _ in next(iter(new_words))]
        assert [w for i, w in enumerate(found) if i not in places] == [
            w for i, w in enumerate(words) if i not in places
        ]
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
    out = fill(
        infill_folder,
        texts,
        rows=np.arange(90) % 3,
        keys=draw(seed_key(5), np.arange(90)),
        p=0.4,
        temperature=1e-4,
    )
    model, tokenizer = (
        AutoModelForMaskedLM.from_pretrained(infill_folder).eval(),
        AutoTokenizer.from_pretrained(infill_folder),
    )
    allowed, words = _whole_words(tokenizer, "[MASK]")
    right = total = 0
    for i, (new, places) in enumerate(
        zip(out.texts.to_pylist(), out.changed.to_pylist(), strict=True)
    ):
        masked = texts[i % 3].split()
        for place in places:
            masked[place] = "<mask>"
        ids = tokenizer(" ".join(masked), return_tensors="pt")
        with torch.inference_mode():
            best = (
                model(**ids)
                .logits[0][ids["input_ids"][0] == tokenizer.mask_token_id][:, allowed]
                .argmax(1)
                .tolist()
            )
        right += sum(new.split()[place] == words[n] for place, n in zip(places, best, strict=True))
        total += len(places)
    assert total > 100
    assert right > 0.85 * total  # half precision decides near ties otherwise


def test_a_variant_does_not_depend_on_what_else_is_made(infill_folder, train_table):
    texts = train_table["text"].to_pylist()
    every, again = (fill(infill_folder, texts, p=0.3) for _ in range(2))
    assert every.texts.equals(again.texts)
    some = np.array([5, 40, 90])
    assert (
        fill(infill_folder, texts, rows=some, p=0.3).texts.to_pylist()
        == every.texts.take(pa.array(some)).to_pylist()
    )


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
    vocabulary = [
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
    tokenizer = BertTokenizerFast(
        vocab={token: i for i, token in enumerate(vocabulary)}, unk_token="oov"
    )
    assert _whole_words(tokenizer, "blank") == ([6, 10], ["film", "好"])


def test_only_whole_words_are_drawn_of_byte_pairs():
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        ["a good film, a good filming!"] * 20,
        vocab_size=300,
        special_tokens=["<mask>", "<unk>", "<pad>"],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer,
        mask_token="<mask>",
        unk_token="<unk>",
        pad_token="<pad>",
    )
    tokens, words = _whole_words(tokenizer, "[MASK]")
    assert {"good", "film", "filming"} <= set(words)
    assert not {"<mask>", "ing", "oo", "", ",", "!"} & set(words)
    assert [tokenizer.decode([token]).strip() for token in tokens] == words


def test_a_checkpoint_with_a_head_is_used_as_it_is(infill_folder):
    old, new = (
        AutoModelForMaskedLM.from_pretrained(infill_folder.parent / name).state_dict()
        for name in ("taught", "infill")
    )
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)


def test_an_encoder_without_a_head_learns_one_from_the_texts(encoder_folder, tmp_path):
    texts = ["the film is good .", "the film was bad ."]
    found = {}
    for steps in (0, 400):
        prepare_infill(
            encoder_folder,
            lambda n: (texts * n)[:n],
            InfillConfig(head_steps=steps),
            1,
            tmp_path / f"{steps}",
        )
        made = fill(tmp_path / f"{steps}", texts * 100, p=0.3).texts.to_pylist()
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


def test_what_is_no_masked_language_model_is_refused_in_one_line(tmp_path):
    GPT2LMHeadModel(GPT2Config(vocab_size=10, n_embd=4, n_layer=1, n_head=1)).save_pretrained(
        tmp_path / "gpt"
    )
    with pytest.raises(InputError, match="gpt: not a checkpoint"):
        prepare_infill(str(tmp_path / "gpt"), lambda n: [], InfillConfig(), 1, tmp_path / "infill")
    assert not (tmp_path / "infill").exists()

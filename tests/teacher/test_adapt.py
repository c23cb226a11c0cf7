"""An encoder goes on with its pre-training: it knows held-out text better and can be fine-tuned."""

import json
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
    RobertaConfig,
)

from distillkit.data.readers import read_rows
from distillkit.data.rows import SPECIAL
from distillkit.errors import InputError
from distillkit.pipeline import adapt_teacher, train_teacher
from distillkit.recipe import (
    AdaptConfig,
    DataConfig,
    MaskingConfig,
    ObjectivesConfig,
    ScratchConfig,
    TeacherConfig,
    TextConfig,
    TrainingConfig,
)
from distillkit.teacher import adapt as module
from distillkit.teacher.adapt import adapt, masked
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.documents import read_corpus
from distillkit.teacher.masker import IGNORED, Masker
from distillkit.teacher.pretraining import fresh_network
from distillkit.teacher.scratch import fresh_encoder
from distillkit.training.checkpoints import Checkpoints

STRATEGIES = ["token", "whole-word", "n-gram", "macbert", "span"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "reviews.txt"
    path.write_text("".join(f"{review}\n" for review in reviews(500)), encoding="utf-8")
    return str(path)


def reviews(count):
    return [row["text"] for _, row in read_rows("embedded:reviews/train")][:count]


def save_tiny(folder, kind, tokenizer):
    """Save a model of one layer and width 32 with its tokenizer."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 32}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2}
    kind(BertConfig(vocab_size=len(tokenizer), **sizes, **heads)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folders(text, tmp_path_factory):
    """A tiny encoder whose subwords are the reviews', and a classifier with the same."""
    _, tokenizer = fresh_encoder(reviews(500), ScratchConfig(vocabulary_size=500))
    kinds = (BertModel, BertForSequenceClassification)
    return tuple(save_tiny(tmp_path_factory.mktemp("model"), kind, tokenizer) for kind in kinds)


def config_of(text, masking=None, objectives=None, source=None, training=None, **options):
    how = {"epochs": 2, "batch_size": 16, "learning_rate": 1e-2, "precision": "fp32"}
    rows = {"max_tokens": 32, "held_out_fraction": 0.1} | (source or {})
    return AdaptConfig(
        TextConfig(sources=(text,), **rows),
        MaskingConfig(**masking or {}),
        ObjectivesConfig(**objectives or {}),
        training=TrainingConfig(**how | {"checkpoint_steps": 3} | (training or {})),
        **options,
    )


def state(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ---- learning


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_held_out_text_is_known_better_than_before(strategy, text, folders):
    found = adapt(config_of(text, {"strategy": strategy}), folders[0], 1)
    before, after = found.held_out["before"], found.held_out["after"]
    assert after["mlm_loss"] < before["mlm_loss"] - 0.3
    assert after["perplexity"] < before["perplexity"]
    best = found.result.history[found.result.best_epoch - 1]
    assert after["loss"] == -found.result.best_score == -best["dev"]
    assert not found.network.training
    assert all(p.requires_grad for p in found.network.parameters())


@pytest.mark.parametrize("source", [{"rows": "sentences"}, {"rows": "documents"}])
def test_rows_of_any_cut_will_do(source, text, folders):
    found = adapt(config_of(text, source=source, training={"epochs": 1}), folders[0], 1)
    assert found.held_out["after"]["mlm_loss"] < found.held_out["before"]["mlm_loss"]
    assert found.text["train"]["documents"] + found.text["held_out"]["documents"] == 500


def test_order_and_replaced_tokens_are_learnt_beside_masked_ones(tmp_path, folders):
    path, texts = tmp_path / "pairs.txt", reviews(200)
    path.write_text("\n\n".join(f"{a}\n{b}" for a, b in zip(texts[::2], texts[1::2], strict=True)))
    objectives, source = {"nsp": 1.0, "sop": 1.0, "rtd": 1.0}, {"documents": "blank-line"}
    config = config_of(str(path), {}, objectives, source, {"epochs": 1})
    before, after = adapt(config, folders[0], 1).held_out.values()
    masked = {"loss", "mlm_loss", "perplexity", "mlm_accuracy", "generator_loss"}
    assert after.keys() == masked | {f"{name}_accuracy" for name in objectives} | {"rtd_majority"}
    assert after["loss"] < before["loss"]


def test_replaced_tokens_alone_are_learnt(tmp_path):
    path = tmp_path / "counted.txt"  # every word says which comes next
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    starts = ((i, n) for i in range(10) for n in range(8, 24))
    texts = [" ".join(words[(i + k) % 10] for k in range(n)) for i, n in starts]
    path.write_text("".join(f"{text}\n" for text in texts))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(vocabulary)})
    model = save_tiny(tmp_path / "e", BertModel, tokenizer)
    masking, how = {"strategy": "token"}, {"epochs": 5, "learning_rate": 3e-3}
    config = config_of(str(path), masking, {"mlm": 0.0, "rtd": 1.0}, {"rows": "documents"}, how)
    before, after = adapt(config, model, 1).held_out.values()
    # To do better than calling every token original takes longer than a test.
    assert after["loss"] < before["loss"] / 1.5
    assert after["generator_loss"] < before["generator_loss"]
    assert after["rtd_accuracy"] > before["rtd_accuracy"]
    assert after["rtd_accuracy"] >= after["rtd_majority"] > 0.5


SCRATCH = ScratchConfig(layers=1, hidden_size=64, vocabulary_size=300, max_positions=64)


def test_an_encoder_from_scratch_is_built_of_the_text(text):
    found = adapt(config_of(text, scratch=SCRATCH), "scratch", 1)
    assert found.held_out["after"]["mlm_loss"] < found.held_out["before"]["mlm_loss"]
    assert (found.network.config.hidden_size, found.network.config.num_hidden_layers) == (64, 1)
    assert found.network.config.vocab_size == len(found.tokenizer) <= 300
    assert found.tokenizer.tokenize("the") == ["the"]


def test_the_seed_fixes_everything(text, folders):
    config = config_of(text, training={"epochs": 1})
    first, again, other = (adapt(config, folders[0], seed) for seed in (1, 1, 2))
    assert same(state(first.network), state(again.network))
    assert first.held_out == again.held_out
    assert not same(state(first.network), state(other.network))
    assert first.held_out["before"] != other.held_out["before"]


def test_masks_are_drawn_anew_in_every_epoch(text, folders, monkeypatch):
    own, seen = module._DrawnMasks.__call__, {}

    def watched(self, inputs):
        found = own(self, dict(inputs))
        for row, seen_as in zip(inputs["input_ids"], found["input_ids"], strict=True):
            seen.setdefault(tuple(row.tolist()), []).append(tuple(seen_as.tolist()))
        return found

    monkeypatch.setattr(module._DrawnMasks, "__call__", watched)
    adapt(config_of(text, training={"epochs": 2, "learning_rate": 0.0}), folders[0], 1)
    twice = [found for found in seen.values() if len(found) == 2]
    assert len(twice) > 20
    assert sum(first != second for first, second in twice) > len(twice) / 2


# ---- killed and resumed


@contextmanager
def stopped_at(call):
    """Kill training in the forward pass of this number."""
    own, calls = module._DrawnMasks.__call__, []

    def counted(self, inputs):
        calls.append(inputs)
        if len(calls) == call:
            raise KeyboardInterrupt("as a kill does")
        return own(self, inputs)

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(module._DrawnMasks, "__call__", counted)
        yield
    assert len(calls) == call


@pytest.mark.parametrize(
    ("call", "masking", "objectives"),
    [
        pytest.param(8, {}, {"rtd": 1.0}, marks=pytest.mark.slow),
        (30, {"strategy": "span"}, {}),
    ],
    ids=str,
)
def test_killed_and_resumed_is_never_killed_bit_for_bit(
    call, masking, objectives, text, folders, tmp_path
):
    config = config_of(text, masking, objectives)
    expected = adapt(config, folders[0], 1)
    assert call < 2 * expected.text["train"]["rows"] / 16
    with stopped_at(call):
        adapt(config, folders[0], 1, Checkpoints(tmp_path / "c"))
    found = adapt(config, folders[0], 1, Checkpoints(tmp_path / "c"))
    assert same(state(found.network), state(expected.network))
    assert found.held_out == expected.held_out
    assert found.result == expected.result


def test_another_encoder_from_scratch_does_not_go_on_with_what_the_first_has_left(text, tmp_path):
    config = config_of(text, scratch=SCRATCH)
    with stopped_at(30):
        adapt_teacher(config, "scratch", tmp_path / "adapted")
    other = replace(config, scratch=replace(SCRATCH, embeddings="random"))
    with pytest.raises(InputError, match=r"adapt\.scratch\.embeddings"):
        adapt_teacher(other, "scratch", tmp_path / "adapted")


# ---- what comes out


def test_what_is_saved_is_fine_tuned_by_train_teacher(text, folders, tmp_path):
    data, adapted = str(tmp_path / "train.tsv"), tmp_path / "adapted"
    rows = [row for _, row in read_rows("embedded:reviews/train")][:60]
    lines = [f"{row['text']}\t{row['label']}\n" for row in rows]
    Path(data).write_text("text\tlabel\n" + "".join(lines))
    config = config_of(text, objectives={"rtd": 1.0}, training={"epochs": 1})
    done = adapt_teacher(config, folders[0], adapted)
    assert json.loads(json.dumps(dict(done)))["output"] == str(adapted)
    assert done["best_epoch"] == 1
    saved = AutoModelForMaskedLM.from_pretrained(adapted)
    assert (adapted / "adapt.yaml").is_file()
    teacher = TeacherConfig(str(adapted), 32, TrainingConfig(epochs=0, precision="fp32"))
    result = train_teacher(DataConfig(train=data, dev=data), teacher, tmp_path / "teacher")
    assert sorted(result["labels"]) == ["negative", "positive"]
    model, _ = load_classifier(str(tmp_path / "teacher"))
    ours, theirs = saved.bert.state_dict(), model.bert.state_dict()
    assert same(ours, {name: theirs[name] for name in ours})
    first, name = BertModel.from_pretrained(folders[0]), "encoder.layer.0.output.dense.weight"
    assert not torch.equal(ours[name], first.state_dict()[name])


# ---- held-out masks


def corpus_of(text, folder):
    """Read rows of many lengths."""
    _, tokenizer = load_classifier(folder)
    config = TextConfig(sources=(text,), rows="documents", max_tokens=32, held_out_fraction=0.1)
    return read_corpus(config, tokenizer), tokenizer


def test_held_out_rows_are_masked_once_and_alike_in_any_batch(text, folders, monkeypatch):
    corpus, tokenizer = corpus_of(text, folders[1])
    masker = Masker(MaskingConfig(), tokenizer)
    rows = masked(corpus.train, masker, 1)
    monkeypatch.setattr(module, "_MASK_ROWS", 7)
    assert torch.equal(masked(corpus.train, masker, 1).ids, rows.ids)
    assert not torch.equal(masked(corpus.train, masker, 2).ids, rows.ids)
    numbers = torch.arange(len(rows))
    before, after = corpus.train.batch(numbers), rows.batch(numbers, longest=40)
    assert set(after) == {"input_ids", "attention_mask", "labels"}
    chosen = after["labels"] != IGNORED
    original = torch.where(chosen, after["labels"], after["input_ids"])
    width = before["input_ids"].shape[1]
    assert torch.equal(original[:, :width], before["input_ids"])
    assert not chosen[:, width:].any()
    words = before["words"] != SPECIAL
    assert not chosen[:, :width][~words].any()
    assert float(chosen.sum()) == pytest.approx(0.15 * float(words.sum()), rel=0.1)


def test_how_it_is_done_changes_no_stage():
    how = AdaptConfig(TextConfig(workers=3, cache="here"))
    how = replace(how, training=replace(how.training, checkpoint_steps=7))
    assert how.settings() == AdaptConfig().settings()
    assert AdaptConfig(TextConfig(max_tokens=64)).settings() != AdaptConfig().settings()


# ---- mistakes


def test_a_mistake_is_said_in_one_line(text, folders, tmp_path):
    model, empty, roberta = folders[0], str(tmp_path), str(tmp_path / "roberta")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    shape = RobertaConfig(vocab_size=500, num_attention_heads=2, **sizes)
    shape.max_position_embeddings, shape.pad_token_id = 34, 1
    fresh_network(shape, ObjectivesConfig()).save_pretrained(roberta)
    load_classifier(folders[1])[1].save_pretrained(roberta)

    long = config_of(text, source={"max_tokens": 33})
    macbert = config_of(text, {"strategy": "macbert", "similar": "none.tsv"})
    for config, start, said in (
        (AdaptConfig(), model, r"adapt.text.sources is empty: expected text to adapt to"),
        (config_of(str(tmp_path / "none.txt")), model, "none.txt"),
        (long, model, "max_tokens is 33: expected at most 32, which the encoder reads"),
        (long, roberta, "33: expected at most 32, which"),
        (macbert, model, "similar 'none.tsv': no such file"),
        (config_of(text), empty, "no checkpoint"),
    ):
        with pytest.raises(InputError, match=said) as error:
            adapt(config, start, 1)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (MaskingConfig, {"rate": 0.0}, "masking.rate is 0.0: expected more than 0, and at most 1"),
        (MaskingConfig, {"mask_share": 1.1}, "masking.mask_share is 1.1: expected 0 to 1"),
        (MaskingConfig, {"mask_share": 0.8, "random_share": 0.3}, "expected at most 1"),
        (
            MaskingConfig,
            {"strategy": "span", "rate": 0.6},
            "span leaves a word between any two runs; expected at most 0.5",
        ),
        (MaskingConfig, {"strategy": "n-gram", "rate": 0.6}, "n-gram leaves a word"),
        (MaskingConfig, {"ngram_shares": (0.0, 0.0)}, "not all 0"),
        (MaskingConfig, {"ngram_shares": ()}, "not all 0"),
        (MaskingConfig, {"ngram_shares": (2.0, -1.0)}, "expected at least 0"),
        (MaskingConfig, {"similar": "x.tsv"}, "is for macbert, not for whole-word"),
        (ObjectivesConfig, {"mlm": 0.0}, "expected one of them above 0"),
        (ObjectivesConfig, {"sop": -1.0}, "sop is -1.0: expected at least 0"),
        (ObjectivesConfig, {"generator_size": 0.0}, "generator_size is 0.0: expected more than 0"),
        (ObjectivesConfig, {"discriminator_weight": 0.0}, "weight is 0.0: expected more"),
        (ScratchConfig, {"hidden_size": 100}, "a multiple of 64"),
        (TextConfig, {"max_tokens": 7}, "expected at least 8"),
        (TextConfig, {"held_out_fraction": 0.6}, "more than 0, and at most 0.5"),
        (
            AdaptConfig,
            {"training": TrainingConfig(sampling_weights=("original=2",))},
            "sampling_weights is for students: adaptation has no transfer set; leave it out",
        ),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(make, options, said):
    with pytest.raises(InputError, match=said) as error:
        make(**options)
    assert "\n" not in str(error.value)

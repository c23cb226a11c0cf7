"""What each step takes away, and that what is left answers as it must."""

import copy
import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tokenizers import models
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
)

from distillkit.compress.low_rank import narrow_embedding
from distillkit.compress.quantise import round_weights
from distillkit.compress.steps import Model, Reading, check_fits, shrink
from distillkit.compress.storage import stored_graph
from distillkit.compress.target import NotMetError, find_plans, plans
from distillkit.compress.units import prune_feed_forward, prune_layers, prune_units
from distillkit.compress.vocabulary import prune_vocabulary
from distillkit.data.batches import encode
from distillkit.errors import InputError
from distillkit.pipeline.export import export_model
from distillkit.pipeline.graphs import onnx_graphs
from distillkit.recipe import CompressConfig, EmbeddingConfig, VocabularyConfig
from distillkit.recipe.kinds import load_kinds
from distillkit.runtime import Predictor
from distillkit.student.model import PairStudent
from distillkit.student.static import StaticEncoder
from distillkit.teacher.checkpoint import load_classifier
from distillkit.training.inference import predict_logits
from tests.student import conftest as students

PAIRS, TEXTS, bert, student = students.PAIRS, students.TEXTS, students.bert, students.student


def logits_of(model, tokenizer, texts=TEXTS, pairs=PAIRS):
    pairs = pairs if isinstance(model, PairStudent) else None
    return predict_logits(model, encode(tokenizer, texts, pairs, 64))


def saved_and_loaded(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_classifier(str(folder))


def fill(model, name, units, axis=0):
    """Set some rows of a parameter, or columns, to 0."""
    with torch.no_grad():
        model.get_parameter(name).index_fill_(axis, torch.tensor(units), 0.0)


def silence(model, name, units):
    """Make units say nothing: the columns that read them are 0."""
    fill(model, name, units, axis=1)


# Each storage once, and int4 once for each operator that reads weights: LSTM, Conv, MatMul; for
# two graphs, and for pairs.
@pytest.mark.parametrize(
    ("kind", "storage"),
    [("bilstm", storage) for storage in ("fp16", "int8", "int4", "kmeans")]
    + [(kind, "int4") for kind in ("textcnn", "siamese-bilstm")]
    + [
        pytest.param(kind, "int4", marks=pytest.mark.slow)
        for kind in ("transformer", "interaction-bilstm")
    ],
)
def test_stored_graphs_answer_as_torch_does(student, kind, storage, tmp_path):
    model, tokenizer = student(kind)
    before = logits_of(model, tokenizer)
    stored = CompressConfig(embeddings=storage, weights=storage, clusters=5)
    round_weights(model, stored)
    after = logits_of(model, tokenizer)
    assert not torch.equal(before, after)
    rewrite = partial(stored_graph, compress=stored)
    place = tmp_path / "bundle.zip"
    summary = export_model(model, tokenizer, place, [], one_file=True, rewrite=rewrite)
    assert summary["parity"]["largest"] < 1e-4
    pairs = PAIRS if isinstance(model, PairStudent) else None
    found = Predictor(place).logits(TEXTS, pairs)
    assert np.abs(found - after.numpy()).max() < 1e-4


def test_storage_is_what_the_file_shrinks_by(student):
    graph = onnx_graphs(*student("bilstm", hidden_size=64))["model.onnx"]
    # Of fp32, with what is not weights.
    limits = {"fp16": 0.53, "int8": 0.35, "int4": 0.23}
    for storage, limit in limits.items():
        stored = stored_graph(graph, CompressConfig(embeddings=storage, weights=storage))
        assert len(stored) < limit * len(graph), storage


def test_a_smaller_vocabulary_answers_as_before_where_its_words_are_known(
    student, tmp_path, monkeypatch
):
    model, tokenizer = student("bilstm", unit="word")
    reading = Reading(["a b c d a b c a"], None)
    counts = reading.counts(Model(model, tokenizer))
    monkeypatch.setattr("distillkit.compress.steps._BLOCK", 3)
    in_blocks = replace(reading, _counted={}).counts(Model(model, tokenizer))
    assert in_blocks.tolist() == counts.tolist()
    assert counts.sum() >= 8
    texts = ["a b c d", "d c b a a", ""]
    before = logits_of(model, tokenizer, texts)
    smaller = prune_vocabulary(model, tokenizer, counts, len(tokenizer))  # single letters all stay
    assert torch.equal(logits_of(model, smaller, texts), before)
    read = "alpha beta gamma delta alpha beta gamma alpha beta"
    model, tokenizer = student("siamese-bilstm", texts=[f"{read} a"])
    counts = Reading([read], None).counts(Model(model, tokenizer))
    rows = ["alpha beta", "gamma"], ["gamma gamma", "beta"]
    before = logits_of(model, tokenizer, *rows)
    unknown = logits_of(model, tokenizer, ["zeta"], ["alpha"])
    fewer = prune_vocabulary(model, tokenizer, counts, 5)
    assert sorted(fewer.get_vocab()) == ["[PAD]", "[UNK]", "alpha", "beta", "gamma"]
    assert model.config.vocab_size == len(model.encoder.embedding.table.weight) == 5
    again, tokens = saved_and_loaded(model, fewer, tmp_path)
    assert torch.equal(logits_of(again, tokens, *rows), before)
    # A word that went is as one that it never knew.
    assert torch.equal(logits_of(again, tokens, ["delta"], ["alpha"]), unknown)


def test_characters_that_are_the_words_go_too(student):
    vocabulary = VocabularyConfig(unit="character", size=60)
    model, tokenizer = student("textcnn", texts=["很好的电影不好看"] * 3, vocabulary=vocabulary)
    counts = Reading(["好好看"], None).counts(Model(model, tokenizer))
    assert set(prune_vocabulary(model, tokenizer, counts, 4).get_vocab()) == {
        "[PAD]",
        "[UNK]",
        "好",
        "看",
    }


def test_words_that_go_are_read_by_their_subwords(student):
    text = ["unhappy unlucky happy lucky happily luckily un happy"] * 3
    vocabulary = VocabularyConfig(unit="word", size=60, subwords=30)
    model, tokenizer = student("bilstm", texts=text, vocabulary=vocabulary)
    counts = Reading(["happy happy"], None).counts(Model(model, tokenizer))
    fewer = prune_vocabulary(model, tokenizer, counts, 1)
    assert "unlucky" in tokenizer.get_vocab()
    assert "unlucky" not in fewer.get_vocab()
    assert fewer.unk_token_id not in fewer("unlucky")["input_ids"]


def test_where_few_tokens_stay_half_of_them_are_words(student):
    text = ["unhappy unlucky happy lucky happily luckily un happy"] * 3
    vocabulary = VocabularyConfig(unit="word", size=60, subwords=30)
    model, tokenizer = student("bilstm", texts=text, vocabulary=vocabulary)
    letters = {token for token in tokenizer.get_vocab() if len(token.removeprefix("##")) == 1}
    counts = Reading(["happy happy lucky"], None).counts(Model(model, tokenizer))
    fewer = prune_vocabulary(model, tokenizer, counts, len(letters) + 2 + 4)
    rest = set(fewer.get_vocab()) - letters - {"[PAD]", "[UNK]"}
    assert {"happy", "lucky"} == {token for token in rest if not token.startswith("##")}
    assert len(rest) == 4
    assert fewer.unk_token_id not in fewer("unhappy luckily")["input_ids"]


def test_as_many_positions_as_tokens_are_no_tokens():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    config = BertConfig(vocab_size=8, max_position_embeddings=8, num_hidden_layers=1, **sizes)
    tokenizer = BertTokenizerFast(vocab={w: i for i, w in enumerate(words)}, model_max_length=8)
    network = BertForSequenceClassification(config)
    settings = CompressConfig(vocabulary_size=6)
    list(shrink(Model(network, tokenizer), settings, Reading(["good"], None)))
    tables = network.bert.embeddings
    assert len(tables.word_embeddings.weight) == 6
    assert len(tables.position_embeddings.weight) == 8


def test_a_transformers_special_tokens_keep_their_meaning_under_new_numbers(bert, tmp_path):
    network, tokenizer = copy.deepcopy(bert[0]), bert[1]
    words = ["x", *(f"word{i}" for i in range(4))]
    words += ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"]
    tokenizer = type(tokenizer)(vocab={token: i for i, token in enumerate(words)})
    network.resize_token_embeddings(len(tokenizer))
    network.config.pad_token_id = tokenizer.pad_token_id
    tokenizer.model_max_length = 64
    counts = Reading(["a b c x word1 word1"], None).counts(Model(network, tokenizer))
    before = logits_of(network, tokenizer, ["a word1 c", "b"])
    fewer = prune_vocabulary(network, tokenizer, counts, 10)
    assert len(fewer) == 10
    assert fewer("a word1").tokens() == ["[CLS]", "a", "word1", "[SEP]"]
    again, tokens = saved_and_loaded(network, fewer, tmp_path)
    assert torch.equal(logits_of(again, tokens, ["a word1 c", "b"]), before)


def test_a_cased_bert_stays_cased_when_it_is_loaded_again(bert, tmp_path):
    network = copy.deepcopy(bert[0])
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Hello", "café", "hello", "cafe", *"abc"]
    tokenizer = BertTokenizerFast(
        vocab={word: i for i, word in enumerate(words)}, do_lower_case=False, strip_accents=False
    )
    tokenizer.model_max_length = 64
    counts = np.array([9] * 7 + [1] * 5)
    fewer = prune_vocabulary(network, tokenizer, counts, 10)
    _, again = saved_and_loaded(network, fewer, tmp_path)
    assert again("Hello café").tokens() == ["[CLS]", "Hello", "café", "[SEP]"]


@pytest.mark.parametrize("channels", ["single", "multi", "frozen"])
@pytest.mark.parametrize("kind", ["bilstm", "textcnn", "siamese-bilstm"])
def test_as_many_numbers_as_the_first_layer_can_tell_apart_lose_nothing(
    student, kind, channels, tmp_path
):
    model, tokenizer = student(kind, channels=channels, layers=2 if kind == "bilstm" else 1)
    words = model.encoder.embedding
    for table in (words.table, words.frozen_table):  # of rank 3, in 5 or 10 columns
        if table is not None:
            with torch.no_grad():
                table.weight[:, 2:] = table.weight[:, :2].sum(1, keepdim=True)
    before = logits_of(model, tokenizer)
    rank = 2 if channels != "multi" else 4
    narrow_embedding(model, np.ones(len(tokenizer)), rank)
    again, tokens = saved_and_loaded(model, tokenizer, tmp_path)
    assert again.encoder.embedding.table.weight.shape[1] == again.config.embedding_size == rank
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-5, rtol=0)


class GRUEncoder(StaticEncoder):
    def __init__(self, config):
        super().__init__(config)
        self.gru = nn.GRU(self.width, self.width)

    def encode(self, x, lengths):
        return super().encode(self.gru(x)[0], lengths)

    def first_layer(self):
        return [(self.gru, "weight_ih_l0")]


def test_a_recurrent_layer_that_is_no_lstm_reads_narrower_vectors(student):
    model, tokenizer = student("static")
    model.encoder = GRUEncoder(model.config)
    table = model.encoder.embedding.table
    with torch.no_grad():
        table.weight[:, 2:] = table.weight[:, :1]  # of rank 2
    before = logits_of(model, tokenizer)
    narrow_embedding(model, np.ones(len(tokenizer)), 2)
    assert model.encoder.gru.input_size == 2
    torch.testing.assert_close(logits_of(model, tokenizer), before, atol=1e-5, rtol=0)


def test_frequent_words_keep_their_vectors_best(student):
    model, tokenizer = student("bilstm", hidden_size=16)
    often = np.ones(len(tokenizer))
    often[tokenizer.convert_tokens_to_ids("a")] = 1e6
    before = logits_of(model, tokenizer, ["a"])
    for counts in (often, np.ones(len(tokenizer))):
        small = copy.deepcopy(model)
        narrow_embedding(small, counts, 1)
        error = (logits_of(small, tokenizer, ["a"]) - before).abs().max()
        assert (error < 1e-5) == (counts is often)


def test_smaller_tables_are_refused_where_they_cannot_be(student):
    for kind in ("static", "transformer"):
        model, tokenizer = student(kind)[:2]
        for refuse in (
            partial(narrow_embedding, model, np.ones(100), 2),
            partial(check_fits, Model(model, tokenizer), CompressConfig(embedding_size=2)),
        ):
            with pytest.raises(InputError, match="no table of words with a layer above it; expect"):
                refuse()
    with pytest.raises(InputError, match="expected at most 4, of the 5"):
        narrow_embedding(student("bilstm")[0], np.ones(100), 5)
    wide = student("decomposable", hidden_size=3, embeddings=EmbeddingConfig("random", 12))[0]
    with pytest.raises(
        InputError, match=r"size is 4: expected at most 3, of the 12 that there are"
    ):
        narrow_embedding(wide, np.ones(100), 4)
    model, tokenizer = student("bilstm", unit="hashed")
    with pytest.raises(InputError, match="expected words or word pieces"):
        prune_vocabulary(model, tokenizer, np.ones(len(tokenizer)), 10)


@pytest.mark.parametrize("pooling", ["last", "max", "attention"])
@pytest.mark.parametrize("kind", ["bilstm", "siamese-bilstm"])
def test_lstm_units_that_nobody_reads_go_without_a_trace(student, kind, pooling, tmp_path):
    model, tokenizer = student(kind, pooling=pooling, layers=2, hidden_size=6)
    with torch.no_grad():
        for weight in model.parameters():  # so that texts differ by more than a hair
            weight.mul_(3)
    # Each layer and direction loses other units, so that a mixed-up order shows.
    gone = {
        (0, "forward"): [0, 3],
        (0, "backward"): [1, 5],
        (1, "forward"): [2, 4],
        (1, "backward"): [0, 5],
    }
    for (number, direction), units in gone.items():
        prefix = f"encoder.layers.{number}.{direction}_lstm"
        silence(model, f"{prefix}.weight_hh_l0", units)
        for name in ("weight_ih_l0", "weight_hh_l0"):
            fill(
                model, f"{prefix}.{name}", [6 * gate + unit for gate in range(4) for unit in units]
            )
        columns = [unit + 6 * (direction == "backward") for unit in units]
        readers = [
            f"encoder.layers.1.{above}_lstm.weight_ih_l0" for above in ("forward", "backward")
        ]
        if number == 1:
            silence(model, "head.dense.weight", sides(model, 12, columns))
            readers = [f"encoder.pooling.score.{part}.weight" for part in (0, 2)]
            readers = readers if pooling == "attention" else []
        for reader in readers:
            silence(model, reader, columns)
    silence(model, "head.out.weight", [0, 6])
    fill(model, "head.dense.weight", [0, 6])
    before = logits_of(model, tokenizer)
    assert before.std(0).min() > 1e-3
    prune_units(model, 1 / 3)
    assert model.config.hidden_size == model.encoder.layers[0].forward_lstm.hidden_size == 4
    again, tokens = saved_and_loaded(model, tokenizer, tmp_path)
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-6, rtol=0)


def sides(model, width, columns):
    """Columns of the head that read these numbers, `width` from each text of a pair."""
    return [width * side + column for side in range(model.sides) for column in columns]


@pytest.mark.parametrize("kind", ["textcnn", "siamese-textcnn", "static"])
def test_units_of_no_saliency_go_and_the_answers_stay(student, kind, tmp_path):
    model, tokenizer = student(kind, hidden_size=6)
    silence(model, "head.out.weight", [0, 6])  # of seven ReLU units
    fill(model, "head.dense.weight", [0, 6])
    for number in range(3) if kind.endswith("textcnn") else ():
        columns = [6 * number + unit for unit in (number, 5)]
        silence(model, "head.dense.weight", sides(model, 18, columns))
        fill(model, f"encoder.convolutions.{number}.weight", [number, 5])
    before = logits_of(model, tokenizer)
    prune_units(model, 1 / 3)
    assert model.head.dense.out_features == 5
    assert kind == "static" or model.config.hidden_size == 4
    again, tokens = saved_and_loaded(model, tokenizer, tmp_path)
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["interaction-bilstm", "decomposable"])
def test_units_of_students_that_read_pairs_together_go_without_a_trace(student, kind, tmp_path):
    model, tokenizer = student(kind, hidden_size=6)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for weight in weights.values():  # so that texts differ by more than a hair
            weight.mul_(3)
        # Each layer and direction loses other units, so that a mixed-up order shows. A unit whose
        # own weights are 0 is 0 for every word.
        gone = {"read.layer": [0, 3], "compare": [2, 5], "compose.layer": [1, 4]}
        gone |= {"read.layer.backward_lstm": [1, 2], "compose.layer.backward_lstm": [0, 5]}
        for name, weight in weights.items():
            owner = name.removeprefix("encoder.").rpartition(".")[0]
            units = gone.get(owner) or gone.get(owner.removesuffix(".forward_lstm"))
            if units:
                gates = range(len(weight) // 6)  # of an LSTM's weights four
                fill(model, name, [6 * gate + unit for gate in gates for unit in units])
    silence(model, "head.out.weight", [0, 6])  # of seven ReLU units
    fill(model, "head.dense.weight", [0, 6])
    before = logits_of(model, tokenizer)
    assert before.std(0).min() > 1e-3
    prune_units(model, 1 / 3)
    assert model.config.hidden_size == model.encoder.compare.out_features == 4
    again, tokens = saved_and_loaded(model, tokenizer, tmp_path)
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-5, rtol=0)


def test_feed_forward_rows_and_layers_of_a_transformer_go(bert, tmp_path):
    network, tokenizer = copy.deepcopy(bert[0]), bert[1]
    layers = network.bert.encoder.layer
    for number in range(4):
        prefix = f"bert.encoder.layer.{number}"
        silence(network, f"{prefix}.output.dense.weight", [number, 9])
        fill(network, f"{prefix}.intermediate.dense.weight", [number, 9])
    before = logits_of(network, tokenizer)
    prune_feed_forward(network, 2 / 16)
    assert network.config.intermediate_size == 14
    again, tokens = saved_and_loaded(network, tokenizer, tmp_path / "rows")
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-6, rtol=0)
    kept = [copy.deepcopy(layers[number].state_dict()) for number in (1, 3)]
    prune_layers(network, 2)
    again, _ = saved_and_loaded(network, tokenizer, tmp_path / "layers")
    found = again.bert.encoder.layer
    assert len(found) == again.config.num_hidden_layers == 2
    for layer, wanted in zip(found, kept, strict=True):
        assert all(torch.equal(weight, wanted[name]) for name, weight in layer.state_dict().items())
    with pytest.raises(InputError, match="expected at most the 2"):
        prune_layers(network, 3)
    with pytest.raises(InputError, match=r"compress\.feed_forward knows the layers of bert"):
        prune_feed_forward(nn.Linear(1, 1), 0.5)


def test_a_transformers_steps_come_in_their_order(bert, tmp_path):
    work = Model(copy.deepcopy(bert[0]), copy.deepcopy(bert[1]))
    work.tokenizer.model_max_length = 64
    settings = CompressConfig(vocabulary_size=12, layers=3, feed_forward=0.5)
    names = list(shrink(work, settings, Reading(TEXTS, None)))
    assert names == ["14 tokens", "3 layers", "50 % of feed-forward rows gone"]
    before = logits_of(work.network, work.tokenizer)
    again, tokens = saved_and_loaded(work.network, work.tokenizer, tmp_path)
    assert torch.equal(logits_of(again, tokens), before)
    assert again.config.intermediate_size == 8
    assert again.config.num_hidden_layers == 3


def test_steps_come_in_their_order_and_each_upon_the_last(student, tmp_path):
    texts = ["alpha beta gamma delta alpha beta a b"]
    work = Model(*student("bilstm", hidden_size=10, texts=texts))
    settings = CompressConfig(vocabulary_size=7, embedding_size=3, units=0.5)
    names = list(shrink(work, settings, Reading(["alpha beta gamma", "a b"], None)))
    assert names == ["7 tokens", "embedding dimension 3", "50 % of units gone"]
    again, tokens = saved_and_loaded(work.network, work.tokenizer, tmp_path)
    assert again.encoder.embedding.table.weight.shape == (7, 3)
    assert again.config.hidden_size == 5
    before = logits_of(work.network, work.tokenizer, ["alpha b"])
    torch.testing.assert_close(logits_of(again, tokens, ["alpha b"]), before)


def test_a_model_that_is_trained_again_is_planned_by_what_it_loses_not_by_its_rounding(student):
    vectors = EmbeddingConfig(source="random", dimension=32)
    model, tokenizer = student("bilstm", unit="word", hidden_size=32, embeddings=vectors)
    reading = Reading(TEXTS, None)

    def found(max_mb, *, retrains):
        of = Model(model, tokenizer), CompressConfig(), max_mb, reading, reading
        return [
            (plan.embedding_size or 32, 1 - plan.units, plan.embeddings, plan.weights)
            for plan in find_plans(*of, retrains=retrains)
        ]

    assert found(0.028, retrains=True) == [(32, 1.0, "int8", "int8")]  # nothing lost is best
    # Well between what 24 and what 32 numbers a word take: processors differ by a few bytes.
    rounded, trained = found(0.022, retrains=False), found(0.022, retrains=True)
    assert rounded[0] == (24, 1.0, "int8", "int8")
    assert trained[0] == (32, 1.0, "int4", "int4")  # nothing is cut
    assert {*rounded} == {*trained}
    # None keeps less than another that is stored as finely.
    finest = [("int8", "int8"), ("int4", "int8"), ("int4", "int4")]
    for one, other in itertools.permutations(trained, 2):
        as_finely = finest.index(other[2:]) <= finest.index(one[2:])
        assert not (as_finely and other[0] >= one[0] and other[1] >= one[1])


def test_no_plan_is_wider_than_the_first_layer_has_rows(student):
    vectors = EmbeddingConfig("random", 300)
    model, tokenizer = student("decomposable", hidden_size=100, embeddings=vectors)
    sizes = {plan.embedding_size for plan in plans(Model(model, tokenizer), CompressConfig())}
    assert max(sizes) <= 100 < 300


@pytest.mark.parametrize(
    ("kind", "unit"),
    [*((kind, "word") for kind in load_kinds()), ("static", "hashed"), ("bilstm", "bytes")],
)
def test_a_size_that_no_plan_meets_is_refused_as_such(student, kind, unit):
    model, tokenizer = student(kind, unit="word" if unit == "bytes" else unit)
    if unit == "bytes":  # as of a teacher like RoBERTa: no token of it can go
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.backend_tokenizer.model = models.BPE(tokenizer.get_vocab(), [], unk_token="[UNK]")
    reading = Reading(TEXTS, PAIRS if isinstance(model, PairStudent) else None)
    of = Model(model, tokenizer), CompressConfig()
    assert find_plans(*of, 1.0, reading, reading, retrains=False)
    with pytest.raises(NotMetError, match="distil a smaller student"):  # the overhead alone
        find_plans(*of, 0.007, reading, reading, retrains=False)
